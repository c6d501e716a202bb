#include "chapters/09_full_model/checkpoint.hpp"

#include "common/files/safetensors.hpp"

namespace llm {

AttentionLayer empty_attention_layer(const Config& config) {
    const bool qkv_bias = config.attention_bias != AttentionBias::none;
    const bool o_bias = config.attention_bias == AttentionBias::qkvo;
    AttentionLayer result{config.num_attention_heads,
                          config.num_key_value_heads,
                          {empty_linear(qkv_bias), empty_linear(qkv_bias),
                           empty_linear(qkv_bias), empty_linear(o_bias)}};
    if (config.qk_norm == QKNormType::with_weights ||
        config.qk_norm == QKNormType::over_all_heads)
        result.qk_norm = QKNormWithWeights{{}, {}, config.rms_norm_eps};
    if (config.qk_norm == QKNormType::without_weights)
        result.qk_norm = QKNormWithoutWeights{config.rms_norm_eps};
    return result;
}

Model make_empty_model(const Config& config) {
    const RMSNorm norm{{}, config.rms_norm_eps};
    const GatedMlp mlp{empty_linear(false), empty_linear(false), empty_linear(false)};
    Model model{config, {}, {}, norm, {}};
    model.layers.assign(config.num_hidden_layers,
                        {empty_attention_layer(config), mlp, norm, norm});
    if (!config.tie_word_embeddings) model.lm_head = Matrix{};
    return model;
}

void save_parameters(const std::vector<Parameter>& parameters, const std::string& file,
                     DType dtype) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : parameters)
        tensors.push_back({name, shape, values});
    write_safetensors(file, tensors, dtype);
}

void load_parameters(const std::string& file, const std::vector<Parameter>& parameters) {
    const SafeTensors tensors(file);
    for (const auto& [name, shape, values] : parameters) tensors.read(name, shape, values);
    if (const auto unread = tensors.unread(); !unread.empty())
        throw FileError(file + ": the model has no tensor " + unread.front());
}

}  // namespace llm
