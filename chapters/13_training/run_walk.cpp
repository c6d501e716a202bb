#include <cmath>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/13_training/ablations/ngram.hpp"
#include "chapters/13_training/walks.hpp"
#include "common/system/interrupt.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"
#include "common/files/unicode.hpp"

namespace llm {
namespace {

LinePlot loss_curve(const Training& training, const Reports& reports) {
    return {"Loss",
            "step",
            "nats per token",
            {smooth("training", training.losses), reports.validation}};
}

void report(const Training& training, const Task& task, Reports& reports) {
    const double validation =
        validation_loss(training.model, task.corpus.validation, task.plan, 20);
    reports.validation.x.push_back(double(training.step));
    reports.validation.y.push_back(validation);
    show_progress("");
    show("step " + to_text(training.step), "loss " + fixed(double(training.losses.back()), 3) +
                                               ", held out " + fixed(validation, 3) + ": " +
                                               reports.sample(training.model));
    plot_now("loss", {loss_curve(training, reports)});
}

void show_step(const Training& training, const Plan& plan, const StepReport& last,
               double seconds_a_step) {
    const std::size_t left = plan.schedule.steps - training.step;
    show_progress(to_text(training.step) + "/" + to_text(plan.schedule.steps) + " " +
                  sparkline(training.losses, 7) + " loss " + fixed(last.loss, 2) + " rate " +
                  fixed(double(last.learning_rate), 4) + " gradient " +
                  fixed(last.gradient_norm, 2) + " " + tokens_per_second(plan, seconds_a_step) +
                  "/s " + minutes_and_seconds(double(left) * seconds_a_step) + " left");
}

void save(Training& training, const Task& task, const Keeping& keeping) {
    save_training(training, task.plan, task.corpus.training, keeping.run_file());
    export_model(training.model, keeping.folder,
                 keeping.bfloat16 ? NumberType::bf16 : NumberType::f32);
}

// On the whole held-out part.
double bits_per_character(const Model& model, const Task& task) {
    const std::vector<Id>& tokens = task.corpus.validation;
    const double loss = validation_loss(model, tokens, task.plan, tokens.size());
    const std::size_t count = characters(task.tokenizer.decode(tokens)).size();
    return loss / std::log(2.0) * double(tokens.size()) / double(count);
}

}  // namespace

void learn_text(Task& task, const std::string& text, std::size_t vocab_size) {
    task.tokenizer = learn_tokenizer(text, vocab_size);
    task.corpus = split_corpus(task.tokenizer.encode(text), task.plan.seq_len);
    task.config.vocab_size = task.tokenizer.pieces.size();
}

Line smooth(const std::string& label, const std::vector<Real>& losses) {
    Line line{label, {}, {}};
    for (std::size_t n = 20; n <= losses.size(); n += 1 + losses.size() / 400) {
        double sum = 0;
        for (std::size_t i = n - 20; i < n; ++i) sum += double(losses[i]);
        line.x.push_back(double(n));
        line.y.push_back(sum / 20);
    }
    return line;
}

void check_run(const Keeping& keeping) {
    if (keeping.resume && !is_file(keeping.run_file()))
        throw FileError(keeping.folder + " holds no run that could go on");
    if (keeping.resume || keeping.replace) return;
    if (is_file(keeping.run_file()))
        throw FileError(keeping.folder +
                        " holds a run: --resume goes on with it, and --folder names another "
                        "place");
    if (is_file(keeping.folder + "/config.json"))
        throw FileError(keeping.folder + " holds a model; --folder names another place");
}

Training begun(const Task& task, const Model& model, const Keeping& keeping) {
    Training training = begin_training(model, task.plan);
    if (keeping.resume)
        load_training(training, task.plan, task.corpus.training, keeping.run_file());
    make_folder(keeping.folder);
    save_tokenizer(task.tokenizer, keeping.folder + "/tokenizer.json");
    return training;
}

double train(Training& training, const Task& task, const Keeping& keeping, Reports& reports) {
    const std::size_t interval = std::max<std::size_t>(1, task.plan.schedule.steps / 6);
    const std::size_t first = training.step;
    double seconds = 0, start = seconds_so_far();
    const auto pause = [&] {
        report(training, task, reports);
        save(training, task, keeping);
    };
    catch_interrupts();
    run_training(training, task.plan, task.corpus.training, [&](const StepReport& last) {
        seconds += seconds_so_far() - start;
        show_step(training, task.plan, last, seconds / double(training.step - first));
        const bool stopped = interrupted();
        if (training.step % interval == 0 || stopped) pause();
        start = seconds_so_far();
        return stopped ? GoOn::stop : GoOn::yes;
    });
    // A run that had no step left reports, too: the figure needs a point.
    if (reports.validation.x.empty() || (training.step % interval != 0 && !interrupted()))
        pause();
    if (interrupted())
        say("Stopped and saved. The same command with --resume goes on from here.");
    plot("loss", {loss_curve(training, reports)});
    return seconds / double(std::max<std::size_t>(1, training.step - first));
}

void against_counting(const Task& task, const Model& model) {
    const std::string training_text = task.tokenizer.decode(task.corpus.training);
    const Tokenizer letters = learn_tokenizer(training_text, 0);
    const Corpus corpus{letters.encode(training_text),
                        letters.encode(task.tokenizer.decode(task.corpus.validation))};
    const std::vector<double> losses =
        ngram_losses(corpus, letters.pieces.size(), 6, {1, 4, 16, 64});
    const std::vector<std::string> names = {"nothing: all equally likely",
                                            "how often each character comes",
                                            "the one before (bigram)",
                                            "two before (trigram)",
                                            "three before",
                                            "four before",
                                            "five before"};
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < names.size(); ++i)
        rows.push_back({names[i], fixed(losses[i] / std::log(2.0), 3)});
    rows.push_back({"this model", fixed(bits_per_character(model, task), 3)});
    show_table({"what it knows", "bits per character"}, rows);
}

void set_steps(Schedule& schedule, std::size_t steps) {
    schedule.steps = steps;
    schedule.warmup_steps = std::min<std::size_t>(100, steps / 10);
}

std::string minutes_and_seconds(double seconds) {
    const auto whole = static_cast<std::size_t>(seconds);
    return to_text(whole / 60) + (whole % 60 < 10 ? ":0" : ":") + to_text(whole % 60);
}

std::size_t tokens_of_a_step(const Plan& plan) {
    return plan.accumulate * plan.batch_size * plan.seq_len;
}

std::string tokens_per_second(const Plan& plan, double seconds_a_step) {
    const double tokens = double(tokens_of_a_step(plan));
    return with_commas(static_cast<std::size_t>(tokens / seconds_a_step)) + " tokens";
}

}  // namespace llm
