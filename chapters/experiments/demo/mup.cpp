// Learning rates for three widths, with and without muP.
#include "chapters/experiments/mup.hpp"

#include <algorithm>

#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace runs;

namespace {

const std::vector<std::size_t> widths = {32, 64, 128};
const std::vector<Real> rates = {Real(0.001), Real(0.002), Real(0.004), Real(0.008),
                                 Real(0.016), Real(0.032), Real(0.064)};
constexpr std::size_t num_seeds = 2;

MupRun mup_run(const TrainingTask& task, Parametrization parametrization, std::size_t width,
               Real rate, std::uint32_t seed) {
    MupRun run{config_of_width(task.config, width, 32),
               config_of_width(task.config, widths[0], 32), parametrization, task.args};
    run.args.batch_size = 16;
    run.args.seq_len = 32;
    run.args.lr_schedule = {rate, rate / 10, 30, 300};
    run.args.seed = seed;
    return run;
}

std::string name_of(Parametrization parametrization) {
    return parametrization == Parametrization::mup ? "muP" : "standard";
}

// The rows of one parametrization: the mean loss of each width (row) at each rate.
void compare_rates(const TrainingTask& task, Parametrization parametrization,
                   std::vector<TableRow>& rows, std::vector<Panel>& panels) {
    std::vector<double> losses(widths.size() * rates.size() * num_seeds);
    run_all(losses.size(), [&](std::size_t i) {
        // The widest models come first, so that no core waits for one at the end.
        const std::size_t width = widths[widths.size() - 1 - i / num_seeds / rates.size()];
        losses[i] =
            run_mup(mup_run(task, parametrization, width, rates[i / num_seeds % rates.size()],
                            std::uint32_t(1 + i % num_seeds)),
                    task.dataset.train);
    });
    LinePlot panel{
        name_of(parametrization), "learning rate, in thousandths", "training loss", {}};
    panel.log_x = true;
    panel.low = 2.1;  // both parametrizations have the same axis
    panel.high = 2.6;
    for (std::size_t w = 0; w < widths.size(); ++w) {
        Line line{"width " + to_text(widths[w]), {}, {}};
        TableRow row = {name_of(parametrization) + ", " + to_text(widths[w])};
        for (std::size_t r = 0; r < rates.size(); ++r) {
            double mean = 0;
            for (std::size_t s = 0; s < num_seeds; ++s)
                mean += losses[((widths.size() - 1 - w) * rates.size() + r) * num_seeds + s] /
                        double(num_seeds);
            row.push_back(fixed(mean, 3));
            line.x.push_back(1000 * double(rates[r]));
            line.y.push_back(std::min(mean, 2.6));  // what diverges is drawn at the top
        }
        rows.push_back(row);
        panel.lines.push_back(line);
    }
    panels.push_back(panel);
}

// The means of four seeds.
CoordinateCheck mean_coordinate_check(const TrainingTask& task, Parametrization parametrization,
                                      std::size_t width, const Batch& batch) {
    CoordinateCheck mean{0, 0};
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
        const CoordinateCheck check = coordinate_check(
            mup_run(task, parametrization, width, Real(0.004), seed), batch, 5);
        mean.hidden_states += check.hidden_states / 4;
        mean.logits += check.logits / 4;
    }
    return mean;
}

void check_coordinates(const TrainingTask& task) {
    step("Coordinate check: changes after five steps at a learning rate of 0.004");
    Generator generator(task.args.seed);
    const Batch batch = random_batch(task.dataset.train, 16, 32, generator);
    std::vector<TableRow> rows;
    for (const auto parametrization : {Parametrization::standard, Parametrization::mup})
        for (const std::size_t width : widths) {
            const CoordinateCheck check =
                mean_coordinate_check(task, parametrization, width, batch);
            rows.push_back({name_of(parametrization) + ", " + to_text(width),
                            fixed(check.hidden_states, 3), fixed(check.logits, 3)});
        }
    show_table({"width", "hidden states", "logits"}, rows);
}

}  // namespace

void compare_widths(const TrainingTask& task) {
    check_coordinates(task);
    step("Learning rates for three widths: training loss, mean of two seeds");
    std::vector<TableRow> rows;
    std::vector<Panel> panels;
    for (const auto parametrization : {Parametrization::standard, Parametrization::mup})
        compare_rates(task, parametrization, rows, panels);
    TableRow headings = {"width"};
    for (const Real rate : rates) headings.push_back(brief(double(rate)));
    show_table(headings, rows);
    plot("mup", panels);
}

}  // namespace llm
