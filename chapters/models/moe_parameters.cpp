#include "chapters/models/moe_parameters.hpp"

namespace llm {

std::uint64_t MoeParameterCount::total() const {
    return embedding + attention + router + experts + dense_mlp + norms + head;
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

    // gpt-oss has a bias in every matrix, and one sink per head.
    const std::uint64_t attention_biases =
        (biases ? H * D + 2 * Hkv * D + C : 0) + (sinks ? H : 0);
    const std::uint64_t expert = 3 * C * F + (biases ? 2 * F + C : 0);
    const std::uint64_t qk_norm = config.qk_norm == QKNormType::with_weights     ? 2 * D
                                  : config.qk_norm == QKNormType::over_all_heads ? (H + Hkv) * D
                                                                                 : 0;
    const bool sandwich = config.family->norm_placement == NormPlacement::sandwich;

    MoeParameterCount count;
    for (const LayerConfig& layer : config.layers) {
        count.attention += 2 * C * H * D + 2 * C * Hkv * D + attention_biases;
        count.norms += (sandwich ? 4 : 2) * C + qk_norm;
        if (!layer.is_moe) {
            count.dense_mlp += gated_mlp_parameters(C, config.intermediate_size);
            continue;
        }
        count.router += E * C + (biases ? E : 0);
        count.experts += E * expert;
        count.active_experts += config.experts.num_experts_per_tok * expert;
        count.dense_mlp += config.experts.n_shared_experts * expert;
    }
    count.norms += C;
    count.embedding = std::uint64_t(config.vocab_size) * C;
    count.tied = config.tie_word_embeddings;
    if (!count.tied) count.head = count.embedding;
    return count;
}

}  // namespace llm
