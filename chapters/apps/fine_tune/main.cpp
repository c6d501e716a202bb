// ./learn fine_tune MODEL: teaches a model to answer, with conversations or preferences in
// files.
#include "chapters/apps/fine_tune/fine_tune.hpp"
#include "common/system/options.hpp"
#include "common/tensors/tensor.hpp"

using namespace llm;
using namespace llm::fine_tune;

void add_options(Options& options, FineTuningArguments& arguments) {
    options.path("--model", arguments.model, "a Hugging Face folder");
    options.path("--adapter", arguments.adapter, "a LoRA adapter in PEFT's format to continue");
    options.path("--train", arguments.train, "JSON Lines of conversations or of preferences");
    options.path("--test", arguments.test, "JSON Lines of held-out questions and answers");
    options.text("--task", arguments.task, "only the conversations of this task");
    options.choice("--method", arguments.method, {"sft", "sample", "dpo", "grpo"},
                   "sample: write preferences for dpo");
    options.text("--folder", arguments.folder,
                 "where the result is saved; of sample, the file");
    options.flag("--resume", arguments.resume,
                 "continue the run of the checkpoint in --folder");
    options.count("--save-steps", arguments.save_steps, 0, 1 << 24,
                  "steps between checkpoints, 0: about a minute");
    options.flag("--full", arguments.full, "train all parameters, without LoRA");
    options.choice("--dtype", arguments.dtype, {"float32", "bfloat16"},
                   "data type of the model that --full saves");
    options.needs("--dtype", "--full");
    options.flag("--loss-on-everything", arguments.loss_on_everything, "sft: no response mask");
    options.count("--steps", arguments.steps, 1, 1 << 24,
                  "number of steps; default 600 for sft, otherwise 60");
    options.count("--batch-size", arguments.batch_size, 1, 4096,
                  "conversations, pairs or questions per step");
    options.number("--learning-rate", arguments.learning_rate, 0, 1,
                   "learning rate after warm-up, 0: the default of the method");
    options.count("--lora-r", arguments.lora_r, 1, 4096, "rank of a new adapter");
    options.number("--lora-alpha", arguments.lora_alpha, 0.001, 1e6, "α of a new adapter");
    options.number("--beta", arguments.beta, 0, 100, "β of dpo (0.1) or of grpo (0.04)");
    options.number("--rpo-alpha", arguments.rpo_alpha, 0, 1000,
                   "dpo: weight of the SFT loss of the chosen answers");
    options.choice("--loss-type", arguments.loss_type, {"grpo", "dapo", "dr_grpo"},
                   "grpo: how the tokens' losses become one number");
    options.count("--group-size", arguments.group_size, 2, 1024, "answers to each question");
    options.count("--max-new-tokens", arguments.max_new_tokens, 1, 1 << 20,
                  "the longest answer");
    options.number("--temperature", arguments.temperature, 0, 100,
                   "temperature of the answers to --test");
    options.count("--test-questions", arguments.test_questions, 0, 1 << 24,
                  "questions of each task, 0: all");
}

int main(int argc, char** argv) {
    FineTuningArguments arguments;
    Options options("fine_tune", "How does a model learn to answer?");
    add_options(options, arguments);
    options.needs("--resume", "--train");
    options.needs("--save-steps", "--train");
    return options.run(argc, argv, [&] {
        require(!arguments.model.empty(), "--model is missing: ./learn fine_tune DIR");
        require(!arguments.train.empty() || !arguments.test.empty(),
                "--model needs --train, --test or both");
        fine_tune_model(arguments, options.seed());
    });
}
