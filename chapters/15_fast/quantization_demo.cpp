// The demos of chapter 15 about quantized weights.
#include "chapters/15_fast/demo.hpp"
#include "chapters/15_fast/inference.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

// The largest quantization error of weights between -0.2 and 0.2, in 80 bins.
void plot_errors(Generator& generator) {
    const Matrix weights = uniform({256, group_size}, Real(-0.2), Real(0.2), generator);
    std::vector<Line> lines;
    for (const DType dtype : {DType::int8, DType::bfloat16}) {
        const Matrix error = dequantize(quantize(weights, dtype)) - weights;
        Line line{std::string(to_text(dtype)), {}, std::vector<double>(80)};
        for (std::size_t bin = 0; bin < 80; ++bin) line.x.push_back((double(bin) - 39.5) / 200);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const auto bin = static_cast<std::size_t>((weights.data()[i] + Real(0.2)) * 200);
            double& largest = line.y[std::min(bin, std::size_t{79})];
            largest = std::max(largest, 1000 * std::abs(double(error.data()[i])));
        }
        lines.push_back(line);
    }
    plot("errors",
         {LinePlot{"Quantization error", "weight", "maximum absolute error × 1000", lines}});
}

// The cross-entropy of the next tokens, in nats per token (chapter 12).
double mean_loss(ConstMatrixView logits, const std::vector<Id>& ids) {
    double loss = 0;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        std::vector<Real> row(logits[t].begin(), logits[t].end());
        const Real target = row[static_cast<std::size_t>(ids[t + 1])], maximum = amax(row);
        loss += std::log(exp_and_sum(row, 1, maximum)) - (target - maximum);
    }
    return loss / double(ids.size() - 1);
}

std::ptrdiff_t argmax(std::span<const Real> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
}

}  // namespace

void eight_weights(Generator& generator) {
    step("Eight weights in bfloat16 and int8");
    const Matrix row = randn({1, group_size}, generator) * Real(0.05);  // (1, 64)
    const QuantizedMatrix bfloat16 = quantize(row, DType::bfloat16);
    const QuantizedMatrix int8 = quantize(row, DType::int8);
    const auto first_eight = [](const Matrix& matrix) {
        return Vector(xt::view(matrix, 0, xt::range(0, 8)));
    };
    show("weights", first_eight(row));
    show("as_bfloat16", first_eight(dequantize(bfloat16)));
    Vector int8_values = xt::zeros<Real>({8});
    std::copy_n(int8.int8_values.begin(), 8, int8_values.begin());
    show("int8_values", int8_values);
    show("scale of this group", fixed(int8.scales[0], 6));
    show("as_int8", first_eight(dequantize(int8)));
    plot_errors(generator);
}

void quantized_model(const Model& model, const std::vector<Id>& ids) {
    step("A whole model, quantized");
    std::vector<TableRow> rows;
    Matrix expected;  // (T, V)
    for (const DType dtype : weight_dtypes) {
        const FastModel fast = make_fast_model(model, dtype);
        RunState state = make_run_state(fast, ids.size());
        const ConstMatrixView logits = compute_logits(fast, ids, state, LogitsToKeep::all);
        if (expected.size() == 0) expected = state.logits;
        const Matrix error = state.logits - expected;
        std::size_t num_same = 0;
        for (std::size_t t = 0; t < ids.size(); ++t)
            num_same += argmax(logits[t]) == argmax(view_of(std::as_const(expected))[t]);
        rows.push_back({std::string(to_text(dtype)),
                        fixed(double(fast.weight_bytes()) / 1e6, 2),
                        fixed(root_mean_square(error), 4),
                        fixed(100.0 * double(num_same) / double(ids.size()), 1),
                        fixed(mean_loss(logits, ids), 4)});
    }
    show_table({"dtype", "MB", "RMS error of logits", "% same argmax", "loss"}, rows);
    show("RMS of the logits", fixed(root_mean_square(expected), 4));
}

void decode_matvec(const Timing& timing, const Matrix& weight, Generator& generator) {
    step("Matrix-vector product with a large weight matrix");
    const Vector input = uniform({384}, -1, 1, generator);  // (in)
    Vector output = xt::zeros<Real>({32000});               // (out)
    RooflineBenchmark benchmark;
    const auto span_of = [](auto& vector) { return std::span(vector.data(), vector.size()); };
    std::vector<TableRow> rows;
    double first = 0;
    for (const DType dtype : weight_dtypes) {
        const QuantizedMatrix quantized = quantize(weight, dtype);
        double seconds = infinity;
        for (int run = 0; run < 5; ++run) {
            benchmark.read_memory();  // evicts the weights from the caches
            seconds = std::min(seconds, timing.seconds(1, [&] {
                matvec(quantized, span_of(input), span_of(output));
            }));
        }
        if (first == 0) first = seconds;
        const double bytes = double(quantized.nbytes()), speed = bytes / seconds / 1e9;
        rows.push_back({std::string(to_text(dtype)), fixed(bytes / 1e6, 1),
                        timing.cell(1000 * seconds, 2), timing.cell(speed, 1),
                        timing.percent(speed, timing.roofline.bandwidth),
                        timing.cell(first / seconds, 1)});
    }
    show_table({"dtype", "MB", "ms", "GB/s", "% of bandwidth", "speedup"}, rows);
}

void batched_matmul(const Timing& timing, const Matrix& weight, Generator& generator) {
    if (!timing.enabled) return;
    step("Matrix product of N tokens with the same weight matrix");
    const QuantizedMatrix quantized = quantize(weight, DType::float32);
    const double peak = timing.roofline.peak;
    const double one_token = timing.roofline.bandwidth / 2;  // half a FLOP per byte
    const Line roof{"roofline", {1, peak / one_token, 128}, {one_token, peak, peak}};
    Line separate{"token by token (matvec)", {}, {}},
        together{"all tokens at once (BLAS)", {}, {}};
    std::vector<TableRow> rows;
    for (std::size_t count = 1; count <= 128; count *= 2) {
        Matrix inputs = uniform({count, 384}, -1, 1, generator);        // (N, in)
        Matrix outputs = xt::zeros<Real>({count, std::size_t{32000}});  // (N, out)
        const double gigaflops = 2e-9 * double(count) * double(weight.size());
        const double memory_bound = one_token * double(count);
        together.y.push_back(gigaflops / fastest_seconds(2, [&] {
                                 matmul_transposed(view_of(inputs), view_of(weight),
                                                   view_of(outputs));
                             }));
        if (count <= 4)
            separate.y.push_back(gigaflops / fastest_seconds(2, [&] {
                                     for (std::size_t t = 0; t < count; ++t)
                                         matvec(quantized, view_of(inputs)[t],
                                                view_of(outputs)[t]);
                                 }));
        for (Line* line : {&separate, &together}) line->x.push_back(double(count));
        rows.push_back({to_text(count), count <= 4 ? fixed(separate.y.back(), 1) : "",
                        fixed(together.y.back(), 1), fixed(std::min(peak, memory_bound), 1),
                        memory_bound < peak ? "memory" : "compute"});
    }
    show_table({"tokens", "matvec", "BLAS", "roofline limit", "bound"}, rows);
    plot("roofline", {LinePlot{"N tokens times a weight of shape (32000, 384)",
                               "tokens",
                               "GFLOP/s",
                               {roof, together, separate},
                               true,
                               true}});
}

}  // namespace llm
