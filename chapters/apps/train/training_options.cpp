#include "chapters/apps/train/training_options.hpp"

#include "chapters/09_full_model/parameters.hpp"

namespace llm::runs {
namespace {

void override_size(std::size_t& value, std::size_t given) {
    if (given > 0) value = given;
}

void override_config(Config& config, const TrainingOptions& given) {
    override_size(config.hidden_size, given.hidden_size);
    config.intermediate_size = llama_intermediate_size(config.hidden_size, 4);
    override_size(config.intermediate_size, given.intermediate_size);
    override_size(config.num_hidden_layers, given.num_hidden_layers);
    override_size(config.num_attention_heads, given.num_attention_heads);
    override_size(config.num_key_value_heads, given.num_key_value_heads);
    config.attention_dropout = given.attention_dropout;
    if (given.qk_norm) config.qk_norm = QKNormType::with_weights;
}

void override_arguments(TrainingArguments& args, const TrainingOptions& given) {
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

}  // namespace

TrainingTask apply(const TrainingOptions& given, TrainingTask task) {
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

void add_training_options(Options& options, TrainingOptions& given) {
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

void add_folder_options(Options& options, RunFolder& folder, std::string& dtype) {
    options.folder("--folder", folder.path, "folder of the checkpoint and the model");
    options.flag("--resume", folder.resume, "continue the run of that checkpoint");
    options.count("--save-steps", folder.save_steps, 0, 1 << 24,
                  "steps between checkpoints, 0: about a minute");
    options.choice("--dtype", dtype, {"float32", "bfloat16"}, "data type of the saved model");
}

}  // namespace llm::runs
