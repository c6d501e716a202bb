#include "chapters/18_experts/mixture_counts.hpp"

namespace llm {

std::uint64_t MixtureCount::total() const {
    return embedding + attention + router + experts + dense_mlp + norms + head;
}

std::uint64_t MixtureCount::active() const {
    return attention + router + active_experts + dense_mlp + norms + (tied ? embedding : head);
}

MixtureCount count_parameters(const MixtureConfig& given) {
    const Config& config = given.config;
    const std::uint64_t C = config.hidden_size, D = config.head_dim;
    const std::uint64_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const std::uint64_t E = given.sizes.num_experts, F = given.sizes.moe_intermediate_size;
    const bool gpt_oss = given.model_type == MixtureModelType::gpt_oss;

    // gpt-oss has a bias in every matrix, and one sink per head.
    const std::uint64_t attention_biases = gpt_oss ? H * D + 2 * Hkv * D + C + H : 0;
    const std::uint64_t expert = 3 * C * F + (gpt_oss ? 2 * F + C : 0);
    const std::uint64_t qk_norm = config.qk_norm == QKNormType::with_weights ? 2 * D : 0;

    MixtureCount count;
    for (const bool is_mixture : given.is_mixture) {
        count.attention += 2 * C * H * D + 2 * C * Hkv * D + attention_biases;
        count.norms += 2 * C + qk_norm;
        if (!is_mixture) {
            count.dense_mlp += gated_mlp_parameters(C, config.intermediate_size);
            continue;
        }
        count.router += E * C + (gpt_oss ? E : 0);
        count.experts += E * expert;
        count.active_experts += given.sizes.num_experts_per_tok * expert;
        count.dense_mlp += given.sizes.n_shared_experts * expert;
    }
    count.norms += C;
    count.embedding = std::uint64_t(config.vocab_size) * C;
    count.tied = config.tie_word_embeddings;
    if (!count.tied) count.head = count.embedding;
    return count;
}

}  // namespace llm
