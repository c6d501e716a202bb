#include "chapters/13_training/ablations/ablation_model.hpp"

#include <cmath>

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

namespace llm {

Tensor3 block_forward(const AblationBlock& block, const Tensor3& hidden_states,
                      const AttentionInputs& inputs, BlockActivations& saved,
                      Generator* dropout_generator) {
    return std::visit(
        [&](const auto& typed_block) {
            return block_forward(typed_block, hidden_states, inputs, saved, dropout_generator);
        },
        block);
}

Tensor3 block_backward(const AblationBlock& block, const AttentionInputs& inputs,
                       const BlockActivations& saved, const Tensor3& output_gradient,
                       AblationBlock& gradient) {
    return std::visit(
        [&]<class BlockType>(const BlockType& typed_block) {
            return block_backward(typed_block, inputs, saved, output_gradient,
                                  std::get<BlockType>(gradient));
        },
        block);
}

namespace {

template <class Norm, class MlpLayer>
AblationBlock pre_norm_block(const AttentionLayer& self_attn, const MlpLayer& mlp,
                             const Norm& norm) {
    return PreNormBlockWith<Norm, MlpLayer>{self_attn, mlp, norm, norm};
}

// Makes one block. Variants whose matrices have the same shapes make the same calls of the
// generator, so that they start with the same weights.
AblationBlock make_ablation_block(const Config& config, const AblationConfig& ablation,
                                  Generator& generator) {
    const std::size_t C = config.hidden_size, F = config.intermediate_size;
    const AttentionLayer self_attn = make_attention_layer(config, generator);
    const GatedMlp gated_mlp = make_gated_mlp(C, F, false, SiLU, generator);
    const RMSNorm rms_norm = make_rms_norm(C, config.rms_norm_eps);
    const LayerNorm layer_norm = make_layer_norm(C, config.rms_norm_eps);
    if (!ablation.relu_mlp) {
        if (ablation.layer_norm) return pre_norm_block(self_attn, gated_mlp, layer_norm);
        return std::visit(
            [](auto block) { return AblationBlock(std::move(block)); },
            make_block(ablation.norm_placement, self_attn, gated_mlp, config.rms_norm_eps));
    }
    const Mlp mlp = make_mlp(C, F * 3 / 2, false, ReLU, generator);
    if (ablation.layer_norm) return pre_norm_block(self_attn, mlp, layer_norm);
    return pre_norm_block(self_attn, mlp, rms_norm);
}

// Samples all matrices from a normal distribution. Norm weights stay 1.
void init_weights(AblationModel& model, WeightInit init, Generator& generator) {
    for (const auto& [name, shape, values] : named_parameters(model)) {
        if (shape.size() != 2) continue;
        const Real fan_sum = static_cast<Real>(shape[0] + shape[1]);
        const Real standard_deviation =
            init == WeightInit::normal ? Real(0.02) : std::sqrt(2 / fan_sum);
        generator.fill_normal(values);
        for (Real& value : values) value *= standard_deviation;
    }
}

FinalNorm make_final_norm(const Config& config, const AblationConfig& ablation) {
    if (ablation.norm_placement == NormPlacement::post_norm) return std::monostate{};
    if (ablation.layer_norm) return make_layer_norm(config.hidden_size, config.rms_norm_eps);
    return make_rms_norm(config.hidden_size, config.rms_norm_eps);
}

}  // namespace

AblationModel make_ablation_model(const Config& given, const AblationConfig& ablation,
                                  WeightInit init, Generator& generator) {
    const Config config = validate_model(given);
    require(ablation.norm_placement == NormPlacement::pre_norm ||
                !(ablation.layer_norm || ablation.relu_mlp),
            "ablation: LayerNorm and Mlp are supported in pre-norm blocks only");
    AblationModel model{config,
                        ablation,
                        randn({config.vocab_size, config.hidden_size}, generator),
                        {},
                        make_final_norm(config, ablation)};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        model.layers.push_back(make_ablation_block(config, ablation, generator));
    init_weights(model, init, generator);
    return model;
}

std::vector<Parameter> named_parameters(AblationModel& model) {
    ParameterList list;
    add_parameters(list, "model.embed_tokens.weight", model.embed_tokens);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        std::visit(
            [&](auto& block) {
                add_parameters(list, "model.layers." + std::to_string(n), block);
            },
            model.layers[n]);
    if (auto* norm = std::get_if<RMSNorm>(&model.norm))
        add_parameters(list, "model.norm", *norm);
    if (auto* norm = std::get_if<LayerNorm>(&model.norm))
        add_parameters(list, "model.norm", *norm);
    return list;
}

namespace {

Tensor3 apply_norm(const FinalNorm& norm, const Tensor3& hidden_states) {
    if (const auto* rms_norm = std::get_if<RMSNorm>(&norm)) return (*rms_norm)(hidden_states);
    if (const auto* layer_norm = std::get_if<LayerNorm>(&norm))
        return (*layer_norm)(hidden_states);
    return hidden_states;
}

Tensor3 final_norm_backward(const FinalNorm& norm, const Tensor3& input,
                            const Tensor3& output_gradient, FinalNorm& gradient) {
    if (const auto* rms_norm = std::get_if<RMSNorm>(&norm))
        return norm_backward(*rms_norm, input, output_gradient, std::get<RMSNorm>(gradient));
    if (const auto* layer_norm = std::get_if<LayerNorm>(&norm))
        return norm_backward(*layer_norm, input, output_gradient,
                             std::get<LayerNorm>(gradient));
    return output_gradient;
}

// Returns the logits, (B, T, V). run_layers is the loop over the layers from chapter 09.
Tensor3 forward(const AblationModel& model, const IdMatrix& input_ids,
                ModelActivations& saved) {
    check_input(model.config, input_ids);
    const auto [batch_size, seq_len] = dims(input_ids);
    saved.input_ids = input_ids;
    saved.attention_inputs = causal_attention_inputs(model.config, batch_size, seq_len);
    if (!model.ablation.use_rope) saved.attention_inputs.position_ids.fill(0);
    saved.layers.resize(model.layers.size());
    std::vector<SavingLayer<AblationBlock, BlockActivations>> layers;
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        layers.push_back({&model.layers[n], &saved.layers[n]});
    saved.last_hidden_state =
        run_layers(layers, embedding(model.embed_tokens, input_ids), saved.attention_inputs)
            .last_hidden_state;
    saved.normalized = apply_norm(model.norm, saved.last_hidden_state);
    return lm_head(model.embed_tokens, saved.normalized);
}

}  // namespace

double forward_backward(const AblationModel& model, const IdMatrix& input_ids,
                        const IdMatrix& targets, AblationModel& gradient) {
    ModelActivations saved;
    const Tensor3 logits = forward(model, input_ids, saved);
    const Tensor3 normalized_gradient =
        lm_head_backward(model.embed_tokens, saved.normalized,
                         cross_entropy_backward(logits, targets), gradient.embed_tokens);
    Tensor3 hidden_gradient = final_norm_backward(model.norm, saved.last_hidden_state,
                                                  normalized_gradient, gradient.norm);
    for (std::size_t n = model.layers.size(); n-- > 0;)
        hidden_gradient = block_backward(model.layers[n], saved.attention_inputs,
                                         saved.layers[n], hidden_gradient, gradient.layers[n]);
    embedding_backward(input_ids, hidden_gradient, gradient.embed_tokens);
    return cross_entropy(logits, targets);
}

double evaluate_loss(const AblationModel& model, const IdMatrix& input_ids,
                     const IdMatrix& targets) {
    ModelActivations saved;
    return cross_entropy(forward(model, input_ids, saved), targets);
}

}  // namespace llm
