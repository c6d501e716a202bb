// Chapter 13 — How does a model learn? Trains a model on first names, or on a text of your own,
// and compares it with n-gram models.
#include <algorithm>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/13_training/demo/demo.hpp"
#include "common/files/unicode.hpp"
#include "common/system/options.hpp"
#include "common/system/timer.hpp"

using namespace llm;

// Options that override the configuration or the training arguments; 0 means the default.
struct Overrides {
    std::size_t hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0,
                num_attention_heads = 0, num_key_value_heads = 0, batch_size = 0, seq_len = 0,
                gradient_accumulation_steps = 0, steps = 0;
    float learning_rate = 0, weight_decay = 0.1f, max_grad_norm = 1, attention_dropout = 0;
    bool qk_norm = false;
    std::string optimizer = "adamw";
};

void override_size(std::size_t& value, std::size_t given) {
    if (given > 0) value = given;
}

void override_config(Config& config, const Overrides& given) {
    override_size(config.hidden_size, given.hidden_size);
    config.intermediate_size = llama_intermediate_size(config.hidden_size, 4);
    override_size(config.intermediate_size, given.intermediate_size);
    override_size(config.num_hidden_layers, given.num_hidden_layers);
    override_size(config.num_attention_heads, given.num_attention_heads);
    override_size(config.num_key_value_heads, given.num_key_value_heads);
    config.attention_dropout = given.attention_dropout;
    if (given.qk_norm) config.qk_norm = QKNormType::with_weights;
}

void override_arguments(TrainingArguments& args, const Overrides& given) {
    override_size(args.batch_size, given.batch_size);
    override_size(args.seq_len, given.seq_len);
    override_size(args.gradient_accumulation_steps, given.gradient_accumulation_steps);
    args.optimizer = given.optimizer == "muon" ? OptimizerType::muon : OptimizerType::adamw;
    args.weight_decay = given.weight_decay;
    args.max_grad_norm = double(given.max_grad_norm);
    LRSchedule& schedule = args.lr_schedule;
    if (given.learning_rate > 0) schedule.learning_rate = given.learning_rate;
    schedule.min_learning_rate = schedule.learning_rate / 10;
    set_max_steps(schedule, given.steps > 0 ? given.steps : schedule.max_steps);
}

TrainingTask apply(const Overrides& given, TrainingTask task) {
    override_config(task.config, given);
    override_arguments(task.args, given);
    task.config.max_position_embeddings = task.args.seq_len;
    task.steps_given = given.steps > 0;
    task.config = validate_model(task.config);
    const std::uint64_t count = count_parameters(task.config).total();
    require(count <= 200'000'000, "training: {} parameters are too many for one machine",
            count);
    return task;
}

TrainingTask names_task() {
    TrainingTask task;
    task.config.hidden_size = 64;
    task.config.num_hidden_layers = 3;
    task.config.num_attention_heads = 4;
    task.config.num_key_value_heads = 2;
    task.args.batch_size = 8;
    task.args.seq_len = 32;
    task.args.gradient_accumulation_steps = 4;
    task.args.lr_schedule.learning_rate = Real(0.003);
    task.args.lr_schedule.max_steps = 1500;
    return task;
}

TrainingTask text_task() {
    TrainingTask task;
    task.config.hidden_size = 192;
    task.config.num_hidden_layers = 4;
    task.config.num_attention_heads = 6;
    task.config.num_key_value_heads = 2;
    task.args.batch_size = 2;
    task.args.seq_len = 256;
    task.args.gradient_accumulation_steps = 4;
    task.args.lr_schedule.learning_rate = Real(0.002);
    return task;
}

void add_options(Options& options, Overrides& given) {
    options.size("--hidden-size", given.hidden_size);
    options.size("--intermediate-size", given.intermediate_size);
    options.size("--num-hidden-layers", given.num_hidden_layers);
    options.size("--num-attention-heads", given.num_attention_heads);
    options.size("--num-key-value-heads", given.num_key_value_heads);
    options.flag("--qk-norm", given.qk_norm, "normalize queries and keys, as Qwen3 does");
    options.number("--attention-dropout", given.attention_dropout, 0, 0.9,
                   "probability of dropping an attention weight");
    options.size("--batch-size", given.batch_size);
    options.size("--seq-len", given.seq_len);
    options.count("--gradient-accumulation-steps", given.gradient_accumulation_steps, 1, 256,
                  "batches per step");
    options.count("--steps", given.steps, 0, 1 << 24, "number of steps, 0: the default");
    options.choice("--optimizer", given.optimizer, {"adamw", "muon"},
                   "the optimizer of the hidden matrices");
    options.number("--learning-rate", given.learning_rate, 0, 1,
                   "learning rate after warm-up, 0: the default");
    options.number("--weight-decay", given.weight_decay, 0, 10, "weight decay of matrices");
    options.number("--max-grad-norm", given.max_grad_norm, 0.0001, 1e6,
                   "gradients are clipped to this norm");
}

void add_text_options(Options& options, TextOptions& text, std::string& special_tokens,
                      float& minutes) {
    options.path("--text", text.file,
                 "UTF-8 text file to train on, or a folder of them, or a list with commas; "
                 "default: first names");
    options.number("--minutes", minutes, 0.1, 10000, "time of a run with --text, in total");
    options.count("--vocab-size", text.vocab_size, 0, 1 << 16,
                  "vocabulary size for --text, 0: characters");
    options.text("--document-separator", text.document_separator,
                 "text between the documents of a file: \"<|endoftext|>\"");
    options.flag("--cross-documents", text.cross_documents,
                 "let tokens attend to other documents");
    options.text("--special-tokens", special_tokens,
                 "tokens reserved for chapter 14: \"<|im_start|> <|im_end|>\"");
    options.flag("--individual-digits", text.individual_digits,
                 "a token of documents contains at most one digit");
    for (const char* name : {"--minutes", "--vocab-size", "--document-separator",
                             "--cross-documents", "--special-tokens", "--individual-digits"})
        options.needs(name, "--text");
}

int main(int argc, char** argv) {
    elapsed_seconds();  // --minutes includes the start of the program
    Overrides given;
    OutputFolder output;
    TextOptions text;
    std::string special_tokens, dtype = "float32";
    float minutes = 5;
    bool ablations = false, mup = false, scaling_law = false;
    Options options("13_training", "How does a model learn?");
    add_text_options(options, text, special_tokens, minutes);
    options.folder("--folder", output.path, "folder of the checkpoint and the model");
    options.flag("--resume", output.resume, "continue the run of that checkpoint");
    options.count("--save-steps", output.save_steps, 0, 1 << 24,
                  "steps between checkpoints, 0: about a minute");
    options.choice("--dtype", dtype, {"float32", "bfloat16"}, "data type of the saved model");
    add_options(options, given);
    options.flag("--ablations", ablations, "compare small models (10 minutes)");
    options.flag("--mup", mup, "compare learning rates for three widths, with and without muP");
    options.flag("--scaling-law", scaling_law, "predict the loss of a larger model");
    options.needs("--scaling-law", "--text");

    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        output.dtype = dtype == "float32" ? DType::float32 : DType::bfloat16;
        TrainingTask task = apply(given, text.file.empty() ? names_task() : text_task());
        task.args.seed = options.seed();
        require(int(ablations) + int(mup) + int(scaling_law) <= 1,
                "--ablations, --mup and --scaling-law are separate experiments; give only one");
        if (scaling_law) return scaling_law_demo(task, read_text(text.file));
        if (ablations || mup) {
            load_names(task, generator);
            return ablations ? ablations_demo(task) : mup_demo(task);
        }
        if (text.file.empty()) return names_demo(std::move(task), output, generator);
        // --minutes limits a new run unless --steps is given, a resumed run only if it is
        // given.
        const bool limited = output.resume ? options.given("--minutes") : given.steps == 0;
        text.minutes = limited ? double(minutes) : 0;
        text.special_tokens = split_at_spaces(special_tokens);
        text_demo(std::move(task), output, text, generator);
    });
}
