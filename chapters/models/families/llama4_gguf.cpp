// Source: llama.cpp, convert_hf_to_gguf.py and the architecture llama4.
#include "chapters/models/families/llama4_gguf.hpp"

namespace llm::models {

Llama4Kinds kinds_of(const FamilyConfig& config) {
    Llama4Kinds kinds;
    for (const LayerConfig& layer : config.layers) {
        const AttentionConfig& attention = *attention_of(layer);
        if (!attention.rope) kinds.tuning = attention.temperature_tuning;
        if (const auto* chunked = std::get_if<ChunkedAttention>(&attention.pattern))
            kinds.chunk_size = chunked->chunk_size;
        kinds.qk_norm = kinds.qk_norm || attention.qk_norm == QKNormType::without_weights;
    }
    return kinds;
}

void set_kinds(FamilyConfig& config, const Llama4Kinds& kinds) {
    for (LayerConfig& layer : config.layers) {
        AttentionConfig& attention = *attention_of(layer);
        if (!attention.rope) {
            attention.temperature_tuning = kinds.tuning;
            continue;
        }
        attention.pattern = ChunkedAttention{kinds.chunk_size};
        attention.qk_norm = kinds.qk_norm ? QKNormType::without_weights : QKNormType::none;
    }
}

namespace {

// The number of layers up to the first with a mixture of experts, which llama.cpp expects to
// repeat.
std::size_t moe_step(const FamilyConfig& config) {
    std::size_t first = 0;
    while (first < config.layers.size() && !moe_of(config.layers[first])) ++first;
    return first + 1;
}

}  // namespace

void check_llama4_gguf(const FamilyConfig& config) {
    const Llama4Kinds kinds = kinds_of(config);
    const std::size_t num_experts =
        first_moe(config) ? first_moe(config)->sizes.num_experts : 0;
    require(kinds.tuning && kinds.tuning->floor_scale == 8192 &&
                kinds.tuning->attn_scale == Real(0.1),
            "export: llama.cpp's llama4 has a floor_scale of 8192 and an attn_scale of 0.1");
    require(kinds.qk_norm != (num_experts == 128),
            "export: llama.cpp's llama4 has no QK norm if it has 128 experts, and one "
            "otherwise");
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const AttentionConfig& attention = *attention_of(config.layers[n]);
        const auto* chunked = std::get_if<ChunkedAttention>(&attention.pattern);
        require(attention.rope.has_value() == ((n + 1) % 4 != 0) &&
                    (!chunked || chunked->chunk_size == 8192),
                "export: llama.cpp's llama4 has full attention without RoPE in layers 3, 7, "
                "... and chunks of 8192 in all others");
        require(bool(moe_of(config.layers[n])) == ((n + 1) % moe_step(config) == 0),
                "export: llama.cpp's llama4 has mixtures at equal distances, unlike layer {}",
                n);
    }
}

void add_llama4_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_experts(config, metadata);
    add_gguf_size(config, "interleave_moe_layer_step", moe_step(config), metadata);
}

void read_llama4_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const std::string step_key = "interleave_moe_layer_step", chunk = "attention.chunk_size";
    const std::size_t step = gguf.has(step_key) ? gguf.size(step_key) : 1;
    ExpertSizes sizes = read_gguf_experts(gguf, "expert_feed_forward_length");
    sizes.n_shared_experts = 1;
    set_experts(config, make_experts(config, sizes, InputSigmoidRouting{}),
                [&](std::size_t n) { return (n + 1) % step == 0; });
    for (std::size_t n = 3; n < config.layers.size(); n += 4)
        attention_of(config.layers[n])->rope.reset();
    set_kinds(config, {TemperatureTuning{}, gguf.has(chunk) ? gguf.size(chunk) : 8192,
                       sizes.num_experts != 128});
}

}  // namespace llm::models
