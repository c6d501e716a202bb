#include "chapters/15_fast/demo/bandwidth.hpp"

#include "chapters/15_fast/weight_matrix.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {

void decode_matvec(const Timing& timing, const Matrix& weight, Generator& generator) {
    step("Matrix-vector product with a large weight matrix");
    const Matrix input = uniform({1, 384}, -1, 1, generator);  // (1, in)
    Matrix output = xt::zeros<Real>({1, 32000});               // (1, out)
    RooflineBenchmark benchmark;
    MatmulWorkspace workspace;
    std::vector<TableRow> rows;
    double first = 0;
    for (const DType dtype : weight_dtypes) {
        const WeightMatrix quantized = quantize(weight, dtype);
        double seconds = infinity;
        for (int run = 0; run < 5; ++run) {
            benchmark.read_memory();  // evicts the weights from the caches
            seconds = std::min(seconds, timing.seconds(1, [&] {
                matmul_by_rows(view_of(input), quantized, view_of(output), workspace);
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
    const WeightMatrix quantized = quantize(weight, DType::float32);
    MatmulWorkspace workspace;
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
                                         matmul_by_rows(view_of(inputs).rows(t, 1), quantized,
                                                        view_of(outputs).rows(t, 1), workspace);
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
