#include "chapters/15_fast/demo/matmul.hpp"

#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/15_fast/matmul.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {

void show_roofline(Timing& timing) {
    step("The roofline of this machine");
    if (timing.enabled) timing.roofline = measure_roofline();
    const auto& [peak_one_core, peak, bandwidth] = timing.roofline;
    show_table({"limit", "measured by", "value"},
               {{"peak, one core", "BLAS product of two 1024 x 1024 matrices",
                 timing.cell(peak_one_core, 0) + " GFLOP/s"},
                {"peak, all cores", "the same", timing.cell(peak, 0) + " GFLOP/s"},
                {"memory bandwidth", "reading 134 MB", timing.cell(bandwidth, 1) + " GB/s"}});
    show("ridge point, FLOPs per byte", timing.cell(peak / bandwidth, 1));
}

void matmul_variants(const Timing& timing, Generator& generator) {
    step("One matrix product, five variants");
    const Matrix inputs = randn({32, 384}, generator);    // (N, in)
    const Matrix weight = randn({1536, 384}, generator);  // (out, in)
    show_shape("inputs", inputs);
    show_shape("weight", weight);
    const Matrix expected = matmul_blas(inputs, weight);  // (N, out)
    show("first_outputs", Vector(xt::view(expected, 0, xt::range(0, 8))));
    const std::vector<std::pair<std::string, Matmul>> variants = {
        {"loops over i, k, j", matmul_ikj},
        {"loops over i, j, k", matmul_ijk},
        {"xtensor expression", matmul_expression},
        {"SIMD", matmul_simd},
        {"BLAS", matmul_blas}};
    std::vector<TableRow> rows;
    bool equal = true;
    for (const auto& variant : variants) {
        const Matmul matmul = variant.second;
        equal = equal && largest_difference(matmul(inputs, weight), expected) < 1e-3;
        const double seconds =
            timing.seconds(matmul == matmul_blas ? 9 : 1, [&] { matmul(inputs, weight); });
        const double speed = 2e-9 * double(inputs.size() * weight.shape(0)) / seconds;
        rows.push_back({variant.first, timing.cell(1000 * seconds, 2), timing.cell(speed, 1),
                        timing.percent(speed, timing.roofline.peak)});
    }
    show_table({"variant", "ms", "GFLOP/s", "% of peak"}, rows);
    show("all within 1e-3 of BLAS", equal);
}

void forward_variants(const Timing& timing, const Model& model, const std::vector<Id>& ids) {
    step("The forward pass of a whole model, variant by variant");
    const IdMatrix input_ids = one_sequence(ids);  // (1, T)
    show_shape("input_ids", input_ids);
    const auto flops = static_cast<double>(prefill_flops(model.config, ids.size()));
    show("million FLOPs", fixed(flops / 1e6, 1));
    std::vector<TableRow> rows;
    double first = 0;
    const auto row = [&](const std::string& name, int runs, const auto& forward) {
        if (!timing.enabled) forward();
        const double seconds = timing.seconds(runs, forward);
        if (first == 0) first = seconds;
        rows.push_back({name, timing.cell(1000 * seconds, 1), timing.cell(first / seconds, 1),
                        timing.percent(flops / seconds / 1e9, timing.roofline.peak)});
    };
    row("loops over i, j, k", 1, [&] { forward_with(matmul_ijk, model, input_ids); });
    row("xtensor expressions", 1, [&] { forward_with(matmul_expression, model, input_ids); });
    row("SIMD", 1, [&] { forward_with(matmul_simd, model, input_ids); });
    row("BLAS: chapter 09", 3, [&] { model(input_ids); });

    Matrix logits;  // (T, V)
    for (const DType dtype : weight_dtypes) {
        const FastModel fast = make_fast_model(model, dtype);
        RunState state = make_run_state(fast, ids.size());
        row("fast model, " + std::string(to_text(dtype)), 5, [&] {
            state.seq_len = 0;
            compute_logits(fast, ids, state, LogitsToKeep::all);
        });
        if (dtype == DType::float32) logits = state.logits;
    }
    show_table({"variant", "ms", "speedup", "% of peak"}, rows);

    const Matrix expected =
        reshape(model(input_ids), {ids.size(), model.config.vocab_size});  // (T, V)
    show("fast model, float32: logits within 1e-3 of chapter 09's",
         largest_difference(logits, expected) < 1e-3);
}

}  // namespace llm
