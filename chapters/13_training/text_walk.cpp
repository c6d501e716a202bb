#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/13_training/walks.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"
#include "common/files/unicode.hpp"

namespace llm {
namespace {

// How many steps fit into so many minutes? Three are taken with a copy.
std::size_t steps_in(double minutes, const Task& task, const Model& model) {
    Plan plan = task.plan;
    plan.schedule.steps = 3;
    plan.schedule.warmup_steps = 0;
    Training training = begin_training(model, plan);
    std::vector<Model> gradients(plan.accumulate, zeros_like(model));
    const double seconds =
        fastest_seconds(3, [&] { take_step(training, plan, task.corpus.training, gradients); });
    return std::max<std::size_t>(1, static_cast<std::size_t>(60 * minutes / seconds));
}

void show_sizes(const Task& task, const Model& model, const std::string& text) {
    const std::size_t num_tokens = task.corpus.training.size() + task.corpus.validation.size();
    const std::size_t num_parameters = count_parameters(model).total();
    const Plan& plan = task.plan;
    show("tokens",
         with_commas(num_tokens) + ", held out: " + with_commas(task.corpus.validation.size()));
    show("vocabulary", with_commas(task.config.vocab_size));
    show("characters in a token",
         fixed(double(characters(text).size()) / double(num_tokens), 2));
    show("parameters", with_commas(num_parameters));
    show("memory for weights, both means and gradients",
         fixed(4e-6 * double(num_parameters * (3 + plan.accumulate)), 0) + " MB");
    show("a step", to_text(plan.accumulate) + " batches of " + to_text(plan.batch_size) +
                       " x " + to_text(plan.seq_len) + " tokens");
    show("the text once",
         fixed(double(num_tokens) / double(tokens_of_a_step(plan)), 0) + " steps");
}

// From the first token of the held-out part on.
std::string continuation(const Model& model, const Task& task, std::size_t count) {
    Generator generator(task.plan.seed);
    Writing writing;
    writing.sampling.temperature = Real(0.8);
    writing.max_new_tokens = count;
    const std::vector<Id> prompt = {task.corpus.validation[0]};
    return escaped(task.tokenizer.decode(generate(model, prompt, writing, generator)));
}

}  // namespace

void text_walk(Task task, Keeping keeping, const std::string& file, std::size_t vocab_size,
               double minutes, Generator& generator) {
    const std::string text = read_text(file);
    if (keeping.folder.empty()) keeping.folder = model_folder("text");
    check_run(keeping);
    learn_text(task, text, vocab_size);
    const Model model = fresh_model(task.config, generator);
    if (minutes > 0)
        set_steps(task.plan.schedule, keeping.resume ? planned_steps(keeping.run_file())
                                                     : steps_in(minutes, task, model));
    Training training = begun(task, model, keeping);

    step("The text and its tokens");
    show_sizes(task, model, text);
    if (minutes > 0)
        show("steps in this time",
             to_text(task.plan.schedule.steps) + " (--steps repeats just this run)");

    step("The run");
    Reports reports;
    reports.sample = [&](const Model& now) { return "\n    " + continuation(now, task, 24); };
    const double seconds = train(training, task, keeping, reports);
    if (seconds > 0)  // it is 0 if the run had no step left
        show("speed", tokens_per_second(task.plan, seconds) + " per second, " +
                          minutes_and_seconds(seconds * double(training.step)) + " in all");
    show("memory at most", fixed(peak_megabytes(), 0) + " MB");

    step("What it has learned");
    against_counting(task, load_model(keeping.folder));
    say(continuation(training.model, task, 100));
    say("The model is in " + keeping.folder + ". It writes with ./learn 10 --model " +
        keeping.folder);
}

}  // namespace llm
