#include "chapters/04_rope/demo/scaling.hpp"

#include <cmath>
#include <numbers>

#include "chapters/04_rope/rope.hpp"
#include "chapters/04_rope/rope_scaling.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/half.hpp"

namespace llm {

Vector scaled_frequencies(const RopeScaling& scaling, std::size_t head_dim, Real rope_theta) {
    const Vector original = inverse_frequencies(head_dim, rope_theta);
    if (scaling.rope_type == "linear") return interpolate_positions(original, scaling.factor);
    if (scaling.rope_type == "ntk")
        return inverse_frequencies(head_dim, ntk_theta(rope_theta, scaling.factor, head_dim));
    if (scaling.rope_type == "llama3")
        return scale_like_llama3(original, Llama3Scaling{.factor = scaling.factor});
    return original;
}

namespace {

constexpr std::size_t head_dim = 128, num_pairs = head_dim / 2;

// One curve over the pairs of a head.
Line curve(const std::string& label, const Vector& by_pair) {  // (D/2)
    return {label, numbers_of(Vector(xt::arange<Real>(num_pairs))), numbers_of(by_pair)};
}

}  // namespace

void show_wavelengths() {
    step("Wavelength of a pair: positions per full rotation, head_dim 128");
    std::vector<Line> lines;
    for (const Real theta : {10000, 500000, 1000000}) {
        Vector wavelengths = inverse_frequencies(head_dim, theta);  // (D/2)
        for (Real& element : wavelengths) element = 2 * std::numbers::pi_v<Real> / element;
        show("theta", theta);
        show("  pair 0, the highest frequency", wavelengths(0));
        show("  pair 32", wavelengths(32));
        show("  pair 63, the lowest frequency", wavelengths(63));
        lines.push_back(
            curve("theta " + to_text(static_cast<std::size_t>(theta)), wavelengths));
    }
    lines.push_back({"context of 8192", {0, 63}, {8192, 8192}});
    say("A pair whose wavelength exceeds the context has a different angle at each position. A "
        "pair with a short wavelength resolves small distances, but its angles repeat.");
    plot("wavelengths", {LinePlot{"Wavelength of each pair, head_dim 128", "pair",
                                  "positions per rotation", lines, true}});
}

void show_rope_scaling(Real factor) {
    step("RoPE scaling: trained on 8192 positions, used on " + brief(factor) +
         " times as many");
    const Real theta = 500000;
    const Real larger_theta = ntk_theta(theta, factor, head_dim);
    const Vector original = inverse_frequencies(head_dim, theta);  // (D/2)
    const Vector interpolated = original / interpolate_positions(original, factor);
    const Vector ntk = original / inverse_frequencies(head_dim, larger_theta);
    const Vector llama3 =
        original / scale_like_llama3(original, Llama3Scaling{.factor = factor});
    show("ntk_theta", larger_theta);

    say("Original frequency divided by scaled frequency. Rows: pairs 0, 16, 32, 48 and 63. "
        "Columns: position interpolation, NTK-aware scaling, Llama 3.1.");
    Matrix ratios = xt::zeros<Real>({5, 3});
    for (std::size_t row = 0; row < 5; ++row) {
        const std::size_t pair = std::min(16 * row, num_pairs - 1);
        ratios(row, 0) = interpolated(pair);
        ratios(row, 1) = ntk(pair);
        ratios(row, 2) = llama3(pair);
    }
    show("frequency_ratios", ratios);
    plot("scaling", {LinePlot{"RoPE scaling for a context " + brief(factor) + " times as long",
                              "pair",
                              "original / scaled frequency",
                              {curve("position interpolation", interpolated),
                               curve("NTK-aware", ntk), curve("Llama 3.1", llama3)}}});
}

void show_half_precision_angles() {
    step("Wrong: angles in float16");
    const Vector frequencies = inverse_frequencies(8, 10000);
    const Real position = 4001;
    Matrix cosines = xt::zeros<Real>({2, 4});
    for (std::size_t i = 0; i < 4; ++i) {
        cosines(0, i) = std::cos(position * frequencies(i));
        const Half angle = Half(position) * Half(frequencies(i));
        cosines(1, i) = std::cos(static_cast<Real>(angle));
    }
    show("cos_at_4001_float32_and_float16", cosines);
    show("4001 in float16", static_cast<Real>(Half(position)));
    show("4002 in float16", static_cast<Real>(Half(4002)));
    say("float16 represents no odd integer above 2048, bfloat16 none above 256. The tables are "
        "therefore computed in float32, even for models with 16-bit weights.");
}

}  // namespace llm
