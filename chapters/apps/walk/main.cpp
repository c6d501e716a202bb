// ./learn walk: what happens between a text and its next word? One sentence passes through the
// whole model, one step for each part.
#include "chapters/11_generation/words.hpp"
#include "chapters/apps/walk/walk.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::walk;

int main(int argc, char** argv) {
    std::string text = text_of_words;
    std::size_t max_length = 8, layer = 2, head = 4;
    Options options("walk", "What happens between a text and its next word?");
    options.text("--prompt", text, "the text, of 2 to 8 tokens");
    options.count("--max-length", max_length, 2, 8,
                  "cut the text after this many tokens, to follow an earlier word");
    options.count("--layer", layer, 0, 3, "the layer that is shown");
    options.count("--head", head, 0, 5, "the query head that is shown");
    return options.run(argc, argv, [&] {
        const Model model = models::load_model(asset("king_james"));
        const Tokenizer tokenizer = models::load_tokenizer(asset("king_james/tokenizer.json"));
        show_walk({model, tokenizer, text, layer, head, max_length});
    });
}
