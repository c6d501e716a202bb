// Chapter 13: the steps of the program about the width of models and the compute of training.
#include <algorithm>

#include "chapters/13_training/ablations/mup.hpp"
#include "chapters/13_training/ablations/scaling_law.hpp"
#include "chapters/13_training/demo/demo.hpp"
#include "common/output/show.hpp"
#include "common/system/parallel.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

// Runs fn(i) for i = 0 to count - 1 on all cores, and shows how many are done.
template <class Function>
void run_all(std::size_t count, const Function& function) {
    const double start = elapsed_seconds();
    parallel_for(count, function, [&](std::size_t done) {
        const double seconds = (elapsed_seconds() - start) / double(done);
        show_progress("run " + to_text(done) + " of " + to_text(count) + ", about " +
                      minutes_and_seconds(seconds * double(count - done)) + " left");
    });
    show_progress("");
}

// A model of this width, with four heads and an MLP of three times the width.
Config config_of_width(const Config& task, std::size_t width, std::size_t seq_len) {
    Config config = task;
    config.hidden_size = width;
    config.intermediate_size = 3 * width;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.max_position_embeddings = seq_len;
    return validate_model(config);
}

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
    const double loss = evaluate(model, task.dataset.validation, args, 200);
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
    Line measured{"measured", {}, {}}, fitted{"fit of the first six", {}, {}};
    for (const auto& [compute, loss] : points) {
        measured.x.push_back(compute / 1e12);
        measured.y.push_back(loss - law.irreducible_loss);
        fitted.x.push_back(compute / 1e12);
        fitted.y.push_back(law(compute) - law.irreducible_loss);
    }
    LinePlot panel{
        "A scaling law", "compute, TFLOP", "loss - E, nats per character", {measured, fitted}};
    panel.log_x = panel.log_y = true;
    plot("scaling", {panel});
}

}  // namespace

void mup_demo(const TrainingTask& task) {
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

void scaling_law_demo(TrainingTask task, const std::string& text) {
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
