// Chapter 26 — How does a model write about what it has read? This program shows Unigram's
// tokens, T5's buckets of distances, cross-attention, and what its cache saves.
#include "chapters/26_encoder_decoder/demo/encoder_decoder.hpp"
#include "chapters/26_encoder_decoder/demo/tokenizers.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    Options options("26_encoder_decoder", "How does a model write about what it has read?");
    return options.run(argc, argv, [&] {
        cross_attention_by_hand();
        relative_positions();
        cost_of_cross_attention(options.seed());
        viterbi_by_hand();
        train_tokenizers();
    });
}
