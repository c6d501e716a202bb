// Chapter 06 — What does a token do with what it took? The walk: activations and their slopes,
// the plain MLP, the gated one, its variants, and why three matrices need only two thirds.
#include "chapters/06_swiglu/mlp.hpp"

#include <cmath>

#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

Vector each(const Vector& numbers, auto activation) {
    Vector result = numbers;
    for (Real& number : result) number = activation(number);
    return result;
}

Line curve(const std::string& label, auto function) {
    Line line{label, {}, {}};
    for (int i = -250; i <= 250; ++i) {
        const Real x = static_cast<Real>(i) / 50;
        line.x.push_back(x);
        line.y.push_back(function(x));
    }
    return line;
}

Real silu_derivative(Real x) { return swish_derivative(x, 1); }

void activations() {
    step("An activation bends each number for itself");
    const Vector x{-3, -1, Real(-0.1), 0, Real(0.1), 1, 3};
    show("x", x);
    show("relu", each(x, relu));
    show("gelu", each(x, gelu));
    show("gelu_tanh", each(x, gelu_tanh));
    show("silu", each(x, silu));
    say("Far from 0 they agree: what is large and positive passes, what is large and negative "
        "is gone. relu has a corner at 0, the others go round it.");

    step("Their slopes: what training sees");
    show("relu_derivative", each(x, relu_derivative));
    show("gelu_derivative", each(x, gelu_derivative));
    show("silu_derivative", each(x, silu_derivative));
    say("Below 0 relu's slope is 0: such a number does not push the weights that made it. The "
        "others still do.");

    const auto beta = [](Real b) { return [b](Real number) { return swish(number, b); }; };
    plot("activations",
         {LinePlot{"Activations",
                   "x",
                   "",
                   {curve("relu", relu), curve("gelu", gelu), curve("silu", silu)}},
          LinePlot{"Their slopes",
                   "x",
                   "",
                   {curve("relu", relu_derivative), curve("gelu", gelu_derivative),
                    curve("silu", silu_derivative)}},
          LinePlot{"Swish",
                   "x",
                   "",
                   {curve("beta 0.1", beta(Real(0.1))), curve("beta 1", beta(1)),
                    curve("beta 10", beta(10))}}});
}

// Where a slope goes from below to above zero.
Real lowest_point(auto derivative) {
    Real low = -2, high = 0;
    while (high - low > Real(1e-6)) {
        const Real middle = (low + high) / 2;
        (derivative(middle) < 0 ? low : high) = middle;
    }
    return low;
}

void the_dip() {
    step("Below zero: the dip");
    show("silu is lowest at", lowest_point(silu_derivative));
    show("  and there it is", silu(lowest_point(silu_derivative)));
    show("gelu is lowest at", lowest_point(gelu_derivative));
    show("  and there it is", gelu(lowest_point(gelu_derivative)));
    Real largest = 0;
    for (Real x = -5; x < 5; x += Real(0.01))
        largest = std::max(largest, std::abs(gelu(x) - gelu_tanh(x)));
    show("gelu and gelu_tanh differ by at most", largest);
}

double share_of_zeros(const Tensor3& states) {
    const auto zeros = std::count(states.begin(), states.end(), Real(0));
    return static_cast<double>(zeros) / static_cast<double>(states.size());
}

void plain_mlp(const Mlp& mlp, const Tensor3& hidden_states) {
    step("The plain MLP: widen, bend, narrow");
    show("hidden_states", hidden_states);
    show("up_proj", describe(mlp.up_proj));
    show("down_proj", describe(mlp.down_proj));
    const Tensor3 wide = mlp.up_proj(hidden_states);
    show_shape("plain_up", wide);
    const Tensor3 bent = activate(relu, wide);
    show("plain_relu", bent);
    show_shape("plain_output", mlp.down_proj(bent));
    show("share of zeros after relu", share_of_zeros(bent));
    show("share of zeros after silu", share_of_zeros(activate(silu, wide)));
}

// The first numbers of the tokens of sequence 0, to be drawn.
Matrix corner(const Tensor3& states) {
    const std::size_t rows = std::min<std::size_t>(states.shape(1), 10);
    const std::size_t columns = std::min<std::size_t>(states.shape(2), 16);
    return xt::view(states, 0, xt::range(std::size_t{0}, rows),
                    xt::range(std::size_t{0}, columns));
}

void gated_mlp(const GatedMlp& mlp, const Tensor3& hidden_states) {
    step("The gated MLP: two ways up, one way down");
    show("gate_proj", describe(mlp.gate_proj));
    show("up_proj", describe(mlp.up_proj));
    show("down_proj", describe(mlp.down_proj));
    const Tensor3 gate = mlp.gate_proj(hidden_states);
    const Tensor3 up = mlp.up_proj(hidden_states);
    show("gate", gate);
    show("up", up);

    step("The gate is bent, and lets each number of up pass or not");
    const Tensor3 bent_gate = activate(silu, gate);
    const Tensor3 product = bent_gate * up;
    show("silu_gate", bent_gate);
    show("product", product);
    show("mlp_output", mlp.down_proj(product));
    plot("gate", {Heatmap{"silu(gate)", "number", "token", corner(bent_gate)},
                  Heatmap{"up", "number", "token", corner(up)},
                  Heatmap{"product", "number", "token", corner(product)}});
}

void variants(GatedMlp mlp, const Tensor3& hidden_states) {
    const Tensor3 swiglu = mlp(hidden_states);
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, const Tensor3& output) {
        rows.push_back({name});
        for (std::size_t i = 0; i < 4; ++i)  // from the start of token 0
            rows.back().push_back(fixed(output.data()[i % output.size()], 4));
        rows.back().push_back(fixed(largest_difference(output, swiglu), 4));
    };

    step("The variants: another activation, the same three matrices");
    for (const auto& [name, activation] :
         std::initializer_list<std::pair<std::string, Activation>>{{"SwiGLU, silu", silu},
                                                                   {"GeGLU, gelu", gelu},
                                                                   {"ReGLU, relu", relu},
                                                                   {"GLU, sigmoid", sigmoid}}) {
        mlp.activation = activation;
        row(name, mlp(hidden_states));
    }
    mlp.activation = silu;
    GatedMlp swapped = mlp;
    std::swap(swapped.gate_proj, swapped.up_proj);
    row("wrong: gate and up swapped", swapped(hidden_states));
    show_table({"token 0", "0", "1", "2", "3", "difference"}, rows);
    say("The last one fits in shape and in size, throws nothing, and is another function.");

    step("Fused: both ways up as one product");
    const FusedGatedMlp fused = fuse(mlp);
    show("gate_up_proj", describe(fused.gate_up_proj));
    show("largest difference", largest_difference(fused(hidden_states), swiglu));
}

void why_two_thirds() {
    step("Why 8/3? Three matrices that hold what two did");
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, std::size_t width, std::size_t parameters) {
        rows.push_back(
            {name, with_commas(width), with_commas(parameters), with_commas(2 * parameters)});
    };
    const std::size_t hidden_size = 4096, third = llama_intermediate_size(hidden_size, 1);
    row("plain, 4 C", 4 * hidden_size, mlp_parameters(hidden_size, 4 * hidden_size));
    row("gated, 4 C", 4 * hidden_size, gated_mlp_parameters(hidden_size, 4 * hidden_size));
    row("gated, 8/3 C", third, gated_mlp_parameters(hidden_size, third));
    const std::size_t rounded = round_up(third, 256);
    row("  a multiple of 256", rounded, gated_mlp_parameters(hidden_size, rounded));
    show_table({"hidden size 4096", "width F", "parameters", "operations per token"}, rows);

    Line exact{"8/3 C", {}, {}}, by_256{"multiple of 256", {}, {}}, four{"4 C", {}, {}};
    for (std::size_t size = 40; size <= 1000; size += 4) {
        for (Line* line : {&exact, &by_256, &four})
            line->x.push_back(static_cast<double>(size));
        exact.y.push_back(static_cast<double>(llama_intermediate_size(size, 1)));
        by_256.y.push_back(static_cast<double>(llama_intermediate_size(size, 256)));
        four.y.push_back(static_cast<double>(4 * size));
    }
    plot("width", {LinePlot{"Width of the MLP", "hidden size", "F", {four, by_256, exact}}});
}

void real_models() {
    struct Model {
        std::string name, rule;
        std::size_t hidden_size, layers, width;
    };
    const auto llama = llama_intermediate_size;
    const std::vector<Model> models = {
        {"Llama-2-7B", "8/3 C, multiple of 256", 4096, 32, llama(4096, 256, 1)},
        {"Llama-2-13B", "8/3 C, multiple of 256", 5120, 40, llama(5120, 256, 1)},
        {"Llama-2-70B", "8/3 C * 1.3, multiple of 4096", 8192, 80, llama(8192, 4096, 1.3)},
        {"Llama-3-8B", "8/3 C * 1.3, multiple of 1024", 4096, 32, llama(4096, 1024, 1.3)},
        {"Llama-3.2-1B", "8/3 C * 1.5, multiple of 256", 2048, 16, llama(2048, 256, 1.5)},
        {"Mini-LLM", "4 C", 384, 16, 4 * 384},
        {"Qwen3-0.6B", "3 C", 1024, 28, 3 * 1024},
        {"Qwen3-8B", "3 C", 4096, 36, 3 * 4096}};
    step("Real models: where F comes from");
    std::vector<TableRow> rows;
    for (const auto& [name, rule, hidden_size, layers, width] : models) {
        const std::size_t parameters = layers * gated_mlp_parameters(hidden_size, width);
        const double ratio = static_cast<double>(width) / static_cast<double>(hidden_size);
        rows.push_back({name, rule, std::to_string(hidden_size), std::to_string(width),
                        fixed(ratio, 2), with_commas(parameters)});
    }
    show_table({"model", "rule", "C", "F", "F / C", "MLP parameters"}, rows);

    step("What biases would add: Llama-2-7B");
    const std::size_t weights = gated_mlp_parameters(4096, 11008), biases = 2 * 11008 + 4096;
    show("weights of one MLP", with_commas(weights));
    show("biases it does not have", with_commas(biases));
    show("percent", 100.0 * static_cast<double>(biases) / static_cast<double>(weights));
}

void dropped_numbers(const Tensor3& output, Generator& generator) {
    step("Dropout: in training some numbers are dropped, the others grow");
    const Tensor3 dropped = dropout(output, Real(0.25), generator);
    show("dropped_output", dropped);
    show("share of zeros", share_of_zeros(dropped));
    Tensor3 sum = xt::zeros_like(output);
    for (int draw = 0; draw < 1000; ++draw) sum = sum + dropout(output, Real(0.25), generator);
    show("number 0 of token 0, without dropout", output(0, 0, 0));
    show("the same, mean of 1000 draws", sum(0, 0, 0) / 1000);
    say("On average nothing changes. A model that is used, not trained, leaves the call out.");
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10, intermediate_size = 0;
    Options options("06_swiglu", "What does a token do with what it took?");
    options.sizes(batch_size, seq_len, config);
    options.size("--intermediate-size", intermediate_size);

    return options.run(argc, argv, [&] {
        const std::size_t hidden_size = complete(config, seq_len).hidden_size;
        const std::size_t width = intermediate_size > 0
                                      ? intermediate_size
                                      : llama_intermediate_size(hidden_size, 32);
        Generator generator(options.seed());
        const Tensor3 hidden_states = randn({batch_size, seq_len, hidden_size}, generator);
        const GatedMlp gated = make_gated_mlp(hidden_size, width, false, silu, generator);
        const Mlp plain = make_mlp(hidden_size, 4 * hidden_size, true, relu, generator);

        activations();
        the_dip();
        plain_mlp(plain, hidden_states);
        gated_mlp(gated, hidden_states);
        variants(gated, hidden_states);
        why_two_thirds();
        real_models();
        dropped_numbers(gated(hidden_states), generator);
    });
}
