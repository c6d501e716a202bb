#include "chapters/apps/train/text_run.hpp"

#include <algorithm>

#include "chapters/11_generation/generation.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/apps/train/document_run.hpp"
#include "chapters/apps/train/ngram_comparison.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm::runs {
namespace {

constexpr std::size_t num_sampled_tokens = 24;

// The seconds that the parts of a run take.
struct Durations {
    double step;                   // a training step
    double evaluation_of_a_token;  // evaluation, divided by the number of tokens
    double report;                 // an evaluation with a sampled text, and saving
    double comparison = 0;         // all that follows the last step
};

void show_sizes(const TrainingTask& task, const Model& model,
                const std::vector<std::string>& documents) {
    std::size_t num_characters = 0;
    for (const std::string& document : documents) num_characters += characters(document).size();
    const std::size_t num_tokens = task.dataset.train.size() + task.dataset.validation.size();
    const std::uint64_t num_parameters = count_parameters(model).total();
    const TrainingArguments& args = task.args;
    if (documents.size() > 1) show("documents", with_commas(documents.size()));
    show("tokens", with_commas(num_tokens) + ", of which for validation: " +
                       with_commas(task.dataset.validation.size()));
    show("vocabulary", with_commas(task.config.vocab_size));
    show("characters per token", fixed(double(num_characters) / double(num_tokens), 2));
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

// Text sampled from the model, with the first token of the validation set as the prompt.
std::string sample_text(const Model& model, const TrainingTask& task,
                        std::size_t max_new_tokens) {
    Generator generator(task.args.seed);
    GenerationConfig config;
    config.sampling.temperature = Real(0.8);
    config.max_new_tokens = max_new_tokens;
    config.eos_token_ids = task.eos_token_ids;
    const std::vector<Id> prompt = {task.dataset.validation[0]};
    return escaped(task.tokenizer.decode(generate(model, prompt, config, generator).ids));
}

void show_speed(const TrainerState& state, const TrainingTask& task,
                const RunOutcome& outcome) {
    const double seconds = outcome.seconds_per_step;
    if (seconds > 0)  // 0 if no step was left
        show("speed", tokens_per_second(task.args, seconds) + " per second, " +
                          minutes_and_seconds(seconds * double(state.global_step)) +
                          " for all steps");
    show("peak memory", fixed(peak_megabytes(), 0) + " MB");
}

// Measures steps of a copy of the model for a twelfth of the time, at most three seconds. The
// first step is not measured, because it is slower.
Durations measure_durations(const TrainingTask& task, const Model& model, double budget) {
    TrainingArguments args = task.args;
    set_max_steps(args.lr_schedule, 1 << 24);
    TrainerState state = make_trainer_state(model, args);
    std::vector<Model> gradients(args.gradient_accumulation_steps, zeros_like(model));
    train_step(state, args, task.dataset.train, gradients);
    const double limit = std::min(3.0, budget / 12), start = elapsed_seconds();
    double num_steps = 0, elapsed = 0;
    for (; elapsed < limit; elapsed = elapsed_seconds() - start, ++num_steps)
        train_step(state, args, task.dataset.train, gradients);

    const std::vector<Id>& tokens = task.dataset.validation;
    const double evaluation =
        fastest_seconds(1, [&] { evaluate_loss(model, tokens, args, num_evaluation_batches); });
    const double sampling =
        fastest_seconds(1, [&] { sample_text(model, task, num_sampled_tokens); });
    const std::size_t num_tokens =
        std::min(tokens.size(), num_evaluation_batches * args.batch_size * args.seq_len);
    // A checkpoint and a model take 16 bytes per parameter; 300 MB per second is a slow disk.
    const double saving = 16.0 * double(count_parameters(model).total()) / 3e8;
    return {elapsed / num_steps, evaluation / double(num_tokens),
            evaluation + sampling + saving, 5 * sampling};
}

// The tokens on which the model is compared with n-gram models: all, or, if their evaluation
// takes longer than the limit, sequences that are evenly spaced.
std::vector<Id> comparison_tokens(const TrainingTask& task, double seconds_per_token,
                                  double time_limit) {
    const std::vector<Id>& all = task.dataset.validation;
    const std::size_t seq_len = task.args.seq_len, num_sequences = all.size() / seq_len;
    const double affordable = time_limit / (seconds_per_token * double(seq_len));
    if (affordable >= double(num_sequences)) return all;
    const std::size_t count = std::min(num_sequences, 2 + std::size_t(affordable));
    std::vector<Id> tokens;
    for (std::size_t i = 0; i < count; ++i) {
        const auto start = all.begin() + std::ptrdiff_t(i * num_sequences / count * seq_len);
        tokens.insert(tokens.end(), start, start + std::ptrdiff_t(seq_len));
    }
    show("tokens for the comparison with n-gram models",
         with_commas(tokens.size()) + " of the validation set, to save time");
    return tokens;
}

// When to stop, so that the program ends within the budget. Aims at 97 % of it; the deadline is
// for a speed that decreases after the last evaluation.
StopCondition plan_stop(const TrainingTask& task, std::size_t global_step,
                        const Durations& durations, double budget) {
    const std::size_t num_steps = task.args.num_steps();
    StopCondition stop{global_step};
    stop.sets_max_steps = global_step == 0;
    // An interrupted run is resumed to its own end at most; a finished one is continued.
    if (global_step > 0 && global_step < num_steps) stop.highest_last_step = num_steps;
    stop.target = 0.97 * budget - durations.comparison;
    stop.deadline = 1.07 * budget - durations.comparison - durations.report;
    // At most a quarter of the time is for evaluations, but there are at least two.
    const double num_reports = std::clamp(0.25 * budget / durations.report, 2.0, 6.0);
    stop.num_reports = static_cast<std::size_t>(num_reports);
    stop.seconds_per_report = durations.report;
    stop.last_step = plan_last_step(stop, global_step, durations.step);
    if (elapsed_seconds() + durations.step + durations.report > stop.deadline)
        say("The preparation took " + minutes_and_seconds(elapsed_seconds()) +
            ": --minutes is too short for this text and model.");
    return stop;
}

// Counts the n-grams and plans the steps for a budget in seconds. Sets max_steps of a new run.
std::pair<StopCondition, NgramBaseline> plan_run(TrainingTask& task, const TrainerState& state,
                                                 double budget) {
    show_progress("measuring the speed and counting n-grams ...");
    Durations durations = measure_durations(task, state.model, budget);
    std::vector<Id> tokens =
        comparison_tokens(task, durations.evaluation_of_a_token, 0.05 * budget);
    durations.comparison += double(tokens.size()) * durations.evaluation_of_a_token;
    NgramBaseline baseline = ngram_baseline(task, std::move(tokens), 0.15 * budget);
    const StopCondition stop = plan_stop(task, state.global_step, durations, budget);
    show_progress("");
    if (stop.sets_max_steps) set_max_steps(task.args.lr_schedule, stop.last_step);
    show("steps in this time", "about " + to_text(stop.last_step - state.global_step));
    return {stop, std::move(baseline)};
}

}  // namespace

void train_on_text(TrainingTask task, OutputFolder output, const TextOptions& options,
                   Generator& generator) {
    require(options.has_documents() ||
                (options.special_tokens.empty() && !options.individual_digits),
            "--special-tokens and --individual-digits are for documents: a folder, a list of "
            "files, or --document-separator");
    const std::vector<std::string> documents = read_documents(options);
    if (output.path.empty()) output.path = default_folder("text", output.resume);
    open_output_folder(output, task);
    if (options.has_documents())
        tokenize_documents(task, documents, options);
    else
        tokenize_dataset(task, documents[0], options.vocab_size);
    TrainerState state =
        start_or_resume(task, make_model_for_training(task.config, generator), output);
    write_generation_config(task, output);

    if (options.has_documents()) packed_documents(task);
    step("Text, tokens and model");
    show_sizes(task, state.model, documents);
    if (output.resume) explain_resumed_run(state, task, options.minutes > 0);
    StopCondition stop{task.args.num_steps()};
    NgramBaseline baseline;
    if (options.minutes > 0)
        std::tie(stop, baseline) = plan_run(task, state, 60 * options.minutes);

    step("Training");
    EvaluationLog log;
    log.sample = [&](const Model& now) { return sample_text(now, task, num_sampled_tokens); };
    const RunOutcome outcome = train_and_evaluate(state, task, output, log, stop);
    show_speed(state, task, outcome);
    if (outcome.interrupted) return;
    if (options.has_documents()) compare_masks(task, state.model);

    step("Comparison with n-gram models");
    if (baseline.tokens.empty()) baseline = ngram_baseline(task, task.dataset.validation);
    compare_with_ngrams(task, models::load_model(output.path), baseline);
    say(sample_text(state.model, task, 100));
    say("The model is in " + output.path + ". ./learn 11 --model " + output.path +
        " generates text with it.");
}

}  // namespace llm::runs
