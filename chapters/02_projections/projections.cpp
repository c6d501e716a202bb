#include "chapters/02_projections/projections.hpp"

namespace llm {

Projections make_projections(const Config& config, Generator& generator) {
    const std::size_t hidden_size = config.hidden_size;
    const std::size_t query_width = config.num_attention_heads * config.head_dim;  // H*D
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;     // Hkv*D
    const bool qkv_bias = config.attention_bias != AttentionBias::none;
    const bool output_bias = config.attention_bias == AttentionBias::qkvo;

    Projections projections;
    projections.q_proj = make_linear(hidden_size, query_width, qkv_bias, generator);
    projections.k_proj = make_linear(hidden_size, kv_width, qkv_bias, generator);
    projections.v_proj = make_linear(hidden_size, kv_width, qkv_bias, generator);
    projections.o_proj = make_linear(query_width, hidden_size, output_bias, generator);
    return projections;
}

}  // namespace llm
