// Chapter 18 — How does a model know more than it computes? This program routes tokens to
// experts, and shows what the experts of a trained model process.
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/18_experts/demo/balance.hpp"
#include "chapters/18_experts/demo/routing.hpp"
#include "chapters/18_experts/demo/specialization.hpp"
#include "chapters/18_experts/demo/speed.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/model_options.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::models;

struct Arguments {
    std::string text, prompt;
    bool collapse = false, measure = false;
    ExpertSizes sizes{8, 2, 32, 0};
    float aux_loss_coefficient = 0.02f;
    ModelRun model;
};

void demo(const Tokenizer& tokenizer, const std::vector<Id>& tokens, Generator generator) {
    route_by_hand();
    published_routers();
    dispatch_by_hand(generator);
    published_sizes();
    losses_by_hand();
    dropped_tokens();
    const FamilyModel model = load_family_model(asset("king_james_experts"));
    load_of_layers(model, tokens);
    words_of_experts(model, tokenizer, tokens);
}

void run(const Arguments& arguments, std::uint32_t seed) {
    Generator generator(seed);
    if (arguments.measure) return measure_speed(generator);
    const Tokenizer tokenizer = models::load_tokenizer(asset("king_james/tokenizer.json"));
    const std::string file =
        arguments.text.empty() ? asset("data/king_james_held_out.txt") : arguments.text;
    const std::vector<Id> tokens = tokenizer.encode(read_text(file));
    require(tokens.size() > 4096, "{}: {} tokens are too few; at least 4097 are needed", file,
            tokens.size());
    if (arguments.collapse)
        return collapse(tokens, tokenizer.vocab_size(), arguments.sizes,
                        arguments.aux_loss_coefficient, seed);
    demo(tokenizer, tokens, generator);
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("18_experts", "How does a model know more than it computes?");
    options.path("--text", arguments.text,
                 "UTF-8 text to route, or to train on with --collapse");
    options.flag("--collapse", arguments.collapse,
                 "train for 60 steps without and with load balancing");
    options.flag("--measure", arguments.measure, "measure the speed of experts");
    options.count("--num-experts", arguments.sizes.num_experts, 1, 64, "experts of --collapse");
    options.count("--num-experts-per-tok", arguments.sizes.num_experts_per_tok, 1, 64,
                  "experts of each token of --collapse");
    options.number("--aux-loss-coef", arguments.aux_loss_coefficient, 0, 10,
                   "coefficient of the load-balancing loss of --collapse");
    models::add_model_path(
        options, arguments.model.model_path,
        "a folder of mixtral, qwen3_moe, gpt_oss, llama4_text or another model type");
    for (const char* name : add_model_options(options, arguments.model, arguments.prompt))
        options.needs(name, "--model");
    for (const char* name : {"--num-experts", "--num-experts-per-tok", "--aux-loss-coef"})
        options.needs(name, "--collapse");
    options.needs("--export", "--model");
    options.moved("--train", "./learn experiment experts --text FILE");
    return options.run(argc, argv, [&] {
        require(arguments.sizes.num_experts_per_tok <= arguments.sizes.num_experts,
                "--num-experts-per-tok {} exceeds --num-experts {}",
                arguments.sizes.num_experts_per_tok, arguments.sizes.num_experts);
        if (arguments.model.model_path.empty()) return run(arguments, options.seed());
        check_temperature(arguments.model.generation.sampling);
        if (options.given("--prompt")) arguments.model.prompt = arguments.prompt;
        Generator generator(options.seed());
        run_model(arguments.model, generator);
    });
}
