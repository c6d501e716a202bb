#include "chapters/08_pre_vs_post_norm/demo/depth.hpp"

#include <cmath>
#include <set>

#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// "48 layers"
std::string layers_text(std::size_t count) {
    return to_text(count) + (count == 1 ? " layer" : " layers");
}

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

// The hidden states before the first layer and after each layer: L + 1 times (B, T, C).
std::vector<Tensor3> all_hidden_states(NormPlacement placement,
                                       const std::vector<Weights>& layers,
                                       const Tensor3& hidden_states,
                                       const AttentionInputs& inputs) {
    std::vector<Tensor3> result = {hidden_states};
    for (const auto& [self_attn, mlp] : layers) {
        const Block block = make_block(placement, self_attn, mlp, Real(1e-5));
        result.push_back(apply(block, result.back(), inputs));
    }
    return result;
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

// The norm placements that are compared: all, or the one of the options.
std::vector<NamedNormPlacement> compared_placements(const DepthOptions& options) {
    std::vector<NamedNormPlacement> compared;
    for (const NamedNormPlacement& named : placements)
        if (options.norm_placement == "all" || options.norm_placement == named.name)
            compared.push_back(named);
    return compared;
}

// An input and a perturbed copy of it, run through all layers with each norm placement. The
// other sizes are the default ones.
struct Experiment {
    std::vector<NamedNormPlacement> compared;
    std::vector<Weights> layers;
    AttentionInputs inputs = causal_attention_inputs(validate(Config{}, 10), 1, 10);
    Tensor3 input, perturbation;  // (1, 10, 128)

    // The hidden states of each norm placement, L + 1 times (1, 10, 128).
    std::vector<std::vector<Tensor3>> hidden_states, perturbed_hidden_states;

    Experiment(Real gain, const DepthOptions& options, std::uint32_t seed)
        : compared(compared_placements(options)),
          hidden_states(compared.size()),
          perturbed_hidden_states(compared.size()) {
        Generator generator(seed);
        input = randn({1, 10, 128}, generator);
        perturbation = randn({1, 10, 128}, generator) * Real(0.001);
        for (std::size_t layer = 0; layer < options.num_hidden_layers; ++layer)
            layers.push_back(with_gain({validate(Config{}, 10), 352, generator}, gain));
        const Tensor3 perturbed_input = input + perturbation;
        parallel_for(2 * compared.size(), [&](std::size_t i) {
            const NormPlacement placement = compared[i / 2].placement;
            (i % 2 == 0 ? hidden_states : perturbed_hidden_states)[i / 2] = all_hidden_states(
                placement, layers, i % 2 == 0 ? input : perturbed_input, inputs);
        });
    }

    // The layers after which the tables show measurements: 1, 12 and 48 of 48.
    std::set<std::size_t> shown_layers() const {
        return {1, std::max<std::size_t>(1, layers.size() / 4), layers.size()};
    }

    // Measurements of a norm placement's residual stream after a layer.
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

// A measurement after each layer, one line for each norm placement.
LinePlot plot_layers(const std::string& title, const Experiment& experiment, auto measurement) {
    LinePlot panel{title, "layer", "", {}};
    std::size_t which = 0;
    for (const NamedNormPlacement& named : placements) {
        Line& line = panel.lines.emplace_back();  // an empty one skips the color of the others
        if (which == experiment.compared.size() ||
            experiment.compared[which].name != named.name)
            continue;
        line.label = named.name;
        for (std::size_t layer = 1; layer <= experiment.layers.size(); ++layer) {
            line.x.push_back(static_cast<double>(layer));
            line.y.push_back((experiment.*measurement)(which, layer));
        }
        ++which;
    }
    return panel;
}

void plot_depths(const Experiment& e) {
    plot("depth",
         {plot_layers("RMS of the residual stream", e, &Experiment::rms),
          plot_layers("Update relative to the input", e, &Experiment::relative_update)});
    LinePlot sensitivity =
        plot_layers("Sensitivity to a change of the input", e, &Experiment::sensitivity);
    sensitivity.log_y = true;
    plot("sensitivity", {sensitivity});
}

// Two or three digits: more would differ between processors.
std::string short_factor(double factor) {
    return factor > 1000 ? ">1000" : fixed(factor, factor < 10 ? 2 : 0);
}

void measure_depths(const Experiment& e) {
    step("The residual stream over " + layers_text(e.layers.size()) +
         " of random weights (gain √3)");
    std::vector<TableRow> rows;
    for (std::size_t which = 0; which < e.compared.size(); ++which)
        for (const std::size_t layer : e.shown_layers())
            rows.push_back({e.compared[which].name, std::to_string(layer),
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

void compare_gains(const DepthOptions& options, std::uint32_t seed) {
    const std::size_t num_layers = options.num_hidden_layers;
    step("Sensitivity after " + layers_text(num_layers) +
         ", PyTorch's initial weights times a gain");
    TableRow headings = {"gain"};
    for (const auto& named : compared_placements(options)) headings.push_back(named.name);
    std::vector<TableRow> rows;
    for (const Real gain : {Real(1), std::sqrt(Real(3)), Real(3)}) {
        const Experiment experiment(gain, options, seed);
        rows.push_back({fixed(gain, 2)});
        for (std::size_t which = 0; which < experiment.compared.size(); ++which)
            rows.back().push_back(short_factor(experiment.sensitivity(which, num_layers)));
    }
    show_table(headings, rows);
}

void scale_residual_outputs(const Experiment& experiment) {
    step("GPT-2's initialization: o_proj and down_proj scaled by 1/√(2L)");
    std::vector<Weights> scaled = experiment.layers;
    for (auto& [self_attn, mlp] : scaled)
        for (Linear* linear : {&self_attn.projections.o_proj, &mlp.down_proj})
            *linear = scale_for_depth(*linear, scaled.size());

    TableRow headings = {"RMS after layer"};
    for (const std::size_t layer : experiment.shown_layers())
        headings.push_back(to_text(layer));
    headings.push_back(to_text(scaled.size()) + ": cos input");
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, const std::vector<Tensor3>& states) {
        rows.push_back({name});
        for (const std::size_t layer : experiment.shown_layers())
            rows.back().push_back(fixed(root_mean_square(states[layer]), 3));
        rows.back().push_back(fixed(cosine_similarity(states.back(), states[0]), 3));
    };
    const auto& [name, placement] = experiment.compared[0];
    row(name, experiment.hidden_states[0]);
    row(name + ", scaled",
        all_hidden_states(placement, scaled, experiment.input, experiment.inputs));
    show_table(headings, rows);
}

void apply_final_norm(const Experiment& e) {
    step("The final norm: every norm placement except post-norm needs one");
    std::vector<TableRow> rows;
    const RMSNorm norm = make_rms_norm(128, Real(1e-5));
    const std::size_t num_layers = e.layers.size();
    for (std::size_t which = 0; which < e.compared.size(); ++which)
        rows.push_back({e.compared[which].name, fixed(e.rms(which, num_layers), 3),
                        fixed(root_mean_square(norm(e.hidden_states[which].back())), 3)});
    show_table({"RMS after " + layers_text(num_layers), "without", "with a final norm"}, rows);
}

}  // namespace

void compare_depths(const DepthOptions& options, std::uint32_t seed) {
    const Experiment experiment(std::sqrt(Real(3)), options, seed);
    measure_depths(experiment);
    plot_depths(experiment);
    apply_final_norm(experiment);
    compare_gains(options, seed);
    scale_residual_outputs(experiment);
}

}  // namespace llm
