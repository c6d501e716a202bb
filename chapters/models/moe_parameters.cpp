#include "chapters/models/moe_parameters.hpp"

#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"

namespace llm::models {

std::uint64_t MoeParameterCount::total() const {
    return embedding + positions + attention + router + experts + dense_mlp + norms + head;
}

std::uint64_t MoeParameterCount::active() const {
    return attention + router + active_experts + dense_mlp + norms + (tied ? embedding : head);
}

MoeParameterCount count_parameters(const PublishedConfig& config) {
    const std::uint64_t C = config.hidden_size, D = config.head_dim;
    const std::uint64_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const std::uint64_t E = config.experts.num_experts,
                        F = config.experts.moe_intermediate_size;
    const bool biases = config.family->has_biases, sinks = !config.family->names.sinks.empty();

    // gpt-oss and GPT-2 have a bias in every matrix, gpt-oss one sink per head.
    const std::uint64_t attention_biases =
        (biases ? H * D + 2 * Hkv * D + C : 0) + (sinks ? H : 0);
    const std::uint64_t expert = 3 * C * F + (biases ? 2 * F + C : 0);
    const std::uint64_t width = config.intermediate_size;
    const std::uint64_t dense_mlp = config.family->mlp_has_gate
                                        ? gated_mlp_parameters(C, width)
                                        : mlp_parameters(C, width) + (biases ? width + C : 0);
    const std::uint64_t qk_norm = config.qk_norm == QKNormType::with_weights     ? 2 * D
                                  : config.qk_norm == QKNormType::over_all_heads ? (H + Hkv) * D
                                                                                 : 0;
    const NormPlacement placement = config.family->norm_placement;
    const std::uint64_t norms = placement == NormPlacement::sandwich   ? 4
                                : placement == NormPlacement::parallel ? 1
                                                                       : 2;
    const std::uint64_t norm = config.family->norm_type == NormType::layer_norm ? 2 * C : C;

    MoeParameterCount count;
    for (const LayerConfig& layer : config.layers) {
        if (layer.is_linear) {
            const std::uint64_t norm_of_heads = config.linear->value_head_dim;
            count.attention += linear_parameters(*config.linear) - norm_of_heads;
            count.norms += norm_of_heads;
        } else if (config.latent) {
            count.attention += attention_cost(*config.latent, 1).parameters;
            count.norms += config.latent->kv_lora_rank + config.latent->q_lora_rank.value_or(0);
        } else {
            count.attention += 2 * C * H * D + 2 * C * Hkv * D + attention_biases +
                               (config.family->output_gate ? C * H * D : 0);
            count.norms += qk_norm;
        }
        count.norms += norms * norm;
        if (!layer.is_moe) {
            count.dense_mlp += dense_mlp;
            continue;
        }
        count.router += E * C + (biases ? E : 0);
        count.experts += E * expert;
        count.active_experts += config.experts.num_experts_per_tok * expert;
        const ExpertSizes& experts = config.experts;
        if (experts.n_shared_experts > 0)
            count.dense_mlp += gated_mlp_parameters(C, experts.shared_width());
        if (!config.family->names.shared_gate.empty()) count.dense_mlp += C;
    }
    count.norms += norm;
    count.embedding = std::uint64_t(config.vocab_size) * C;
    if (config.family->learned_positions)
        count.positions = std::uint64_t(config.max_position_embeddings) * C;
    count.tied = config.tie_word_embeddings;
    if (!count.tied) count.head = count.embedding;
    return count;
}

}  // namespace llm::models
