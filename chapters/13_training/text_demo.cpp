#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/demo.hpp"
#include "chapters/13_training/run_checkpoint.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

// Estimates how many steps, with seven evaluations, fit into the time. Measures steps of a copy
// of the model for a twentieth of the time, at most three seconds. The first step is not
// measured, because it is slower.
std::size_t estimate_num_steps(double minutes, const TrainingTask& task, const Model& model) {
    TrainingArguments args = task.args;
    set_max_steps(args.lr_schedule, 1 << 24);
    TrainerState state = init_trainer(model, args);
    std::vector<Model> gradients(args.gradient_accumulation_steps, zeros_like(model));
    train_step(state, args, task.dataset.train, gradients);

    const double limit = std::min(3.0, 60 * minutes / 20), start = seconds_so_far();
    std::size_t num_steps = 0;
    double elapsed = 0;
    while (elapsed < limit) {
        train_step(state, args, task.dataset.train, gradients);
        elapsed = seconds_so_far() - start;
        ++num_steps;
    }
    const double evaluation =
        fastest_seconds(1, [&] { evaluate(model, task.dataset.validation, args, 20); });
    const double available = 60 * minutes - 7 * evaluation;
    const double count = available / (elapsed / double(num_steps));
    return count < 1 ? 1 : static_cast<std::size_t>(count);
}

void show_sizes(const TrainingTask& task, const Model& model, const std::string& text) {
    const std::size_t num_tokens = task.dataset.train.size() + task.dataset.validation.size();
    const std::size_t num_parameters = count_parameters(model).total();
    const TrainingArguments& args = task.args;
    show("tokens", with_commas(num_tokens) + ", of which for validation: " +
                       with_commas(task.dataset.validation.size()));
    show("vocabulary", with_commas(task.config.vocab_size));
    show("characters per token",
         fixed(double(characters(text).size()) / double(num_tokens), 2));
    show("parameters", with_commas(num_parameters));
    const std::size_t copies = 3 + args.gradient_accumulation_steps;
    show("memory for parameters, exp_avg, exp_avg_sq and gradients",
         fixed(4e-6 * double(num_parameters * copies), 0) + " MB");
    show("tokens per step", with_commas(tokens_per_step(args)) + " (" +
                                to_text(args.gradient_accumulation_steps) + " batches of " +
                                to_text(args.batch_size) + " x " + to_text(args.seq_len) + ")");
    show("steps per epoch",
         fixed(double(task.dataset.train.size()) / double(tokens_per_step(args)), 0));
}

// Text sampled from the model, with the first token of the validation part as the prompt.
std::string sample_text(const Model& model, const TrainingTask& task,
                        std::size_t max_new_tokens) {
    Generator generator(task.args.seed);
    GenerationConfig config;
    config.sampling.temperature = Real(0.8);
    config.max_new_tokens = max_new_tokens;
    const std::vector<Id> prompt = {task.dataset.validation[0]};
    return escaped(task.tokenizer.decode(generate(model, prompt, config, generator)));
}

}  // namespace

void text_demo(TrainingTask task, OutputFolder output, const std::string& file,
               std::size_t vocab_size, double minutes, Generator& generator) {
    const std::string text = read_text(file);
    if (output.path.empty()) output.path = model_folder("text");
    check_output_folder(output);
    tokenize_dataset(task, text, vocab_size);
    const Model model = init_model(task.config, generator);
    if (minutes > 0)
        set_max_steps(task.args.lr_schedule,
                      output.resume ? checkpoint_max_steps(output.checkpoint_file())
                                    : estimate_num_steps(minutes, task, model));
    TrainerState state = start_or_resume(task, model, output);

    step("Text, tokens and model");
    show_sizes(task, model, text);
    if (minutes > 0)
        show("steps in this time",
             to_text(task.args.lr_schedule.max_steps) + " (use --steps to repeat this run)");

    step("Training");
    EvaluationLog log;
    log.sample = [&](const Model& now) { return "\n    " + sample_text(now, task, 24); };
    const auto [seconds_per_step, interrupted] = train_and_evaluate(state, task, output, log);
    if (seconds_per_step > 0)  // 0 if no step was left
        show("speed", tokens_per_second(task.args, seconds_per_step) + " per second, " +
                          minutes_and_seconds(seconds_per_step * double(state.global_step)) +
                          " for all steps");
    show("peak memory", fixed(peak_megabytes(), 0) + " MB");
    if (interrupted) return;

    step("Comparison with n-gram models");
    compare_with_ngrams(task, load_model(output.path));
    say(sample_text(state.model, task, 100));
    say("The model is in " + output.path + ". ./learn 11 --model " + output.path +
        " generates text with it.");
}

}  // namespace llm
