// Chapter 07 — What keeps the inputs of every layer at one scale? The program follows the RMS
// of five words through a model, applies LayerNorm and RMSNorm, shows common wrong versions of
// them, and runs RMSNorm in float16.
#include <algorithm>
#include <cmath>

#include "chapters/01_masking/config.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/demo/half_precision.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "common/files/words.hpp"
#include "common/numbers/random.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"
#include "common/system/timer.hpp"

using namespace llm;

// The root mean square of each row.
Vector row_rms(const Matrix& rows) {
    Vector result = xt::zeros<Real>({rows.shape(0)});
    for (std::size_t row = 0; row < rows.shape(0); ++row)
        result(row) =
            Real(root_mean_square({rows.data() + row * rows.shape(1), rows.shape(1)}));
    return result;
}

void normalize_words(Real eps) {
    const Words words = load_words();
    const auto [num_states, seq_len, hidden_size] = dims(words.residual_stream);

    step("Five words: the RMS of the hidden states, before and after each layer");
    Matrix rms = xt::zeros<Real>({seq_len, num_states});
    std::vector<std::string> names = {"embedding"};
    for (std::size_t n = 0; n < num_states; ++n) {
        if (n > 0) names.push_back("layer " + to_text(n - 1));
        const Matrix states = xt::view(words.residual_stream, n);
        xt::view(rms, xt::all(), n) = row_rms(states);
    }
    show("word_rms", rms, words.tokens, names);  // (T, L + 1)

    step("Five words: after RMSNorm, each hidden state has an RMS of 1");
    Matrix normalized_rms = rms;
    for (std::size_t n = 0; n < num_states; ++n) {
        const Matrix states = xt::view(words.residual_stream, n);
        xt::view(normalized_rms, xt::all(), n) = row_rms(rms_normalize(states, eps));
    }
    show("word_rms_normalized", normalized_rms, words.tokens, names);
}

void normalize_example() {
    step("One token of four features: mean 4, root mean square (RMS) 5");
    const Matrix x{{-1, 5, 5, 7}};
    show("x", x);
    const Matrix centered = x - Real(4);
    show("centered", centered);
    show("standard deviation", root_mean_square(centered));
    show("root mean square", root_mean_square(x));
    say("mean² + variance = mean square: 16 + 9 = 25.");

    step("LayerNorm subtracts the mean and divides by 3. RMSNorm divides by 5");
    show("layer_norm_example", layer_normalize(x, 0));
    show("rms_norm_example", rms_normalize(x, 0));

    step("Then each feature is multiplied by its weight, and a bias is added");
    const Vector weight{1, 2, Real(0.5), 1}, bias{0, 0, 0, 10};
    show("weight", weight);
    show("bias", bias);
    show("layer_norm_weighted", LayerNorm{weight, bias, 0}(x));
    show("rms_norm_weighted", RMSNorm{weight, 0}(x));
    show("rms_norm_with_bias", RMSNorm{weight, 0, bias}(x));
}

Line row_as_line(const std::string& label, const Matrix& rows, std::size_t row) {
    Line line{label, {}, {}};
    for (std::size_t c = 0; c < rows.shape(1); ++c) {
        line.x.push_back(static_cast<double>(c));
        line.y.push_back(rows(row, c));
    }
    return line;
}

LinePlot plot_rows(const std::string& title, const Matrix& rows) {
    return {title,
            "feature",
            "value",
            {row_as_line("x", rows, 0), row_as_line("3 x", rows, 1),
             row_as_line("x + 10", rows, 2)}};
}

void compare_invariances() {
    step("Invariances: x, 3 x and x + 10");
    const Matrix inputs{{-1, 5, 5, 7}, {-3, 15, 15, 21}, {9, 15, 15, 17}};
    const Matrix after_layer_norm = layer_normalize(inputs, 0);
    const Matrix after_rms_norm = rms_normalize(inputs, 0);
    show("inputs", inputs);
    show("after_layer_norm", after_layer_norm);
    show("after_rms_norm", after_rms_norm);
    say("LayerNorm is invariant to scale and shift. RMSNorm is invariant to scale only.");
    plot("invariances", {plot_rows("Input", inputs), plot_rows("LayerNorm", after_layer_norm),
                         plot_rows("RMSNorm", after_rms_norm)});

    step("If the mean is 0, the two norms are equal");
    const Matrix mean_zero{{-5, 1, 1, 3}};
    show("layer_norm_mean_zero", layer_normalize(mean_zero, 0));
    show("rms_norm_mean_zero", rms_normalize(mean_zero, 0));
}

void normalize_sample_input(const Tensor3& hidden_states, Real eps) {
    step("The sample input");
    const LayerNorm layer_norm = make_layer_norm(hidden_states.shape(2), eps);
    const RMSNorm rms_norm = make_rms_norm(hidden_states.shape(2), eps);
    const Tensor3 layer_norm_output = layer_norm(hidden_states);
    const Tensor3 rms_norm_output = rms_norm(hidden_states);
    show("hidden_states", hidden_states);
    show("layer_norm_output", layer_norm_output);
    show("rms_norm_output", rms_norm_output);
    show("largest difference", largest_difference(layer_norm_output, rms_norm_output));
    say("The mean of each random token is close to 0, so the two outputs are similar.");

    step("The same input, 2 added to every element");
    const Tensor3 shifted = hidden_states + Real(2);
    show("LayerNorm, largest change",
         largest_difference(layer_norm(shifted), layer_norm_output));
    show("RMSNorm, largest change", largest_difference(rms_norm(shifted), rms_norm_output));
}

// The RMS of the output of RMSNorm as a function of the RMS of its input, with eps outside the
// square root (wrong) and inside (right).
Real eps_outside(Real rms, Real eps) { return rms / (rms + eps); }
Real eps_inside(Real rms, Real eps) { return rms / std::sqrt(rms * rms + eps); }

// 0.00001 as "1e-5".
std::string eps_text(Real eps) {
    const std::string text = brief(double(eps));
    const std::size_t exponent = text.find("e-0");
    return exponent == text.npos ? text
                                 : text.substr(0, exponent + 2) + text.substr(exponent + 3);
}

void compare_eps(Real eps) {
    step("eps inside or outside the square root: RMS of the output");
    const std::string given = eps_text(eps);
    std::vector<TableRow> rows;
    for (const Real rms : {Real(1), Real(1e-1), Real(1e-2), Real(1e-3), Real(1e-4), Real(1e-5)})
        rows.push_back({fixed(rms, 5), fixed(eps_inside(rms, eps), 4),
                        fixed(eps_inside(rms, Real(1e-6)), 4), fixed(eps_outside(rms, eps), 4),
                        fixed(eps_outside(rms, Real(1e-6)), 4)});
    show_table(
        {"RMS of x", "inside, " + given, "inside, 1e-6", "outside, " + given, "outside, 1e-6"},
        rows);

    Line inside{"inside, " + given, {}, {}}, inside_6{"inside, 1e-6", {}, {}};
    Line outside{"outside, " + given, {}, {}};
    for (double exponent = -7; exponent <= 0.01; exponent += 0.1) {
        const Real rms = static_cast<Real>(std::pow(10, exponent));
        for (Line* line : {&inside, &inside_6, &outside}) line->x.push_back(exponent);
        inside.y.push_back(eps_inside(rms, eps));
        inside_6.y.push_back(eps_inside(rms, Real(1e-6)));
        outside.y.push_back(eps_outside(rms, eps));
    }
    plot("epsilon", {LinePlot{"Effect of eps on small inputs",
                              "log10 of the RMS of the input",
                              "RMS of the output",
                              {outside, inside_6, inside}}});
}

void compare_wrong_means(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const RMSNorm norm = make_rms_norm(width, eps);

    step("Wrong: the sum of squares instead of their mean");
    const double rms = root_mean_square(norm(hidden_states));
    show("RMS of the output, right", rms);
    show("RMS of the output, wrong", rms / std::sqrt(static_cast<double>(width)));
    say("The output is too small by a factor of √C.");

    step("Wrong: a mean over the tokens");
    // Normalize feature 0 of all tokens of sequence 0, as if they were one token.
    const auto over_tokens = [&, num_tokens = seq_len](const Tensor3& states) {
        Matrix column = xt::zeros<Real>({std::size_t{1}, num_tokens});
        for (std::size_t t = 0; t < num_tokens; ++t) column(0, t) = states(0, t, 0);
        return rms_normalize(column, eps);
    };
    Tensor3 changed = hidden_states;
    changed(0, seq_len - 1, 0) = Real(5);
    show("wrong: feature 0 of token 0", over_tokens(hidden_states)(0, 0));
    show("wrong, after a change of the last token", over_tokens(changed)(0, 0));
    show("right: feature 0 of token 0", norm(hidden_states)(0, 0, 0));
    show("right, after a change of the last token", norm(changed)(0, 0, 0));
    say("With a mean over the tokens, the output of a token depends on later tokens, despite "
        "the causal mask.");
}

void compare_partial_rms(const Tensor3& hidden_states, Real eps) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix tokens = reshape(hidden_states, {batch_size * seq_len, width});
    const Matrix exact = rms_normalize(tokens, eps);

    step("Partial RMSNorm: the RMS is estimated from the first features");
    std::vector<TableRow> rows;
    for (const double fraction : {1.0, 0.5, 0.25, 0.0625}) {
        if (fraction * static_cast<double>(width) < 1) continue;
        const Matrix normalized = partial_rms_normalize(tokens, fraction, eps);
        Real largest = 0;  // relative error of a token's scale
        for (std::size_t t = 0; t < tokens.shape(0); ++t)
            largest = std::max(largest, std::abs(normalized(t, 0) / exact(t, 0) - 1));
        rows.push_back({fixed(100 * fraction, 2),
                        with_commas(static_cast<std::size_t>(fraction * double(width))),
                        fixed(100 * double(largest), 1)});
    }
    show_table({"p in %", "features used", "largest error in %"}, rows);
}

void apply_gemma_norm() {
    step("Gemma stores w and multiplies by 1 + w");
    const Matrix x{{-1, 5, 5, 7}};
    const Vector stored{0, Real(0.5), 0, Real(-0.5)};
    show("stored_weight", stored);
    show("gemma_output", gemma_norm(stored, 0)(x));
    show("gemma_wrong", RMSNorm{stored, 0}(x));
    say("If w is used as the weight itself, a stored 0 sets its feature to 0.");
}

void compare_costs(bool measure, Generator& generator) {
    step("Cost for one token of 4096 features");
    const std::size_t n = 4096;
    const LayerNorm layer_norm = make_layer_norm(n, Real(1e-5));
    const RMSNorm rms_norm = make_rms_norm(n, Real(1e-5));
    // Per feature, LayerNorm has 7 operations: add, subtract, square, add, divide, multiply,
    // add. RMSNorm has 4: square, add, divide, multiply.
    show_table({"", "parameters", "FLOPs"},
               {{"LayerNorm", with_commas(num_parameters(layer_norm)), with_commas(7 * n)},
                {"RMSNorm", with_commas(num_parameters(rms_norm)), with_commas(4 * n)},
                {"a 4096 x 4096 matrix", with_commas(n * n), with_commas(2 * n * n)}});
    if (!measure) {
        say("--measure prints the run times of both.");
        return;
    }
    const Matrix tokens = randn({16, n}, generator);
    const int num_calls = 50;  // a single call is too short for the clock of a browser
    const double layer_seconds = fastest_seconds(10, [&] {
        for (int call = 0; call < num_calls; ++call) layer_norm(tokens);
    });
    const double rms_seconds = fastest_seconds(10, [&] {
        for (int call = 0; call < num_calls; ++call) rms_norm(tokens);
    });
    show("LayerNorm, microseconds per token", layer_seconds * 1e6 / (16 * num_calls));
    show("RMSNorm, microseconds per token", rms_seconds * 1e6 / (16 * num_calls));
    show("run time of RMSNorm / LayerNorm", rms_seconds / layer_seconds);
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    bool measure = false;
    Options options("07_rmsnorm_vs_layernorm",
                    "What keeps the inputs of every layer at one scale?");
    options.sizes(batch_size, seq_len, config);
    options.number("--rms-norm-eps", config.rms_norm_eps, 0, 1, "eps of the norms");
    options.flag("--measure", measure, "print the run times of both norms");

    return options.run(argc, argv, [&] {
        config = validate(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, config.hidden_size}, generator);

        normalize_words(config.rms_norm_eps);
        normalize_example();
        compare_invariances();
        normalize_sample_input(hidden_states, config.rms_norm_eps);
        compare_eps(config.rms_norm_eps);
        compare_wrong_means(hidden_states, config.rms_norm_eps);
        compare_partial_rms(hidden_states, config.rms_norm_eps);
        apply_gemma_norm();
        run_in_half_precision();
        compare_casts(hidden_states, generator);
        compare_costs(measure, generator);
    });
}
