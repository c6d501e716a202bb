// ./learn experiment NAME: what does a training that compares models show? Each experiment
// belongs to a chapter, whose page discusses its results.
#include "chapters/apps/train/training_task.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::runs;

struct Arguments {
    std::string name, text, export_folder;
    std::size_t steps = 0, num_seeds = 3;
    LongerContexts longer_contexts;
};

void run(const Arguments& arguments, std::uint32_t seed) {
    const std::string& name = arguments.name;
    TrainingTask names = names_task();
    names.args.seed = seed;
    if (name == "ablations" || name == "mup") {
        Generator generator(seed);
        load_names(names, generator);
        return name == "mup" ? compare_widths(names) : compare_ablations(names);
    }
    if (name == "normal-runs") return plot_normal_runs();
    const auto steps_or = [&](std::size_t steps) {
        return arguments.steps > 0 ? arguments.steps : steps;
    };
    if (name == "passkey")
        return compare_passkey_retrieval(steps_or(1000), arguments.num_seeds);
    if (name == "recall") return compare_recall(steps_or(3000), arguments.num_seeds);
    require(!arguments.text.empty(), "{} needs --text", name);
    const std::string text = read_text(arguments.text);
    if (name == "scaling-law") return extrapolate_scaling_law(names, text);

    const Tokenizer tokenizer = models::load_tokenizer(asset("king_james/tokenizer.json"));
    const std::vector<Id> tokens = tokenizer.encode(text);
    if (name == "attention-sinks")
        return compare_attention_sinks(tokens, tokenizer.vocab_size(), steps_or(1500),
                                       arguments.num_seeds);
    if (name == "experts")
        return compare_experts(tokens, tokenizer.vocab_size(), steps_or(1000),
                               arguments.num_seeds, arguments.export_folder);
    if (name == "latent-attention")
        return compare_latent_attention(tokens, tokenizer.vocab_size(), steps_or(500),
                                        arguments.num_seeds);
    if (name == "linear-attention")
        return compare_linear_attention(tokens, tokenizer.vocab_size(), steps_or(500),
                                        arguments.num_seeds);
    if (name == "multi-token-prediction")
        return train_mtp_module(models::load_model(asset("king_james")), tokens, steps_or(800),
                                seed, arguments.export_folder);
    LongerContexts runs = arguments.longer_contexts;
    runs.num_steps = steps_or(runs.num_steps);
    runs.num_seeds = arguments.num_seeds;
    compare_longer_contexts(models::load_model(asset("king_james")), tokens, runs);
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("experiment", "What does a training that compares models show?");
    options.choice("--name", arguments.name,
                   {"ablations", "mup", "scaling-law", "normal-runs", "attention-sinks",
                    "longer-contexts", "passkey", "experts", "latent-attention", "recall",
                    "linear-attention", "multi-token-prediction"},
                   "the experiment");
    options.path("--text", arguments.text,
                 "UTF-8 text to train on, for all but ablations, mup, normal-runs, passkey "
                 "and recall");
    options.count("--steps", arguments.steps, 0, 1 << 20,
                  "training steps, 0: the default; for all but ablations, mup, scaling-law "
                  "and normal-runs");
    options.count("--num-seeds", arguments.num_seeds, 1, 100,
                  "runs of each model, for those with --steps except "
                  "multi-token-prediction");
    options.count("--factor", arguments.longer_contexts.factor, 1, 32,
                  "longer-contexts: by how much RoPE is extended");
    options.count("--train-len", arguments.longer_contexts.seq_len, 2, 8192,
                  "longer-contexts: tokens of a sequence");
    options.folder("--export", arguments.export_folder,
                   "experts: folder to write a model to, for Hugging Face; "
                   "multi-token-prediction: folder of the module");
    return options.run(argc, argv, [&] {
        require(
            !arguments.name.empty(),
            "--name is missing: ./learn experiment ablations, mup, scaling-law, normal-runs, "
            "attention-sinks, longer-contexts, passkey, experts, latent-attention, recall, "
            "linear-attention or multi-token-prediction");
        run(arguments, options.seed());
    });
}
