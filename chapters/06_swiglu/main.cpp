// Chapter 06 — What does the MLP compute for each token? The program shows the gates of a word,
// plots activation functions and their derivatives, runs the plain and the gated MLP step by
// step, compares the GLU variants, and counts parameters.
#include <algorithm>
#include <cmath>

#include "chapters/01_masking/config.hpp"
#include "chapters/05_gqa/dropout.hpp"
#include "chapters/06_swiglu/demo/words.hpp"
#include "chapters/06_swiglu/mlp.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

Vector elementwise(const Vector& values, auto function) {
    Vector result = values;
    for (Real& value : result) value = function(value);
    return result;
}

// The graph of a function for x from -5 to 5.
Line graph(const std::string& label, auto function) {
    Line line{label, {}, {}};
    for (int i = -250; i <= 250; ++i) {
        const Real x = static_cast<Real>(i) / 50;
        line.x.push_back(x);
        line.y.push_back(function(x));
    }
    return line;
}

void plot_activations() {
    const auto beta = [](Real b) { return [b](Real x) { return swish(x, b); }; };
    plot("activations",
         {LinePlot{"Activation functions",
                   "x",
                   "",
                   {graph("ReLU", relu), graph("GELU", gelu), graph("SiLU", silu)}},
          LinePlot{"Derivatives",
                   "x",
                   "",
                   {graph("ReLU", relu_derivative), graph("GELU", gelu_derivative),
                    graph("SiLU", silu_derivative)}},
          LinePlot{"Swish",
                   "x",
                   "",
                   {graph("beta 0.1", beta(Real(0.1))), graph("beta 1", beta(1)),
                    graph("beta 10", beta(10))}}});
}

void show_activations() {
    step("Activation functions are applied elementwise");
    const Vector x{-3, -1, Real(-0.1), 0, Real(0.1), 1, 3};
    show("x", x);
    show("relu", elementwise(x, relu));
    show("gelu", elementwise(x, gelu));
    show("gelu_tanh", elementwise(x, gelu_tanh));
    show("silu", elementwise(x, silu));
    say("For large |x| they are almost equal: close to x for positive inputs, close to 0 for "
        "negative ones. ReLU has a kink at 0; GELU and SiLU are smooth.");

    step("Their derivatives, which the backward pass uses");
    show("relu_derivative", elementwise(x, relu_derivative));
    show("gelu_derivative", elementwise(x, gelu_derivative));
    show("silu_derivative", elementwise(x, silu_derivative));
    say("The derivative of ReLU is 0 for negative inputs, so no gradient flows through them. "
        "Those of GELU and SiLU are small there, but not 0.");
    plot_activations();
}

// The minimum of a function: the x at which its derivative changes from negative to positive,
// by bisection.
Real minimum(auto derivative) {
    Real low = -2, high = 0;
    while (high - low > Real(1e-6)) {
        const Real middle = (low + high) / 2;
        (derivative(middle) < 0 ? low : high) = middle;
    }
    return low;
}

void show_minima() {
    step("SiLU and GELU are not monotonic: they have a minimum below 0");
    show("SiLU has its minimum at", minimum(silu_derivative));
    show("  with the value", silu(minimum(silu_derivative)));
    show("GELU has its minimum at", minimum(gelu_derivative));
    show("  with the value", gelu(minimum(gelu_derivative)));
    Real largest = 0;
    for (Real x = -5; x < 5; x += Real(0.01))
        largest = std::max(largest, std::abs(gelu(x) - gelu_tanh(x)));
    show("largest difference of gelu and gelu_tanh", largest);
}

double fraction_of_zeros(const Tensor3& states) {
    const auto zeros = std::count(states.begin(), states.end(), Real(0));
    return static_cast<double>(zeros) / static_cast<double>(states.size());
}

void run_plain_mlp(const Mlp& mlp, const Tensor3& hidden_states) {
    step("The plain MLP: up projection, activation, down projection");
    show("hidden_states", hidden_states);
    show("up_proj", describe(mlp.up_proj));
    show("down_proj", describe(mlp.down_proj));
    const Tensor3 up = mlp.up_proj(hidden_states);
    show_shape("plain_up", up);
    const Tensor3 activated = activate(ReLU, up);
    show("plain_relu", activated);
    show_shape("plain_output", mlp.down_proj(activated));
    show("fraction of zeros after ReLU", fraction_of_zeros(activated));
    show("fraction of zeros after SiLU", fraction_of_zeros(activate(SiLU, up)));
}

void run_gated_mlp(const GatedMlp& mlp, const Tensor3& hidden_states) {
    step("The gated MLP: gate projection and up projection of the same input");
    show("gate_proj", describe(mlp.gate_proj));
    show("up_proj", describe(mlp.up_proj));
    show("down_proj", describe(mlp.down_proj));
    const Tensor3 gate = mlp.gate_proj(hidden_states);
    const Tensor3 up = mlp.up_proj(hidden_states);
    show("gate", gate);
    show("up", up);

    step("The activated gate times up, elementwise; then the down projection");
    const Tensor3 activated_gate = activate(mlp.activation, gate);
    const Tensor3 product = activated_gate * up;
    show(std::string(mlp.activation.name) + "_gate", activated_gate);
    show("product", product);
    show("mlp_output", mlp.down_proj(product));
}

void compare_variants(GatedMlp mlp, const Tensor3& hidden_states) {
    mlp.activation = SiLU;
    const Tensor3 swiglu = mlp(hidden_states);
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, const Tensor3& output) {
        rows.push_back({name});
        for (std::size_t i = 0; i < 4; ++i)  // the first features of token 0
            rows.back().push_back(fixed(output.data()[i % output.size()], 4));
        rows.back().push_back(fixed(largest_difference(output, swiglu), 4));
    };

    step("GLU variants: other activations, the same three matrices");
    const std::vector<std::pair<std::string, Activation>> variants = {
        {"SwiGLU, SiLU", SiLU},
        {"GeGLU, GELU", GELU},
        {"ReGLU, ReLU", ReLU},
        {"GLU, sigmoid", Sigmoid}};
    for (const auto& [name, activation] : variants) {
        mlp.activation = activation;
        row(name, mlp(hidden_states));
    }
    mlp.activation = SiLU;
    GatedMlp swapped = mlp;
    std::swap(swapped.gate_proj, swapped.up_proj);
    row("wrong: gate and up swapped", swapped(hidden_states));
    show_table({"token 0", "0", "1", "2", "3", "difference"}, rows);
    say("With gate_proj and up_proj swapped, all shapes match and no error is raised, but the "
        "output is different.");

    step("Fused: gate and up projection as one matrix product");
    const FusedGatedMlp fused = fuse(mlp);
    show("gate_up_proj", describe(fused.gate_up_proj));
    show("largest difference", largest_difference(fused(hidden_states), swiglu));
}

void plot_intermediate_sizes() {
    Line exact{"8/3 C", {}, {}}, by_256{"multiple of 256", {}, {}}, four{"4 C", {}, {}};
    for (std::size_t size = 40; size <= 1000; size += 4) {
        for (Line* line : {&exact, &by_256, &four})
            line->x.push_back(static_cast<double>(size));
        exact.y.push_back(static_cast<double>(llama_intermediate_size(size, 1)));
        by_256.y.push_back(static_cast<double>(llama_intermediate_size(size, 256)));
        four.y.push_back(static_cast<double>(4 * size));
    }
    plot("width",
         {LinePlot{
             "Intermediate size F of the MLP", "hidden size C", "F", {four, by_256, exact}}});
}

void compare_intermediate_sizes() {
    step("Why 8/3 C? Three matrices with as many parameters as two of 4 C");
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, std::size_t size, std::uint64_t parameters) {
        rows.push_back(
            {name, with_commas(size), with_commas(parameters), with_commas(2 * parameters)});
    };
    const std::size_t hidden_size = 4096, two_thirds = llama_intermediate_size(hidden_size, 1);
    row("plain, 4 C", 4 * hidden_size, mlp_parameters(hidden_size, 4 * hidden_size));
    row("gated, 4 C", 4 * hidden_size, gated_mlp_parameters(hidden_size, 4 * hidden_size));
    row("gated, 8/3 C", two_thirds, gated_mlp_parameters(hidden_size, two_thirds));
    const std::size_t rounded = round_up(two_thirds, 256);
    row("  a multiple of 256", rounded, gated_mlp_parameters(hidden_size, rounded));
    show_table({"hidden size 4096", "F", "parameters", "FLOPs per token"}, rows);
    plot_intermediate_sizes();
}

void compare_published_models() {
    struct Model {
        std::string name, rule;
        std::size_t hidden_size, layers, intermediate_size;
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
    step("Published models: intermediate size and MLP parameters");
    std::vector<TableRow> rows;
    for (const auto& [name, rule, hidden_size, layers, size] : models) {
        const std::uint64_t parameters = layers * gated_mlp_parameters(hidden_size, size);
        const double ratio = static_cast<double>(size) / static_cast<double>(hidden_size);
        rows.push_back({name, rule, std::to_string(hidden_size), std::to_string(size),
                        fixed(ratio, 2), with_commas(parameters)});
    }
    show_table({"model", "rule", "C", "F", "F / C", "MLP parameters"}, rows);

    step("What biases would add: Llama-2-7B");
    const std::uint64_t weights = gated_mlp_parameters(4096, 11008), biases = 2 * 11008 + 4096;
    show("weights of one MLP", with_commas(weights));
    show("parameters of its biases, if it had any", with_commas(biases));
    show("percent", 100.0 * static_cast<double>(biases) / static_cast<double>(weights));
}

void apply_dropout(const Tensor3& output, Generator& generator) {
    step("Dropout, in training: a quarter of the elements become 0");
    const Tensor3 dropped = dropout(output, Real(0.25), generator);
    show("dropped_output", dropped);
    show("fraction of zeros", fraction_of_zeros(dropped));
    Tensor3 sum = xt::zeros_like(output);
    for (int sample = 0; sample < 1000; ++sample)
        sum = sum + dropout(output, Real(0.25), generator);
    show("feature 0 of token 0, without dropout", output(0, 0, 0));
    show("the same, mean of 1000 samples", sum(0, 0, 0) / 1000);
    say("Dropout does not change the expected value. At inference it is left out.");
}

const std::vector<Activation> activations = {SiLU, GELU, GELUTanh, ReLU, Sigmoid};

std::vector<std::string> activation_names() {
    std::vector<std::string> names;
    for (const Activation& activation : activations) names.emplace_back(activation.name);
    return names;
}

Activation activation_of(const std::string& name) {
    return *std::find_if(activations.begin(), activations.end(),
                         [&](const Activation& activation) { return activation.name == name; });
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10, intermediate_size = 0;
    std::string hidden_act = "silu";
    Options options("06_swiglu", "What does the MLP compute for each token?");
    options.sizes(batch_size, seq_len, config);
    options.size("--intermediate-size", intermediate_size);
    options.choice("--hidden-act", hidden_act, activation_names(),
                   "activation function of the gated MLP");

    return options.run(argc, argv, [&] {
        const std::size_t hidden_size = validate(config, seq_len).hidden_size;
        if (intermediate_size == 0)
            intermediate_size = llama_intermediate_size(hidden_size, 32);
        Generator generator(options.seed());
        const Tensor3 hidden_states = randn({batch_size, seq_len, hidden_size}, generator);
        const Activation activation = activation_of(hidden_act);
        const GatedMlp gated =
            make_gated_mlp(hidden_size, intermediate_size, false, activation, generator);
        const Mlp plain = make_mlp(hidden_size, 4 * hidden_size, true, ReLU, generator);

        show_gates_of_words(activation);
        show_activations();
        show_minima();
        run_plain_mlp(plain, hidden_states);
        run_gated_mlp(gated, hidden_states);
        compare_variants(gated, hidden_states);
        compare_intermediate_sizes();
        compare_published_models();
        apply_dropout(gated(hidden_states), generator);
    });
}
