#include "chapters/apps/train/text_run.hpp"

#include "chapters/11_generation/generation.hpp"
#include "chapters/apps/train/ngram_comparison.hpp"
#include "chapters/apps/train/training_folder.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm::runs {
namespace {

void show_sizes(const TrainingTask& task, const Model& model,
                const std::vector<std::string>& documents, const TrainingStrategy& strategy) {
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
    if (strategy.num_ranks() > 1) show("ranks", strategy.description());
    show("memory for parameters, exp_avg, exp_avg_sq and gradients",
         fixed(1e-6 * double(strategy.num_bytes(task.config, args)), 0) + " MB" +
             (strategy.num_ranks() > 1 ? " for each rank" : ""));
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

void show_speed(const TrainerState& state, const TrainingTask& task, double seconds_per_step) {
    if (seconds_per_step > 0)  // 0 if no step was left
        show("speed", tokens_per_second(task.args, seconds_per_step) + " per second, " +
                          minutes_and_seconds(seconds_per_step * double(state.global_step)) +
                          " for all steps");
    show("peak memory", fixed(peak_megabytes(), 0) + " MB");
}

// When the program ends. After the last step, an evaluation, the comparison with n-gram models
// and, of documents, that of masks follow.
std::optional<Deadline> deadline_after(std::optional<double> minutes, bool has_documents) {
    if (!minutes) return {};
    if (elapsed_seconds() > 0.9 * 60 * *minutes)
        say("The preparation took " + minutes_and_seconds(elapsed_seconds()) +
            ": --minutes is too short for this text and model.");
    return Deadline{60 * *minutes, 2 + *minutes + (has_documents ? 8 : 0)};
}

// Reads the text, opens the folder, and tokenizes. Returns the documents.
std::vector<std::string> open_and_read(TrainingTask& task, RunFolder& folder,
                                       const TrainingText& text) {
    require(text.has_documents() || (text.special_tokens.empty() && !text.individual_digits),
            "--special-tokens and --individual-digits are for documents: a folder, a list of "
            "files, or --document-separator");
    std::vector<std::string> documents = read_documents(text);
    if (folder.path.empty()) folder.path = default_folder("text", folder.resume);
    open_training_folder(folder, task);
    tokenize(task, documents, text);
    return documents;
}

void compare_and_sample(const TrainingTask& task, const RunFolder& folder,
                        const NgramBaseline& baseline, const Model& trained) {
    step("Comparison with n-gram models");
    compare_with_ngrams(task, models::load_model(folder.path), baseline);
    say(sample_text(trained, task, 100));
    say("The model is in " + folder.path + ". ./learn 11 --model " + folder.path +
        " generates text with it.");
}

}  // namespace

void train_on_text(TrainingTask task, RunFolder folder, const TrainingText& text,
                   std::optional<double> minutes, Generator& generator,
                   const std::shared_ptr<TrainingStrategy>& strategy) {
    std::vector<std::string> documents;
    if (strategy->is_main()) documents = open_and_read(task, folder, text);
    strategy->share(task);
    const Model model = make_model_for_training(task.config, generator);
    const bool has_documents = !task.eos_token_ids.empty();
    if (!strategy->is_main()) {
        TrainerState state = make_trainer_state(model, task.args);
        train_and_evaluate(state, task, folder, {}, deadline_after(minutes, has_documents),
                           strategy);
        return;
    }
    TrainerState state = start_or_resume(task, model, folder);
    write_generation_config(task, folder);

    if (has_documents) show_packed_documents(task);
    step("Text, tokens and model");
    show_sizes(task, state.model, documents, *strategy);
    if (folder.resume) explain_resumed_run(state, task, minutes.has_value());
    // Count before training, so that the deadline takes it into account.
    show_progress("counting n-grams ...");
    const NgramBaseline baseline = ngram_baseline(task, minutes);
    show_progress("");
    const std::optional<Deadline> deadline = deadline_after(minutes, has_documents);

    step("Training");
    const auto sample = [&](const Model& now) { return sample_text(now, task, 24); };
    const RunOutcome outcome =
        train_and_evaluate(state, task, folder, sample, deadline, strategy);
    show_speed(state, task, outcome.seconds_per_step);
    if (outcome.interrupted) return;
    if (has_documents) compare_masks(task, state.model);
    compare_and_sample(task, folder, baseline, state.model);
}

}  // namespace llm::runs
