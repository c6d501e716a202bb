#include "chapters/07_rmsnorm_vs_layernorm/demo/half_precision.hpp"

#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/half_precision.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
namespace {

// The RMS of RMSNorm's output, without weights, for 64 normally distributed float16
// values with this standard deviation. The right result is 1.
double output_rms_in_half(Real deviation, bool upcast) {
    Generator generator(7);
    const HalfMatrix rows = to_half(randn({1, 64}, generator) * deviation);
    const HalfVector weight(std::array<std::size_t, 1>{64}, Half(1));
    const Real eps = Real(1e-6);
    const HalfMatrix normalized =
        upcast ? rms_norm_upcast(rows, weight, eps, CastBack::before_weight)
               : rms_norm_in_half(rows, weight, eps);
    return root_mean_square(to_float(normalized));
}

}  // namespace

void run_in_half_precision() {
    step("float16: the largest value is 65504, so 256 squared is infinite");
    show("256 squared, in float16", static_cast<Real>(Half(256.0f) * Half(256.0f)));
    std::vector<TableRow> rows;
    for (const Real deviation : {Real(0.0001), Real(0.01), Real(1), Real(60), Real(600)})
        rows.push_back({fixed(deviation, 4), fixed(output_rms_in_half(deviation, false), 4),
                        fixed(output_rms_in_half(deviation, true), 4)});
    show_table({"RMS of x", "float16 throughout", "upcast to float32"}, rows);
    say("If the RMS is above about 30, a square or the sum of squares overflows, and the "
        "output is 0. If it is below 0.01, eps makes the output smaller, in float32 as well.");

    Line in_half{"float16 throughout", {}, {}}, upcast{"upcast to float32", {}, {}};
    for (double exponent = -16; exponent <= 13; exponent += 0.5) {
        const Real deviation = static_cast<Real>(std::pow(2, exponent));
        for (Line* line : {&in_half, &upcast}) line->x.push_back(exponent);
        in_half.y.push_back(output_rms_in_half(deviation, false));
        upcast.y.push_back(output_rms_in_half(deviation, true));
    }
    plot("half", {LinePlot{"RMSNorm of float16 values",
                           "log2 of the RMS of the input",
                           "RMS of the output",
                           {in_half, upcast}}});

    step("float16: 2048 + 1 is 2048, so a sum of 4096 ones stays at 2048");
    Half sum(0);
    for (int i = 0; i < 4096; ++i) sum += Half(1);
    show("sum of 4096 ones", static_cast<Real>(sum));
}

void compare_casts(const Tensor3& hidden_states, Generator& generator) {
    step("Cast back to float16 before the weight (Llama) or after it (Gemma)?");
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const HalfMatrix rows = to_half(reshape(hidden_states, {batch_size * seq_len, width}));
    HalfVector weight(std::array{width}, Half(0));
    for (Half& element : weight) element = Half(generator.next_uniform());
    const Real eps = Real(1e-6);
    const Matrix before = to_float(rms_norm_upcast(rows, weight, eps, CastBack::before_weight));
    const Matrix after = to_float(rms_norm_upcast(rows, weight, eps, CastBack::after_weight));
    std::size_t different = 0;
    for (const Real difference : before - after) different += difference != 0;
    show("percent of elements that differ",
         std::round(100 * static_cast<double>(different) / static_cast<double>(before.size())));
    show("largest difference", largest_difference(before, after));

    step("bfloat16: almost the range of float32, fewer bits than float16");
    std::vector<TableRow> table;
    for (const Real value :
         {Real(1) / 3, Real(1.01), Real(257), Real(65536), Real(3e38), Real(1e-10)})
        table.push_back({brief(value), brief(static_cast<Real>(Half(value))),
                         brief(to_float(to_bfloat16(value)))});
    show_table({"float32", "float16", "bfloat16"}, table);
}

}  // namespace llm
