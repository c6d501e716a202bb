#include "chapters/24_parallel/demo/published_configs.hpp"

namespace llm {
namespace {

Config llama(std::size_t hidden_size, std::size_t intermediate_size, std::size_t num_layers,
             std::size_t num_heads, bool tied) {
    Config config = mini_llm_config();
    config.hidden_size = hidden_size;
    config.intermediate_size = intermediate_size;
    config.num_hidden_layers = num_layers;
    config.num_attention_heads = num_heads;
    config.num_key_value_heads = 8;
    config.head_dim = hidden_size / num_heads;
    config.max_position_embeddings = 131'072;
    config.vocab_size = 128'256;
    config.tie_word_embeddings = tied;
    return validate_model(config);
}

}  // namespace

const std::vector<PublishedConfig>& published_configs() {
    static const std::vector<PublishedConfig> models = {
        {"llama_3.2_1b", "Llama 3.2 1B", llama(2048, 8192, 16, 32, true)},
        {"llama_3.1_8b", "Llama 3.1 8B", llama(4096, 14336, 32, 32, false)},
        {"llama_3.1_70b", "Llama 3.1 70B", llama(8192, 28672, 80, 64, false)},
        {"llama_3.1_405b", "Llama 3.1 405B", llama(16384, 53248, 126, 128, false)}};
    return models;
}

}  // namespace llm
