// A scaling law from six models, and its prediction for a seventh.
#include "chapters/experiments/scaling_law.hpp"

#include <algorithm>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/experiments/mup.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace runs;

namespace {

// The runs of the scaling law. The widest one is predicted by the others.
const std::vector<std::size_t> law_widths = {16, 24, 32, 48, 64, 80, 96};
constexpr std::size_t law_seq_len = 64, law_batch_size = 8, tokens_per_parameter = 20;

// Trains with 20 tokens per parameter (without embeddings), at a learning rate that muP
// transfers from a width of 32. Returns the FLOPs and the loss on held-out text.
ScalingPoint scaling_run(const TrainingTask& task, std::size_t width) {
    MupRun run{config_of_width(task.config, width, law_seq_len),
               config_of_width(task.config, 32, law_seq_len), Parametrization::mup, task.args};
    const ParameterCount count = count_parameters(run.config);
    const std::size_t step_tokens = law_batch_size * law_seq_len;
    const std::size_t num_tokens =
        tokens_per_parameter * std::size_t(count.attention + count.mlp + count.norms);
    const std::size_t num_steps = std::max<std::size_t>(1, num_tokens / step_tokens);
    run.args.batch_size = law_batch_size;
    run.args.seq_len = law_seq_len;
    run.args.lr_schedule = {Real(0.008), Real(0.0008), num_steps / 10, num_steps};
    const Model model = train_mup(run, task.dataset.train);
    TrainingArguments args = run.args;
    const double loss = evaluate_loss(model, task.dataset.validation, args, 200);
    return {training_flops(run.config, law_seq_len, num_steps * step_tokens), loss};
}

TableRow row_of(std::size_t width, const TrainingTask& task, const ScalingPoint& point,
                const ScalingLaw& law) {
    const ParameterCount count =
        count_parameters(config_of_width(task.config, width, law_seq_len));
    const std::uint64_t parameters = count.attention + count.mlp + count.norms;
    return {to_text(width),
            with_commas(parameters),
            with_commas(tokens_per_parameter * parameters),
            fixed(point.compute / 1e12, 3),
            fixed(point.loss, 3),
            fixed(law(point.compute), 3)};
}

void plot_law(const std::vector<ScalingPoint>& points, const ScalingLaw& law) {
    Line measured{"measured", {}, {}, LineStyle::points},
        predicted{"measured, not fitted", {}, {}, LineStyle::points},
        fitted{"fit of the first six", {}, {}};
    for (const auto& [compute, loss] : points) {
        Line& line = measured.x.size() < points.size() - 1 ? measured : predicted;
        line.x.push_back(compute / 1e12);
        line.y.push_back(loss - law.irreducible_loss);
        fitted.x.push_back(compute / 1e12);
        fitted.y.push_back(law(compute) - law.irreducible_loss);
    }
    LinePlot panel{"A scaling law",
                   "compute, TFLOP",
                   "loss - E, nats per character",
                   {fitted, measured, predicted}};
    panel.log_x = panel.log_y = true;
    plot("scaling", {panel});
}

}  // namespace

void extrapolate_scaling_law(TrainingTask task, const std::string& text) {
    tokenize_dataset(task, text, 0);  // characters
    step("A scaling law: six models, and the prediction for a seventh");
    std::vector<ScalingPoint> points(law_widths.size() - 1);
    run_all(points.size(), [&](std::size_t i) {
        const std::size_t n = points.size() - 1 - i;  // the longest run first
        points[n] = scaling_run(task, law_widths[n]);
    });
    const ScalingLaw law = fit_scaling_law(points);
    show("E, the irreducible loss", fixed(law.irreducible_loss, 3));
    show("exponent", fixed(law.exponent, 3));
    show("error of the fit", fixed(100 * fit_error(law, points), 2) + " %");
    const Config last = config_of_width(task.config, law_widths.back(), law_seq_len);
    const ParameterCount count = count_parameters(last);
    const double compute = training_flops(
        last, law_seq_len,
        tokens_per_parameter * std::size_t(count.attention + count.mlp + count.norms));
    show("predicted loss of width " + to_text(law_widths.back()), fixed(law(compute), 3));
    run_all(1, [&](std::size_t) { points.push_back(scaling_run(task, law_widths.back())); });
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < points.size(); ++i)
        rows.push_back(row_of(law_widths[i], task, points[i], law));
    show_table({"width", "parameters", "tokens", "TFLOP", "loss", "fit"}, rows);
    plot_law(points, law);
}

}  // namespace llm
