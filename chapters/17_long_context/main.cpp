// Chapter 17 — How much of the past must a token see? This program shows attention patterns, a
// rolling cache, soft caps and attention sinks, and the loss beyond the context of training.
#include "chapters/17_long_context/demo/extension.hpp"
#include "chapters/17_long_context/demo/pattern.hpp"
#include "chapters/17_long_context/demo/score_mod.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/model_options.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::models;

struct Arguments {
    std::string text;
    bool measure = false;
    std::size_t factor = 8, num_sequences = 2;
    ModelRun model;
    std::string prompt;
};

void demo(const Model& model, const std::vector<Id>& tokens, const Arguments& arguments,
          Generator generator) {
    masks_of_patterns(generator);
    receptive_field_of_layers();
    rolling_cache_by_hand();
    wrong_ring_buffer();
    bytes_of_caches();
    soft_caps();
    softmax_with_a_sink();
    temperature_of_queries();
    frequencies_of_pairs(model.config, arguments.factor);
    loss_beyond_the_context(model, tokens, arguments.factor, arguments.num_sequences);
}

void run(const Arguments& arguments, std::uint32_t seed) {
    const Model model = models::load_model(asset("king_james"));
    if (arguments.measure) return time_by_length(model.config);
    const std::string file =
        arguments.text.empty() ? asset("data/king_james_held_out.txt") : arguments.text;
    const std::vector<Id> tokens =
        models::load_tokenizer(asset("king_james/tokenizer.json")).encode(read_text(file));
    const std::size_t context = model.config.max_position_embeddings;
    require(tokens.size() > arguments.factor * context,
            "{}: {} tokens are too few for {} times the context of {}", file, tokens.size(),
            arguments.factor, context);
    demo(model, tokens, arguments, Generator(seed));
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("17_long_context", "How much of the past must a token see?");
    options.path("--text", arguments.text, "UTF-8 text to measure the loss on");
    options.count("--factor", arguments.factor, 1, 32, "extend the context by this factor");
    options.count("--num-sequences", arguments.num_sequences, 1, 10000,
                  "sequences on which the loss by position is measured");
    options.flag("--measure", arguments.measure, "measure the time of a token by the length");
    models::add_model_path(options, arguments.model.model_path,
                           "a folder of mistral, gemma2, gemma3_text or another model type");
    for (const char* name : add_model_options(options, arguments.model, arguments.prompt))
        options.needs(name, "--model");
    options.needs("--export", "--model");
    options.moved("--sinks", "./learn experiment attention-sinks --text FILE");
    options.moved("--extend", "./learn experiment longer-contexts --text FILE");
    return options.run(argc, argv, [&] {
        if (arguments.model.model_path.empty()) return run(arguments, options.seed());
        check_temperature(arguments.model.generation.sampling);
        if (options.given("--prompt")) arguments.model.prompt = arguments.prompt;
        Generator generator(options.seed());
        run_model(arguments.model, generator);
    });
}
