// Chapter 07 — What keeps the numbers from growing? The walk: both norms on four numbers, what
// each of them forgets, the wrong ones, and what 16 bits do to them.
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

#include <cmath>

#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

using namespace llm;

void by_hand() {
    step("Four numbers: the mean is 4, the root mean square is 5");
    const Matrix x{{-1, 5, 5, 7}};
    show("x", x);
    const Matrix centred = x - Real(4);
    show("centred", centred);
    show("standard deviation", root_mean_square(centred));
    show("root mean square", root_mean_square(x));
    say("3, 4 and 5: the squares of mean and deviation add up to the mean square, always.");

    step("LayerNorm centres, then divides by 3. RMSNorm divides by 5");
    show("layer_norm_by_hand", layer_normalize(x, 0));
    show("rms_norm_by_hand", rms_normalize(x, 0));

    step("Then each number is stretched by a weight, and by LayerNorm shifted");
    const Vector weight{1, 2, Real(0.5), 1}, bias{0, 0, 0, 10};
    show("weight", weight);
    show("bias", bias);
    show("layer_norm_weighted", LayerNorm{weight, bias, 0}(x));
    show("rms_norm_weighted", RMSNorm{weight, 0}(x));
    show("rms_norm_shifted", RMSNorm{weight, 0, bias}(x));
}

Line row_as_line(const std::string& label, const Matrix& rows, std::size_t row) {
    Line line{label, {}, {}};
    for (std::size_t c = 0; c < rows.shape(1); ++c) {
        line.x.push_back(static_cast<double>(c));
        line.y.push_back(rows(row, c));
    }
    return line;
}

LinePlot three_lines(const std::string& title, const Matrix& rows) {
    return {title,
            "number",
            "value",
            {row_as_line("x", rows, 0), row_as_line("3 x", rows, 1),
             row_as_line("x + 10", rows, 2)}};
}

void what_each_forgets() {
    step("What each forgets: x, 3 x and x + 10");
    const Matrix inputs{{-1, 5, 5, 7}, {-3, 15, 15, 21}, {9, 15, 15, 17}};
    const Matrix after_layer_norm = layer_normalize(inputs, 0);
    const Matrix after_rms_norm = rms_normalize(inputs, 0);
    show("inputs", inputs);
    show("after_layer_norm", after_layer_norm);
    show("after_rms_norm", after_rms_norm);
    say("LayerNorm gives three times the same. RMSNorm forgets the factor and keeps the "
        "shift.");
    plot("forgets", {three_lines("Before", inputs), three_lines("LayerNorm", after_layer_norm),
                     three_lines("RMSNorm", after_rms_norm)});

    step("If the mean is 0, they agree");
    const Matrix centred{{-5, 1, 1, 3}};
    show("layer_norm_centred", layer_normalize(centred, 0));
    show("rms_norm_centred", rms_normalize(centred, 0));
}

void sample_input(const Tensor3& hidden_states, Real eps) {
    step("The sample input");
    const std::size_t width = hidden_states.shape(2);
    const Tensor3 layer_normed = make_layer_norm(width, eps)(hidden_states);
    const Tensor3 rms_normed = make_rms_norm(width, eps)(hidden_states);
    show("hidden_states", hidden_states);
    show("layer_norm_output", layer_normed);
    show("rms_norm_output", rms_normed);
    show("largest difference", largest_difference(layer_normed, rms_normed));
    say("The means of random tokens are close to 0, so the two norms are close.");

    step("The same input, 2 added to every number");
    const Tensor3 shifted = hidden_states + Real(2);
    const Tensor3 layer_shifted = make_layer_norm(width, eps)(shifted);
    const Tensor3 rms_shifted = make_rms_norm(width, eps)(shifted);
    show("LayerNorm, largest change", largest_difference(layer_shifted, layer_normed));
    show("RMSNorm, largest change", largest_difference(rms_shifted, rms_normed));
}

// The famous wrong ones, on one row.
Real rms_with_eps_outside(Real size, Real eps) { return size / (size + eps); }
Real rms_with_eps_inside(Real size, Real eps) { return size / std::sqrt(size * size + eps); }

void epsilon() {
    step("Epsilon, inside the root or outside: the size of the output");
    std::vector<TableRow> rows;
    for (const Real size :
         {Real(1), Real(1e-1), Real(1e-2), Real(1e-3), Real(1e-4), Real(1e-5)})
        rows.push_back({fixed(size, 5), fixed(rms_with_eps_inside(size, Real(1e-5)), 4),
                        fixed(rms_with_eps_inside(size, Real(1e-6)), 4),
                        fixed(rms_with_eps_outside(size, Real(1e-5)), 4),
                        fixed(rms_with_eps_outside(size, Real(1e-6)), 4)});
    show_table({"size of x", "inside, 1e-5", "inside, 1e-6", "outside, 1e-5", "outside, 1e-6"},
               rows);

    Line inside_5{"inside, 1e-5", {}, {}}, inside_6{"inside, 1e-6", {}, {}};
    Line outside_5{"outside, 1e-5", {}, {}};
    for (double exponent = -7; exponent <= 0.01; exponent += 0.1) {
        const Real size = static_cast<Real>(std::pow(10, exponent));
        for (Line* line : {&inside_5, &inside_6, &outside_5}) line->x.push_back(exponent);
        inside_5.y.push_back(rms_with_eps_inside(size, Real(1e-5)));
        inside_6.y.push_back(rms_with_eps_inside(size, Real(1e-6)));
        outside_5.y.push_back(rms_with_eps_outside(size, Real(1e-5)));
    }
    plot("epsilon", {LinePlot{"What eps does to small inputs",
                              "size of the input, power of ten",
                              "size of the output",
                              {outside_5, inside_6, inside_5}}});
}

void wrong_ones(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const RMSNorm norm = make_rms_norm(width, eps);

    step("Wrong: the sum of squares instead of their mean");
    const Real root = std::sqrt(static_cast<Real>(width));
    show("size of a number, right", root_mean_square(norm(hidden_states)));
    show("size of a number, wrong", root_mean_square(norm(hidden_states) / root));
    say("Too small by the root of the width. The next layer gets almost nothing.");

    step("Wrong: a mean over the tokens");
    // Number 0 of every token of sequence 0, as if it were one token.
    const auto over_tokens = [&, length = seq_len](const Tensor3& states) {
        Matrix column = xt::zeros<Real>({std::size_t{1}, length});
        for (std::size_t t = 0; t < length; ++t) column(0, t) = states(0, t, 0);
        return rms_normalize(column, eps);
    };
    Tensor3 changed = hidden_states;
    changed(0, seq_len - 1, 0) = Real(5);
    show("first number of token 0", over_tokens(hidden_states)(0, 0));
    show("the same, after a change of the last token", over_tokens(changed)(0, 0));
    show("right: before", norm(hidden_states)(0, 0, 0));
    show("right: after", norm(changed)(0, 0, 0));
    say("The past sees the future, past every mask. (A sequence of one token has no future.)");
}

void partial(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix tokens = reshape(hidden_states, {batch_size * seq_len, width});
    const Matrix all = rms_normalize(tokens, eps);

    step("Partial RMSNorm: the first numbers stand for all");
    std::vector<TableRow> rows;
    for (const double share : {1.0, 0.5, 0.25, 0.0625}) {
        if (share * static_cast<double>(width) < 1) continue;
        const Matrix normalized = partial_rms_normalize(tokens, share, eps);
        Real largest = 0;  // by how much the size of a token is missed
        for (std::size_t t = 0; t < tokens.shape(0); ++t)
            largest = std::max(largest, std::abs(normalized(t, 0) / all(t, 0) - 1));
        rows.push_back({fixed(100 * share, 2),
                        with_commas(static_cast<std::size_t>(share * double(width))),
                        fixed(100 * double(largest), 1)});
    }
    show_table({"p in %", "numbers read", "worst token off by %"}, rows);
}

void gemma() {
    step("Gemma stores w and multiplies with 1 + w");
    const Matrix x{{-1, 5, 5, 7}};
    const Vector stored{0, Real(0.5), 0, Real(-0.5)};
    show("stored_weight", stored);
    show("gemma_output", gemma_norm(stored, 0)(x));
    show("gemma_wrong", RMSNorm{stored, 0}(x));
    say("Read as an ordinary weight, every 0 shuts its number off.");
}

// The size of RMSNorm's output for 64 random numbers of some size, without weights: 1 if right.
double output_size(Real size, bool upcast) {
    Generator generator(7);
    const HalfMatrix rows = to_half(randn({1, 64}, generator) * size);
    const HalfVector weight(std::array<std::size_t, 1>{64}, Half(1));
    const Real eps = Real(1e-6);
    const HalfMatrix normalized =
        upcast ? rms_norm_upcast(rows, weight, eps, CastBack::before_weight)
               : rms_norm_in_half(rows, weight, eps);
    return root_mean_square(to_float(normalized));
}

void sixteen_bits() {
    step("16 bits: the largest half is 65504, so 256 squared is infinite");
    const Half size(256.0f), square = size * size;
    show("256 squared, in half precision", static_cast<Real>(square));
    std::vector<TableRow> rows;
    for (const Real magnitude : {Real(0.0001), Real(0.01), Real(1), Real(60), Real(600)})
        rows.push_back({fixed(magnitude, 4), fixed(output_size(magnitude, false), 4),
                        fixed(output_size(magnitude, true), 4)});
    show_table({"size of x", "16 bits throughout", "32 bits inside"}, rows);
    say("From about 30 on, the squares or their sum are too large, and everything is 0. "
        "Below 0.01 it is eps that makes the output small, with 32 bits as well.");

    Line in_half{"16 bits throughout", {}, {}}, upcast{"32 bits inside", {}, {}};
    for (double exponent = -16; exponent <= 13; exponent += 0.5) {
        const Real magnitude = static_cast<Real>(std::pow(2, exponent));
        for (Line* line : {&in_half, &upcast}) line->x.push_back(exponent);
        in_half.y.push_back(output_size(magnitude, false));
        upcast.y.push_back(output_size(magnitude, true));
    }
    plot("half", {LinePlot{"RMSNorm of 16-bit numbers",
                           "size of the input, power of two",
                           "size of the output",
                           {in_half, upcast}}});

    step("16 bits: 2048 + 1 is 2048, so a sum of 4096 ones stops halfway");
    Half sum(0);
    for (int i = 0; i < 4096; ++i) sum += Half(1);
    show("4096 ones", static_cast<Real>(sum));
}

void casting_back(const Tensor3& hidden_states, Generator& generator) {
    step("Where to cast back: before the weight (Llama) or after it (Gemma)?");
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const HalfMatrix rows = to_half(reshape(hidden_states, {batch_size * seq_len, width}));
    HalfVector weight(std::array{width}, Half(0));
    for (Half& number : weight) number = Half(generator.next_uniform());
    const auto normalized = [&](CastBack cast_back) {
        return to_float(rms_norm_upcast(rows, weight, Real(1e-6), cast_back));
    };
    const Matrix before = normalized(CastBack::before_weight);
    const Matrix after = normalized(CastBack::after_weight);
    std::size_t different = 0;
    for (const Real gap : before - after)
        if (gap != 0) ++different;
    show("percent of numbers that differ",
         100 * static_cast<double>(different) / static_cast<double>(before.size()));
    show("largest difference", largest_difference(before, after));

    step("bfloat16: the range of a float, with fewer digits than a half");
    std::vector<TableRow> table;
    for (const Real number :
         {Real(1) / 3, Real(1.01), Real(257), Real(65536), Real(3e38), Real(1e-10)})
        table.push_back({brief(number), brief(static_cast<Real>(Half(number))),
                         brief(to_bfloat16(number))});
    show_table({"float, 32 bits", "half, 16 bits", "bfloat16, 16 bits"}, table);
}

void cost(bool measure, Generator& generator) {
    step("What they cost: a token of 4096 numbers");
    const std::size_t n = 4096;
    const LayerNorm layer_norm = make_layer_norm(n, Real(1e-5));
    const RMSNorm rms_norm = make_rms_norm(n, Real(1e-5));
    // Per number: LayerNorm adds, subtracts, squares, adds, divides, stretches, shifts; RMSNorm
    // squares, adds, divides, stretches.
    show_table({"", "parameters", "operations"},
               {{"LayerNorm", with_commas(num_parameters(layer_norm)), with_commas(7 * n)},
                {"RMSNorm", with_commas(num_parameters(rms_norm)), with_commas(4 * n)},
                {"a 4096 x 4096 matrix", with_commas(n * n), with_commas(2 * n * n)}});
    if (!measure) {
        say("--measure times both here.");
        return;
    }
    const Matrix tokens = randn({16, n}, generator);
    const double layer_seconds = fastest_seconds(200, [&] { layer_norm(tokens); });
    const double rms_seconds = fastest_seconds(200, [&] { rms_norm(tokens); });
    show("LayerNorm, microseconds per token", layer_seconds * 1e6 / 16);
    show("RMSNorm, microseconds per token", rms_seconds * 1e6 / 16);
    show("RMSNorm's time over LayerNorm's", rms_seconds / layer_seconds);
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    bool measure = false;
    Options options("07_rmsnorm_vs_layernorm", "What keeps the numbers from growing?");
    options.sizes(batch_size, seq_len, config);
    options.flag("--measure", measure, "time both norms");

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);

        by_hand();
        what_each_forgets();
        sample_input(hidden_states, checked.rms_norm_eps);
        epsilon();
        wrong_ones(hidden_states, checked.rms_norm_eps);
        partial(hidden_states, checked.rms_norm_eps);
        gemma();
        sixteen_bits();
        casting_back(hidden_states, generator);
        cost(measure, generator);
    });
}
