#include "chapters/01_masking/config.hpp"

namespace llm {

Config validate(Config config, std::size_t seq_len) {
    const std::size_t heads = config.num_attention_heads;
    require(config.hidden_size > 0 && heads > 0 && config.num_key_value_heads > 0,
            "config: hidden_size {}, num_attention_heads {} and num_key_value_heads {} must "
            "all be positive",
            config.hidden_size, heads, config.num_key_value_heads);
    require(heads % config.num_key_value_heads == 0,
            "config: {} key/value heads do not divide {} query heads",
            config.num_key_value_heads, heads);
    require(config.head_dim > 0 || config.hidden_size % heads == 0,
            "config: {} query heads do not divide a hidden size of {}", heads,
            config.hidden_size);
    require(seq_len <= config.max_position_embeddings,
            "config: a sequence of {} tokens exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    if (config.head_dim == 0) config.head_dim = config.hidden_size / heads;
    return config;
}

}  // namespace llm
