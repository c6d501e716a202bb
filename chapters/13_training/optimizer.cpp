#include "chapters/13_training/optimizer.hpp"

#include <cmath>
#include <numbers>

namespace llm {

namespace {

// A list of parameters that is being made.
struct ParameterList {
    std::vector<Parameter> parameters;

    template <class Tensor>
    void add(const std::string& name, Tensor& tensor, Tensor& gradient, bool decays) {
        require(tensor.shape() == gradient.shape(), "optimizer: {} of {} and a gradient of {}",
                name, tensor.shape(), gradient.shape());
        parameters.push_back(
            {name, {tensor.data(), tensor.size()}, {gradient.data(), gradient.size()}, decays});
    }
    void add(const std::string& name, Linear& linear, Linear& gradient) {
        add(name + ".weight", linear.weight, gradient.weight, true);
        if (linear.bias) add(name + ".bias", *linear.bias, *gradient.bias, false);
    }
    void add(const std::string& name, RMSNorm& norm, RMSNorm& gradient) {
        add(name + ".weight", norm.weight, gradient.weight, false);
    }
    void add(const std::string& name, PreNormBlock& layer, PreNormBlock& gradient) {
        Projections& attention = layer.self_attn.projections;
        Projections& its = gradient.self_attn.projections;
        add(name + "input_layernorm", layer.attention_norm, gradient.attention_norm);
        add(name + "self_attn.q_proj", attention.q_proj, its.q_proj);
        add(name + "self_attn.k_proj", attention.k_proj, its.k_proj);
        add(name + "self_attn.v_proj", attention.v_proj, its.v_proj);
        add(name + "self_attn.o_proj", attention.o_proj, its.o_proj);
        add(name + "post_attention_layernorm", layer.ffn_norm, gradient.ffn_norm);
        add(name + "mlp.gate_proj", layer.mlp.gate_proj, gradient.mlp.gate_proj);
        add(name + "mlp.up_proj", layer.mlp.up_proj, gradient.mlp.up_proj);
        add(name + "mlp.down_proj", layer.mlp.down_proj, gradient.mlp.down_proj);
    }
};

}  // namespace

std::vector<Parameter> parameters_of(Model& model, Model& gradient) {
    ParameterList list;
    list.add("model.embed_tokens.weight", model.embed_tokens, gradient.embed_tokens, true);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        list.add("model.layers." + std::to_string(n) + ".", model.layers[n],
                 gradient.layers[n]);
    list.add("model.norm", model.norm, gradient.norm);
    if (model.lm_head) list.add("lm_head.weight", *model.lm_head, *gradient.lm_head, true);
    return list.parameters;
}

Model zeros_like(const Model& model) {
    Model zeros = model;
    clear_gradients(parameters_of(zeros, zeros));
    return zeros;
}

void clear_gradients(const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters)
        std::fill(parameter.gradients.begin(), parameter.gradients.end(), Real(0));
}

double gradient_norm(const std::vector<Parameter>& parameters) {
    double squares = 0;
    for (const Parameter& parameter : parameters)
        for (const Real g : parameter.gradients) squares += double(g) * double(g);
    return std::sqrt(squares);
}

double clip_gradients(const std::vector<Parameter>& parameters, double longest) {
    const double norm = gradient_norm(parameters);
    const Real scale = static_cast<Real>(longest / (norm + 1e-6));
    if (scale < 1)
        for (const Parameter& parameter : parameters)
            for (Real& g : parameter.gradients) g *= scale;
    return norm;
}

void AdamW::begin(const std::vector<Parameter>& parameters) {
    steps = 0;
    mean.clear();
    for (const Parameter& parameter : parameters)
        mean.emplace_back(parameter.numbers.size(), Real(0));
    mean_square = mean;
}

void AdamW::step(const std::vector<Parameter>& parameters, Real learning_rate) {
    if (mean.empty()) begin(parameters);
    require(mean.size() == parameters.size(),
            "AdamW: {} parameters, but {} in the steps before", parameters.size(), mean.size());
    ++steps;

    // The means began at 0, so the first ones are too small: by this much.
    const double count = static_cast<double>(steps);
    const Real mean_share = static_cast<Real>(1 - std::pow(double(beta1), count));
    const Real square_share = static_cast<Real>(std::sqrt(1 - std::pow(double(beta2), count)));

    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const Parameter& parameter = parameters[p];
        require(mean[p].size() == parameter.numbers.size(),
                "AdamW: {} has another size than before", parameter.name);
        // Decay apart from the gradient, which the next lines divide by its own size.
        const Real kept = parameter.decays ? 1 - learning_rate * weight_decay : 1;
        for (std::size_t i = 0; i < parameter.numbers.size(); ++i) {
            const Real g = parameter.gradients[i];
            Real& m = mean[p][i];
            Real& v = mean_square[p][i];
            m = beta1 * m + (1 - beta1) * g;
            v = beta2 * v + (1 - beta2) * g * g;
            parameter.numbers[i] =
                kept * parameter.numbers[i] -
                learning_rate * (m / mean_share) / (std::sqrt(v) / square_share + eps);
        }
    }
}

Real Schedule::at(std::size_t step) const {
    require(warmup_steps < steps, "schedule: a warm-up of {} steps does not fit into {}",
            warmup_steps, steps);
    if (step < warmup_steps)
        return highest * static_cast<Real>(step + 1) / static_cast<Real>(warmup_steps);
    const double done =
        std::min(1.0, double(step - warmup_steps) / double(steps - warmup_steps));
    const double share = (1 + std::cos(std::numbers::pi * done)) / 2;
    return lowest + static_cast<Real>(share) * (highest - lowest);
}

}  // namespace llm
