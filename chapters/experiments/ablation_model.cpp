#include "chapters/experiments/ablation_model.hpp"

#include <cmath>

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"

namespace llm {
using namespace models;

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
    AblationModel model{{config, ablation},
                        randn({config.vocab_size, config.hidden_size}, generator),
                        {},
                        make_final_norm(config, ablation),
                        std::nullopt};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        model.layers.push_back(make_ablation_block(config, ablation, generator));
    init_weights(model, init, generator);
    return model;
}

std::vector<RotaryTable> rotary_tables(const AblationModelConfig& config,
                                       std::size_t num_positions) {
    const Config& sizes = config;
    RotaryTable table = rotary_tables(sizes, num_positions).front();
    if (!config.ablation.use_rope) {
        table.cos.fill(1);
        table.sin.fill(0);
    }
    return {table};
}

}  // namespace llm
