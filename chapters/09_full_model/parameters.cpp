#include "chapters/09_full_model/parameters.hpp"

namespace llm {
void add_parameters(ParameterList& list, const std::string& name, Matrix& matrix) {
    add_tensor(list, name, matrix);
}

void add_parameters(ParameterList& list, const std::string& name, Linear& linear) {
    add_tensor(list, name + ".weight", linear.weight);
    if (linear.bias) add_tensor(list, name + ".bias", *linear.bias);
}

void add_parameters(ParameterList& list, const std::string& name, RMSNorm& norm) {
    add_tensor(list, name + ".weight", norm.weight);
    if (norm.bias) add_tensor(list, name + ".bias", *norm.bias);
}

void add_parameters(ParameterList& list, const std::string& name, AttentionLayer& layer) {
    auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    add_parameters(list, name + ".q_proj", q_proj);
    add_parameters(list, name + ".k_proj", k_proj);
    add_parameters(list, name + ".v_proj", v_proj);
    add_parameters(list, name + ".o_proj", o_proj);
    if (auto* norm = std::get_if<QKNormWithWeights>(&layer.qk_norm)) {
        add_tensor(list, name + ".q_norm.weight", norm->q_weight);
        add_tensor(list, name + ".k_norm.weight", norm->k_weight);
    }
}

void add_parameters(ParameterList& list, const std::string& name, GatedMlp& mlp) {
    add_parameters(list, name + ".gate_proj", mlp.gate_proj);
    add_parameters(list, name + ".up_proj", mlp.up_proj);
    add_parameters(list, name + ".down_proj", mlp.down_proj);
}

std::vector<ConstParameter> named_parameters(const Model& model) {
    std::vector<ConstParameter> list;
    for (const auto& [name, shape, values] : named_parameters(const_cast<Model&>(model)))
        list.push_back({name, shape, values});  // read-only from here on
    return list;
}

ParameterCount count_parameters(const Config& given) {
    const Config config = validate_model(given);
    const std::uint64_t C = config.hidden_size, L = config.num_hidden_layers;
    const std::uint64_t query_width = config.num_attention_heads * config.head_dim;  // H*D
    const std::uint64_t kv_width = config.num_key_value_heads * config.head_dim;     // Hkv*D

    ParameterCount count;
    count.embedding = config.vocab_size * C;
    count.attention = L * (2 * query_width * C + 2 * kv_width * C);  // q and o, k and v
    if (config.attention_bias != AttentionBias::none)
        count.attention += L * (query_width + 2 * kv_width);
    if (config.attention_bias == AttentionBias::qkvo) count.attention += L * C;
    count.mlp = L * gated_mlp_parameters(C, config.intermediate_size);
    count.norms = L * 2 * C + C;
    if (config.qk_norm == QKNormType::with_weights) count.norms += L * 2 * config.head_dim;
    if (config.qk_norm == QKNormType::over_all_heads)
        count.norms += L * (query_width + kv_width);
    if (!config.tie_word_embeddings) count.head = config.vocab_size * C;
    return count;
}

ParameterCount count_parameters(const Model& model) {
    ParameterCount count;
    for (const ConstParameter& parameter : named_parameters(model)) {
        const auto has = [&](const char* part) {
            return parameter.name.find(part) != std::string::npos;
        };
        (has("norm")        ? count.norms
         : has("self_attn") ? count.attention
         : has("mlp")       ? count.mlp
         : has("lm_head")   ? count.head
                            : count.embedding) += parameter.values.size();
    }
    return count;
}

std::uint64_t flops_per_token(const Config& given, std::size_t position) {
    Config config = validate_model(given);
    config.attention_bias = AttentionBias::none;  // adding a bias is not counted
    const ParameterCount count = count_parameters(config);

    // A tied head is a matrix product, too. Selecting a row of the embedding takes no FLOPs.
    const std::uint64_t head = std::uint64_t{config.vocab_size} * config.hidden_size;
    const std::uint64_t matrices = count.attention + count.mlp + head;
    const std::uint64_t attended = std::uint64_t{position + 1} * config.num_hidden_layers *
                                   config.num_attention_heads * config.head_dim;
    return 2 * matrices + 4 * attended;  // 2 for the score, 2 for the weighted sum
}

}  // namespace llm
