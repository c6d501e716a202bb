// Chapter 08 — Where do the norms go? The program runs one pre-norm block step by step,
// compares five arrangements of the same weights, and measures the residual stream over 48
// layers.
#include <cmath>

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"
#include "common/system/parallel.hpp"

using namespace llm;

struct NamedArrangement {
    std::string name;
    Arrangement arrangement;
};
const std::vector<NamedArrangement> arrangements = {
    {"pre-norm", Arrangement::pre_norm},
    {"post-norm", Arrangement::post_norm},
    {"res-post-norm", Arrangement::res_post_norm},
    {"sandwich", Arrangement::sandwich},
    {"parallel", Arrangement::parallel}};

// The Euclidean norm of all elements.
double l2_norm(const Tensor3& states) {
    return root_mean_square(states) * std::sqrt(static_cast<double>(states.size()));
}

double cosine_similarity(const Tensor3& a, const Tensor3& b) {
    double dot_product = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        dot_product += double(a.data()[i]) * double(b.data()[i]);
    return dot_product / (l2_norm(a) * l2_norm(b));
}

// The weights of a block, in any arrangement.
struct Weights {
    AttentionLayer self_attn;
    GatedMlp mlp;

    Weights(const Config& config, std::size_t intermediate_size, Generator& generator)
        : self_attn(make_attention_layer(config, generator)),
          mlp(make_gated_mlp(config.hidden_size, intermediate_size, false, SiLU, generator)) {}
};

// The hidden states before the first layer and after each layer: L + 1 times (B, T, C).
std::vector<Tensor3> all_hidden_states(Arrangement arrangement,
                                       const std::vector<Weights>& layers,
                                       const Tensor3& hidden_states,
                                       const AttentionInputs& inputs) {
    std::vector<Tensor3> result = {hidden_states};
    for (const auto& [self_attn, mlp] : layers) {
        const Block block = make_block(arrangement, self_attn, mlp, Real(1e-5));
        result.push_back(apply(block, result.back(), inputs));
    }
    return result;
}

void run_pre_norm_block(const Weights& weights, const RMSNorm& norm,
                        const Tensor3& hidden_states, const AttentionInputs& inputs) {
    step("A pre-norm block: attention reads the normalized input, and its output is added");
    show("hidden_states", hidden_states);
    const Tensor3 attention_output =
        weights.self_attn(norm(hidden_states), inputs).hidden_states;
    show("attention_output", attention_output);
    const Tensor3 after_attention = hidden_states + attention_output;
    show("after_attention", after_attention);

    step("The MLP reads the normalized sum, and its output is added, too");
    const Tensor3 mlp_output = weights.mlp(norm(after_attention));
    show("mlp_output", mlp_output);
    const Tensor3 block_output = after_attention + mlp_output;
    show("block_output", block_output);
    show_table({"", "RMS"},
               {{"input of the block", fixed(root_mean_square(hidden_states), 3)},
                {"attention output", fixed(root_mean_square(attention_output), 3)},
                {"MLP output", fixed(root_mean_square(mlp_output), 3)},
                {"output of the block", fixed(root_mean_square(block_output), 3)}});
}

// The first four features of token 0, and the RMS of the whole output.
TableRow output_row(const std::string& name, const Tensor3& output) {
    TableRow row = {name};
    for (std::size_t i = 0; i < 4; ++i)
        row.push_back(fixed(output.data()[i % output.size()], 4));
    row.push_back(fixed(root_mean_square(output), 3));
    return row;
}
const TableRow output_headings = {"token 0 of the output", "0", "1", "2", "3", "RMS"};

void compare_arrangements(const Weights& weights, const RMSNorm& norm,
                          const Tensor3& hidden_states, const AttentionInputs& inputs) {
    step("Five arrangements of the same weights");
    std::vector<TableRow> rows;
    for (const auto& [name, arrangement] : arrangements) {
        const Block block = make_block(arrangement, weights.self_attn, weights.mlp, norm.eps);
        rows.push_back(output_row(name, apply(block, hidden_states, inputs)));
    }
    show_table(output_headings, rows);
}

void compare_wrong_residuals(const Weights& weights, const RMSNorm& norm,
                             const Tensor3& hidden_states, const AttentionInputs& inputs) {
    const auto& [self_attn, mlp] = weights;
    const Tensor3 normalized = norm(hidden_states);
    const Tensor3 attention_output = self_attn(normalized, inputs).hidden_states;
    const Tensor3 after_attention = hidden_states + attention_output;
    const Tensor3 normalized_residual = normalized + attention_output;

    step("Wrong: two residual connections in the wrong place");
    show_table(output_headings,
               {output_row("right: pre-norm", after_attention + mlp(norm(after_attention))),
                output_row("wrong: second residual from the block's input",
                           hidden_states + mlp(norm(after_attention))),
                output_row("wrong: residual taken after the norm",
                           norm(normalized_residual) + mlp(norm(normalized_residual)))});
    say("In the first wrong block, the attention output is not added to the residual stream. "
        "In the second, the residual stream is normalized before each sublayer, so there is no "
        "identity path through the block.");
}

// Multiplies the weights of a block by a gain. With √3 times PyTorch's initialization, a linear
// layer approximately preserves the RMS of its input.
Weights with_gain(Weights weights, Real gain) {
    auto& [q_proj, k_proj, v_proj, o_proj] = weights.self_attn.projections;
    auto& [gate_proj, up_proj, down_proj, activation] = weights.mlp;
    for (Linear* linear :
         {&q_proj, &k_proj, &v_proj, &o_proj, &gate_proj, &up_proj, &down_proj})
        linear->weight = linear->weight * gain;
    return weights;
}

// An input and a perturbed copy of it, run through 48 layers in every arrangement. The sizes
// are always the default ones.
struct Experiment {
    std::vector<Weights> layers;
    AttentionInputs inputs = causal_attention_inputs(validate(Config{}, 10), 1, 10);
    Tensor3 input, perturbation;  // (1, 10, 128)

    // The hidden states of each arrangement, L + 1 times (1, 10, 128).
    std::vector<std::vector<Tensor3>> hidden_states, perturbed_hidden_states;

    Experiment(Real gain, std::uint32_t seed)
        : hidden_states(arrangements.size()), perturbed_hidden_states(arrangements.size()) {
        Generator generator(seed);
        input = randn({1, 10, 128}, generator);
        perturbation = randn({1, 10, 128}, generator) * Real(0.001);
        for (int layer = 0; layer < 48; ++layer)
            layers.push_back(with_gain({validate(Config{}, 10), 352, generator}, gain));
        const Tensor3 perturbed_input = input + perturbation;
        parallel_for(2 * arrangements.size(), [&](std::size_t i) {
            const Arrangement arrangement = arrangements[i / 2].arrangement;
            (i % 2 == 0 ? hidden_states : perturbed_hidden_states)[i / 2] = all_hidden_states(
                arrangement, layers, i % 2 == 0 ? input : perturbed_input, inputs);
        });
    }

    // Measurements of an arrangement's residual stream after a layer.
    double rms(std::size_t which, std::size_t layer) const {
        return root_mean_square(hidden_states[which][layer]);
    }
    // The norm of the change that the layer makes, over the norm of its input.
    double relative_update(std::size_t which, std::size_t layer) const {
        const Tensor3& before = hidden_states[which][layer - 1];
        return l2_norm(hidden_states[which][layer] - before) / l2_norm(before);
    }
    double similarity_to_previous(std::size_t which, std::size_t layer) const {
        return cosine_similarity(hidden_states[which][layer], hidden_states[which][layer - 1]);
    }
    // The relative change of the output over the relative change of the input.
    double sensitivity(std::size_t which, std::size_t layer) const {
        const Tensor3& output = hidden_states[which][layer];
        const Tensor3 change = perturbed_hidden_states[which][layer] - output;
        return l2_norm(change) / l2_norm(output) * l2_norm(input) / l2_norm(perturbation);
    }
};

// A measurement after each layer, one line for each arrangement.
LinePlot plot_layers(const std::string& title, const Experiment& experiment, auto measurement) {
    LinePlot panel{title, "layer", "", {}};
    for (std::size_t which = 0; which < arrangements.size(); ++which) {
        Line& line = panel.lines.emplace_back(Line{arrangements[which].name, {}, {}});
        for (std::size_t layer = 1; layer <= experiment.layers.size(); ++layer) {
            line.x.push_back(static_cast<double>(layer));
            line.y.push_back((experiment.*measurement)(which, layer));
        }
    }
    return panel;
}

void plot_48_layers(const Experiment& e) {
    plot("depth",
         {plot_layers("RMS of the residual stream", e, &Experiment::rms),
          plot_layers("Relative update of each layer", e, &Experiment::relative_update),
          plot_layers("Cosine similarity to the previous layer", e,
                      &Experiment::similarity_to_previous)});
    LinePlot sensitivity =
        plot_layers("Sensitivity to a small change of the input", e, &Experiment::sensitivity);
    sensitivity.log_y = true;
    plot("sensitivity", {sensitivity});
}

// Two or three digits: more would differ between processors.
std::string short_factor(double factor) {
    return factor > 1000 ? ">1000" : fixed(factor, factor < 10 ? 2 : 0);
}

void measure_48_layers(const Experiment& e) {
    step("The residual stream over 48 layers of random weights (gain √3)");
    std::vector<TableRow> rows;
    for (std::size_t which = 0; which < arrangements.size(); ++which)
        for (const std::size_t layer : {1u, 12u, 48u})
            rows.push_back({arrangements[which].name, std::to_string(layer),
                            fixed(e.rms(which, layer), 2),
                            fixed(e.relative_update(which, layer), 2),
                            fixed(e.similarity_to_previous(which, layer), 2),
                            fixed(cosine_similarity(e.hidden_states[which][layer], e.input), 2),
                            short_factor(e.sensitivity(which, layer))});
    show_table({"", "layer", "RMS", "update", "cos previous", "cos input", "sensitivity"},
               rows);
    say("update: norm of the change that the layer makes, divided by the norm of its input. "
        "cos previous, cos input: cosine similarity to the output of the previous layer and to "
        "the input. sensitivity: relative change of the output, divided by the relative change "
        "of the input that causes it.");
}

void compare_gains(std::uint32_t seed) {
    step("Sensitivity after 48 layers, weights of PyTorch's initialization times a gain");
    std::vector<TableRow> rows;
    for (const Real gain : {Real(1), std::sqrt(Real(3)), Real(3)}) {
        const Experiment experiment(gain, seed);
        rows.push_back({fixed(gain, 2)});
        for (std::size_t which = 0; which < arrangements.size(); ++which)
            rows.back().push_back(short_factor(experiment.sensitivity(which, 48)));
    }
    show_table({"gain", "pre-norm", "post-norm", "res-post-norm", "sandwich", "parallel"},
               rows);
}

void scale_residual_outputs(const Experiment& experiment) {
    step("GPT-2's initialization: o_proj and down_proj scaled by 1/√(2L)");
    std::vector<Weights> scaled = experiment.layers;
    for (auto& [self_attn, mlp] : scaled)
        for (Linear* linear : {&self_attn.projections.o_proj, &mlp.down_proj})
            *linear = scale_for_depth(*linear, scaled.size());

    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, const std::vector<Tensor3>& states) {
        rows.push_back({name, fixed(root_mean_square(states[1]), 3),
                        fixed(root_mean_square(states[12]), 3),
                        fixed(root_mean_square(states[48]), 3),
                        fixed(cosine_similarity(states[48], states[0]), 3)});
    };
    row("pre-norm", experiment.hidden_states[0]);
    row("pre-norm, scaled",
        all_hidden_states(Arrangement::pre_norm, scaled, experiment.input, experiment.inputs));
    show_table({"RMS after layer", "1", "12", "48", "48: cos input"}, rows);
}

void apply_final_norm(const Experiment& e) {
    step("The final norm: every arrangement except post-norm needs one");
    std::vector<TableRow> rows;
    const RMSNorm norm = make_rms_norm(128, Real(1e-5));
    for (std::size_t which = 0; which < arrangements.size(); ++which)
        rows.push_back({arrangements[which].name, fixed(e.rms(which, 48), 3),
                        fixed(root_mean_square(norm(e.hidden_states[which][48])), 3)});
    show_table({"RMS after 48 layers", "without", "with a final norm"}, rows);
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10, intermediate_size = 0;
    Options options("08_pre_vs_post_norm", "Where do the norms go?");
    options.sizes(batch_size, seq_len, config);
    options.size("--intermediate-size", intermediate_size);

    return options.run(argc, argv, [&] {
        config = validate(config, seq_len);
        const std::size_t hidden_size = config.hidden_size;
        if (intermediate_size == 0)
            intermediate_size = llama_intermediate_size(hidden_size, 32);
        Generator generator(options.seed());
        const Tensor3 hidden_states = randn({batch_size, seq_len, hidden_size}, generator);
        const Weights weights(config, intermediate_size, generator);
        const RMSNorm norm = make_rms_norm(hidden_size, config.rms_norm_eps);
        const AttentionInputs inputs = causal_attention_inputs(config, batch_size, seq_len);

        run_pre_norm_block(weights, norm, hidden_states, inputs);
        compare_arrangements(weights, norm, hidden_states, inputs);
        compare_wrong_residuals(weights, norm, hidden_states, inputs);
        const Experiment experiment(std::sqrt(Real(3)), options.seed());
        measure_48_layers(experiment);
        plot_48_layers(experiment);
        compare_gains(options.seed());
        scale_residual_outputs(experiment);
        apply_final_norm(experiment);
    });
}
