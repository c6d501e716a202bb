#include "chapters/13_training/ablations/variants.hpp"

#include <cmath>

namespace llm {
namespace {

using Norm = std::variant<RMSNorm, LayerNorm>;

Norm make_norm(const ModelConfig& config, const Choices& choices) {
    if (choices.layer_norm) return make_layer_norm(config.hidden_size, config.rms_norm_eps);
    return make_rms_norm(config.hidden_size, config.rms_norm_eps);
}

// A part of one kind or the other, with a gradient of the same kind.
template <class... Kinds>
Function trained(const std::variant<Kinds...>& part, std::variant<Kinds...>& gradient) {
    return std::visit(
        [&]<class Kind>(const Kind& one) { return trained(one, std::get<Kind>(gradient)); },
        part);
}

using Arranged = Taken (*)(const Matrix&, const Parts&);
Arranged arranged_as(Arrangement arrangement) {
    switch (arrangement) {
        case Arrangement::pre_norm:
            return pre_norm;
        case Arrangement::post_norm:
            return post_norm;
        case Arrangement::res_post_norm:
            return res_post_norm;
        case Arrangement::parallel:
            return parallel;
        case Arrangement::sandwich:
            break;
    }
    require(false, "training: this arrangement has no way back here");
    return nullptr;
}

// Visits every tensor that learns, with its name and whether it is a matrix.
template <class Visit>
void for_each_tensor(Variant& variant, const Visit& visit) {
    const auto linear = [&](const std::string& name, Linear& part) {
        visit(name, part.weight, true);
    };
    const auto norm = [&](const std::string& name, Norm& part) {
        std::visit([&](auto& one) { visit(name, one.weight, false); }, part);
        if (LayerNorm* one = std::get_if<LayerNorm>(&part))
            visit(name + " bias", *one->bias, false);
    };
    visit("embed_tokens", variant.embed_tokens, true);
    for (std::size_t n = 0; n < variant.layers.size(); ++n) {
        Variant::Layer& layer = variant.layers[n];
        const std::string at = "layers." + std::to_string(n) + ".";
        Projections& attention = layer.self_attn.projections;
        linear(at + "q_proj", attention.q_proj);
        linear(at + "k_proj", attention.k_proj);
        linear(at + "v_proj", attention.v_proj);
        linear(at + "o_proj", attention.o_proj);
        if (GatedMlp* mlp = std::get_if<GatedMlp>(&layer.mlp)) {
            linear(at + "gate_proj", mlp->gate_proj);
            linear(at + "up_proj", mlp->up_proj);
            linear(at + "down_proj", mlp->down_proj);
        } else {
            Mlp& plain = std::get<Mlp>(layer.mlp);
            linear(at + "up_proj", plain.up_proj);
            linear(at + "down_proj", plain.down_proj);
        }
        norm(at + "attention_norm", layer.attention_norm);
        if (variant.choices.arrangement != Arrangement::parallel)
            norm(at + "ffn_norm", layer.ffn_norm);
    }
    if (variant.choices.arrangement != Arrangement::post_norm) norm("norm", variant.norm);
}

}  // namespace

std::vector<std::pair<std::string, Arrangement>> trained_arrangements() {
    return {{"pre-norm", Arrangement::pre_norm},
            {"post-norm", Arrangement::post_norm},
            {"res-post-norm", Arrangement::res_post_norm},
            {"parallel", Arrangement::parallel}};
}

Variant make_variant(const ModelConfig& given, const Choices& choices, Real standard_deviation,
                     Generator& generator) {
    const ModelConfig config = complete(given);
    arranged_as(choices.arrangement);
    const Norm norm = make_norm(config, choices);
    Variant variant{
        config, choices, randn({config.vocab_size, config.hidden_size}, generator), {}, norm};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        const Sublayers sublayers = make_sublayers(config, config.intermediate_size, generator);
        const std::size_t plain_width = config.intermediate_size * 3 / 2;
        std::variant<GatedMlp, Mlp> mlp = sublayers.mlp;
        if (choices.plain_mlp)
            mlp = make_mlp(config.hidden_size, plain_width, false, relu, generator);
        variant.layers.push_back({sublayers.self_attn, mlp, norm, norm});
    }
    for_each_tensor(variant, [&](const std::string&, auto& tensor, bool is_matrix) {
        if (!is_matrix) return;
        const auto size = [&](std::size_t axis) {
            return static_cast<Real>(tensor.shape(axis));
        };
        const Real deviation = standard_deviation > 0
                                   ? standard_deviation
                                   : std::sqrt(2 / (size(0) + size(tensor.dimension() - 1)));
        generator.fill_normal({tensor.data(), tensor.size()});
        for (Real& number : tensor) number *= deviation;
    });
    return variant;
}

Variant zeros_like(const Variant& variant) {
    Variant zeros = variant;
    for_each_tensor(zeros, [](const std::string&, auto& tensor, bool) { tensor.fill(0); });
    return zeros;
}

std::vector<Parameter> parameters_of(Variant& variant, Variant& gradient) {
    std::vector<Parameter> parameters;
    for_each_tensor(variant, [&](const std::string& name, auto& tensor, bool is_matrix) {
        parameters.push_back({name, {tensor.data(), tensor.size()}, {}, is_matrix});
    });
    std::size_t p = 0;
    for_each_tensor(gradient, [&](const std::string&, auto& tensor, bool) {
        parameters.at(p++).gradients = {tensor.data(), tensor.size()};
    });
    return parameters;
}

double loss_and_gradients(const Variant& variant, const IdMatrix& inputs,
                          const IdMatrix& targets, Variant& gradient) {
    check_input(variant.config, inputs);
    Placement placement = causal_placement(variant.config, inputs.shape(0), inputs.shape(1));
    if (variant.choices.no_rope) placement.positions.fill(0);  // all stand at one place
    std::vector<Function> steps;
    for (std::size_t n = 0; n < variant.layers.size(); ++n) {
        const Variant::Layer& layer = variant.layers[n];
        Variant::Layer& its = gradient.layers[n];
        steps.push_back(block_of(
            arranged_as(variant.choices.arrangement),
            {trained(layer.self_attn, placement, its.self_attn), trained(layer.mlp, its.mlp),
             trained(layer.attention_norm, its.attention_norm),
             trained(layer.ffn_norm, its.ffn_norm)}));
    }
    if (variant.choices.arrangement != Arrangement::post_norm)
        steps.push_back(trained(variant.norm, gradient.norm));
    const Table table{variant.embed_tokens, gradient.embed_tokens};
    return there_and_back(inputs, targets, table, steps, table);
}

double loss_of(const Variant& variant, const IdMatrix& inputs, const IdMatrix& targets) {
    Variant ignored = zeros_like(variant);
    return loss_and_gradients(variant, inputs, targets, ignored);
}

}  // namespace llm
