#include "chapters/09_full_model/checkpoint.hpp"

#include <algorithm>
#include <set>

#include "chapters/09_full_model/config_json.hpp"
#include "chapters/09_full_model/gguf_tensors.hpp"
#include "chapters/09_full_model/llama2c.hpp"
#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/09_full_model/parameters.hpp"

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

void reject_unread_tensors(const SafeTensors& tensors, const JsonFile& json,
                           const std::string& lm_head, const Matrix& embed_tokens,
                           const std::vector<std::string>& unused) {
    for (const std::string& name : tensors.unread()) {
        if (name.ends_with(".rotary_emb.inv_freq") || name == "rope.freqs_cis") continue;
        if (std::any_of(unused.begin(), unused.end(), [&](const std::string& part) {
                return name.starts_with(part) || name.ends_with(part);
            }))
            continue;
        if (name != lm_head + ".weight")
            json.reject("the weights have a tensor " + name +
                        ", which these settings do not describe");
        if (tensors.read(name, {embed_tokens.shape(0), embed_tokens.shape(1)}) != embed_tokens)
            json.reject("tie_word_embeddings is true, but " + name +
                        " of the weights differs from the embedding");
    }
}

namespace {

// A model with the structure that the configuration describes, whose tensors are still empty.
Model make_empty_model(const Config& config) {
    const RMSNorm norm{{}, config.rms_norm_eps};
    const GatedMlp mlp{empty_linear(false), empty_linear(false), empty_linear(false)};
    Model model{config, {}, {}, norm, {}};
    model.layers.assign(config.num_hidden_layers,
                        {empty_attention_layer(config), mlp, norm, norm});
    if (!config.tie_word_embeddings) model.lm_head = Matrix{};
    return model;
}

// Reads layer by layer, so that no more than one tensor is in memory twice.
template <class Tensors>
Model load_tensors(const Config& config, Tensors& tensors, const TensorNames& names,
                   RopeLayout layout) {
    check_last_layer(config, tensors, names, names.layers);
    Model model = make_empty_model(config);
    TensorReader<Tensors> reader{tensors};
    visit_model(model, names, layout, reader);
    return model;
}

Model load_gguf(const std::string& path) {
    const Gguf file(path);
    const Config config = read_config(file);
    file.reject_other_types();
    GgufTensors tensors(file);
    Model model = load_tensors(config, tensors, gguf_names, rope_layout(file));
    tensors.reject_unread();
    return model;
}

}  // namespace

Model load_model(const std::string& path) {
    if (is_gguf(path) || path.ends_with(".gguf")) return load_gguf(path);
    for (const char* part : {".json", ".safetensors"})
        if (path.ends_with(part) && is_file(path))
            throw FileError(path + " is a part of a model: give the folder");
    if (!is_folder(path)) return load_llama2c(path);
    if (is_file(path + "/adapter_config.json") && !is_file(path + "/config.json"))
        throw FileError(path + " has an adapter: give the folder of its base model");
    const JsonFile json(path + "/config.json");
    const Config config = read_config(json);
    const SafeTensors tensors(path);
    const bool mini_llm = is_mini_llm_config(json);
    const TensorNames& names = mini_llm ? mini_llm_names : hugging_face_names;
    Model model = load_tensors(config, tensors, names,
                               mini_llm ? RopeLayout::interleaved : RopeLayout::split_half);
    reject_unread_tensors(tensors, json, names.lm_head, model.embed_tokens);
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

void check_described(const Model& model) {
    require(model.embedding_scale == 1 && model.logits_scaling == 1 &&
                !model.final_logit_softcapping,
            "export: the configuration does not describe a scale of embeddings or logits, or a "
            "cap of the logits");
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& layer = model.layers[n];
        require(layer.self_attn.qk_norm.index() == std::size_t(model.config.qk_norm),
                "export: the QK norm of layer {} is not that of the configuration", n);
        require(layer.residual_multiplier == 1,
                "export: the configuration does not describe the residual multiplier of layer "
                "{}",
                n);
        require(layer.mlp.activation.name == SiLU.name,
                "export: the activation of layer {} is {}; supported: silu", n,
                layer.mlp.activation.name);
    }
    const Model structure = make_empty_model(model.config);
    std::set<std::string> described;
    for (const ConstParameter& parameter : named_parameters(structure))
        described.insert(parameter.name);
    for (const ConstParameter& parameter : named_parameters(model))
        require(described.erase(parameter.name) > 0,
                "export: the configuration does not describe {}", parameter.name);
    for (const std::string& name : described)
        require(false, "export: the model has no {}, which its configuration describes", name);
}

void export_model(const Model& model, const std::string& folder, DType dtype) {
    const JsonMembers json = config_json(model.config, dtype);
    check_described(model);
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : named_parameters(model))
        tensors.push_back({name, shape, values});
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", tensors, dtype);
    write_json(folder + "/config.json", json);
}

}  // namespace llm
