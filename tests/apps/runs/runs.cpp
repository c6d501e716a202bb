#include <csignal>

#include "chapters/13_training/run_checkpoint.hpp"
#include "chapters/13_training/training_log.hpp"
#include "chapters/apps/train/training_folder.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "common/files/json_file.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"
#include "common/system/interrupt.hpp"
#include "tests/support/training.hpp"

using namespace llm;
using namespace llm::runs;

namespace {

// A run whose steps, reports and checkpoints take the given times of a clock that stands still
// otherwise.
struct TimedRun {
    double seconds = 0, step = 1, report = 0, checkpoint = 0;
    std::size_t global_step = 0, save_steps = 0;
    std::optional<std::size_t> stop_after = {};
    std::vector<std::size_t> steps = {}, reports = {}, checkpoints = {}, last_steps = {};

    Deadline deadline(double end, double num_reports_after = 1) {
        return {end, num_reports_after, [this] { return seconds; }};
    }
    void train(std::size_t num_steps, const std::optional<Deadline>& deadline = {}) {
        ResumableRun run({global_step, num_steps, 6, deadline});
        run.save_steps = save_steps;
        run.report = [&] { pass(report, reports); };
        run.write_checkpoint = [&] { pass(checkpoint, checkpoints); };
        run.train([&] {
            while (!run.is_over()) {
                if (global_step == stop_after) throw Interrupted();
                ++global_step;
                pass(step, steps);
                run.end_step();
                last_steps.push_back(run.last_step());
                run.report_and_save();
            }
        });
    }
    void pass(double time, std::vector<std::size_t>& list) {
        seconds += time;
        list.push_back(global_step);
    }
};

using Steps = std::vector<std::size_t>;

TEST_CASE("a run reports after each sixth of its steps and after the last one, and saves") {
    TimedRun run;
    run.train(20);
    CHECK(run.steps.size() == 20);
    CHECK(run.reports == Steps{3, 6, 9, 12, 15, 18, 20});
    CHECK(run.checkpoints == Steps{0, 3, 6, 9, 12, 15, 18, 20});
    TimedRun resumed;
    resumed.global_step = 7;
    resumed.train(20);
    CHECK(resumed.reports == Steps{9, 12, 15, 18, 20});
    CHECK(resumed.checkpoints == resumed.reports);
}

TEST_CASE("between reports, checkpoints are written at the given steps or about every minute") {
    TimedRun given;
    given.save_steps = 4;
    given.train(12);
    CHECK(given.checkpoints == Steps{0, 2, 4, 6, 8, 10, 12});
    TimedRun timed;
    timed.step = 25;
    timed.train(1, timed.deadline(12 * 25));
    CHECK(timed.reports == Steps{2, 4, 6, 8, 10, 12});
    timed = {.step = 7};
    timed.train(1, timed.deadline(60 * 7));
    CHECK(timed.checkpoints == Steps{0, 9, 10, 19, 20, 29, 30, 39, 40, 49, 50, 59, 60});
}

TEST_CASE("reports take a quarter of the time at most, checkpoints between them a twentieth") {
    TimedRun reports{.report = 30};
    reports.train(1, reports.deadline(400, 0));
    CHECK(reports.reports.size() ==
          4);  // after a sixth, then every 120 seconds, and at the end
    TimedRun saves{.checkpoint = 10};
    saves.train(1, saves.deadline(6000, 0));
    REQUIRE(saves.checkpoints.size() > 20);
    for (std::size_t i = 0; i + 1 < saves.checkpoints.size(); ++i) {
        const std::size_t steps = saves.checkpoints[i + 1] - saves.checkpoints[i];
        const auto& after = saves.reports;
        if (std::count(after.begin(), after.end(), saves.checkpoints[i + 1]) == 0)
            CHECK(steps == 201);
    }
}

TEST_CASE("with a deadline, there are no more reports than asked for, at any speed") {
    TimedRun run{.report = 7};  // all but the last reports are slow
    const Deadline deadline{200, 3, [&] {
                                if (run.reports.size() >= 4) run.report = 0;
                                return run.seconds;
                            }};
    run.train(1000, deadline);
    CHECK(run.reports.size() >= 4);
    CHECK(run.reports.size() <= 6);
    CHECK(run.reports.back() == run.global_step);
}

TEST_CASE("with a deadline, a run and what follows end in time, at any speed") {
    for (const double step : {0.5, 1.0, 7.0})
        for (const double report : {0.0, 1.0, 5.0}) {
            CAPTURE(step);
            CAPTURE(report);
            TimedRun run{.seconds = 20, .step = step, .report = report};
            run.train(1000, run.deadline(200, 3));
            const double end = run.seconds + 2 * report;
            CHECK(end >= 200);
            CHECK(end <= 200 + step);
            CHECK(run.last_steps.back() == run.global_step);
            CHECK(run.reports.size() >= 4);
            CHECK(run.reports.size() <= 6);
        }
}

TEST_CASE(
    "the estimated last step follows the speed, and is after the current one until the end") {
    TimedRun run;
    run.train(1000, run.deadline(100));
    CHECK(run.last_steps == Steps(100, 100));
    TimedRun slower;  // twice as slow after half of the time
    const Deadline deadline{100, 1, [&] {
                                if (slower.seconds >= 50) slower.step = 2;
                                return slower.seconds;
                            }};
    slower.train(1000, deadline);
    CHECK(slower.last_steps.front() == 100);
    CHECK(slower.global_step == 75);
    for (std::size_t i = 0; i + 1 < slower.last_steps.size(); ++i)
        CHECK(slower.last_steps[i] > i + 1);
}

TEST_CASE("a deadline that has passed leaves one step, with its report and checkpoint") {
    TimedRun run{.seconds = 10};
    run.train(1000, run.deadline(5));
    CHECK(run.reports == Steps{1});
    CHECK(run.checkpoints == Steps{0, 1});
}

TEST_CASE(
    "until its deadline, an interrupted run goes on to its end, a finished one beyond it") {
    TimedRun interrupted{.global_step = 10};
    interrupted.train(30, interrupted.deadline(100));
    CHECK(interrupted.global_step == 30);
    TimedRun shorter{.global_step = 10};
    shorter.train(30, shorter.deadline(7));
    CHECK(shorter.global_step == 17);
    TimedRun finished{.global_step = 30};
    finished.train(30, finished.deadline(50));
    CHECK(finished.global_step == 80);
}

TEST_CASE("a run that Ctrl-C ends saves the last complete step, once it has one") {
    for (const std::size_t num_steps : {0u, 5u}) {
        TimedRun run;
        run.stop_after = num_steps;
        CHECK_THROWS_AS(run.train(100), Interrupted);
        CHECK(run.global_step == num_steps);
        CHECK(run.checkpoints == (num_steps == 0 ? Steps{0} : Steps{0, 5}));
    }
}

// A training run of a tiny model, whose clock goes on by a second, later by three, each time it
// is read.
struct TrainedRun {
    Scratch scratch;
    TrainingTask task;
    RunFolder folder{(scratch.folder / "run").string()};
    double seconds = 0;
    std::vector<double> rates;  // of each step in the log
    std::vector<std::size_t> evaluations;

    void train(std::optional<double> time, std::size_t stop_at = 0) {
        folder.lock.reset();
        task = {};
        task.config = tiny_config(1);
        task.args = small_arguments(40);
        std::string text;
        for (const Id id : square_tokens(300)) text += to_text(id) + " ";
        tokenize_dataset(task, text, 0);
        open_training_folder(folder, task);
        Generator generator(77);
        TrainerState state =
            start_or_resume(task, make_model_for_training(task.config, generator), folder);
        std::optional<Deadline> deadline;
        if (time)
            deadline = {seconds + *time, 2,
                        [this] { return seconds += seconds < 600 ? 1 : 3; }};
        const auto sample = [&](const Model&) {
            if (state.global_step >= stop_at && stop_at > 0) std::raise(SIGINT);
            return std::string();
        };
        set_print_options({.quiet = true});
        train_and_evaluate(state, task, folder, sample, deadline);
        set_print_options({});
        read_log();
        folder.resume = true;
    }
    void read_log() {
        rates.clear();
        evaluations.clear();
        for (const std::string& line : complete_lines(folder.path + "/log.jsonl")) {
            const JsonFile record("log", line);
            if (record.has("validation_loss"))
                evaluations.push_back(record.size("step"));
            else
                rates.push_back(record.number("learning_rate"));
        }
    }
};

TEST_CASE("the learning rate of a run with a deadline decreases to its minimum") {
    TrainedRun run;
    run.train(1200);
    REQUIRE(run.rates.size() > 60);
    CHECK(run.rates.back() == doctest::Approx(0.001).epsilon(0.02));
    CHECK(*std::max_element(run.rates.begin(), run.rates.end()) > 0.0099);
    CHECK(checkpoint_max_steps(run.folder.checkpoint_file()) == run.rates.size());
    CHECK(run.evaluations.size() == 6);
    CHECK(run.evaluations.back() == run.rates.size());

    const std::size_t planned = run.rates.size();
    run.train(200);  // a finished run is continued
    REQUIRE(run.rates.size() > planned + 5);
    for (std::size_t i = planned; i < run.rates.size(); ++i)
        CHECK(run.rates[i] == doctest::Approx(0.001));
}

TEST_CASE(
    "a run with a deadline that was stopped goes on with the schedule of its checkpoint") {
    TrainedRun run;
    run.train(1200, 30);
    const std::size_t stopped = run.rates.size();
    const std::size_t planned = checkpoint_max_steps(run.folder.checkpoint_file());
    REQUIRE(stopped >= 30);
    REQUIRE(planned > stopped + 20);
    run.train(50);  // less time than is left of the schedule
    CHECK(run.rates.size() > stopped);
    CHECK(run.rates.size() < planned);
    CHECK(checkpoint_max_steps(run.folder.checkpoint_file()) == planned);
    run.train(std::nullopt);
    CHECK(run.rates.size() == planned);
    for (std::size_t i = stopped; i < planned; ++i) {
        const LRSchedule& schedule = run.task.args.lr_schedule;
        CHECK(run.rates[i] == doctest::Approx(double(learning_rate_at(schedule, i))));
    }
    CHECK(run.rates.back() == doctest::Approx(0.001).epsilon(0.02));
}

}  // namespace
