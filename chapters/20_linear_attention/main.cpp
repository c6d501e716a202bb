// Chapter 20 — Must attention look back at all? This program writes words to a state, compares
// the updates and the forms of linear attention, and shows a layer and what it keeps.
#include "chapters/20_linear_attention/demo/layer.hpp"
#include "chapters/20_linear_attention/demo/state.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    Options options("20_linear_attention", "Must attention look back at all?");
    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        words_in_a_state();
        overwriting();
        similar_keys();
        gradient_step();
        three_forms(generator);
        writes_of_a_chunk();
        shapes_of_a_layer(generator);
        token_by_token(generator);
        kept_numbers();
        flops_by_length();
        capacity(generator);
        words_in_a_convolution();
    });
}
