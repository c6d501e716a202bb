#include "chapters/09_full_model/checkpoint.hpp"

#include "chapters/09_full_model/config_json.hpp"
#include "chapters/09_full_model/gguf_tensors.hpp"
#include "chapters/09_full_model/llama2c.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/09_full_model/tensor_names.hpp"

namespace llm {
namespace {

// Reads the parts of a model by the tensor names of its file. Tensors is SafeTensors or
// GgufTensors.
template <class Tensors>
struct CheckpointReader {
    const Config& config;
    Tensors& tensors;
    const TensorNames& names;
    RopeLayout layout;

    Matrix embedding(const std::string& name) const {
        return tensors.read(name + ".weight", {config.vocab_size, config.hidden_size});
    }

    RMSNorm norm(const std::string& name) const {
        return {tensors.read(name + ".weight", {config.hidden_size}), config.rms_norm_eps};
    }

    Linear linear(const std::string& name, std::size_t out, std::size_t in,
                  bool with_bias = false) const {
        Linear result{tensors.read(name + ".weight", {out, in}), std::nullopt};
        if (with_bias) result.bias = tensors.read(name + ".bias", {out});
        return result;
    }

    AttentionLayer attention(const std::string& layer) const {
        const std::size_t C = config.hidden_size, D = config.head_dim;
        const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
        const bool qkv_bias = config.attention_bias != AttentionBias::none;
        Projections projections{linear(layer + names.q_proj, H * D, C, qkv_bias),
                                linear(layer + names.k_proj, Hkv * D, C, qkv_bias),
                                linear(layer + names.v_proj, Hkv * D, C, qkv_bias),
                                linear(layer + names.o_proj, C, H * D,
                                       config.attention_bias == AttentionBias::qkvo)};
        if (layout == RopeLayout::interleaved) {
            projections.q_proj = interleaved_to_split_half(projections.q_proj, H);
            projections.k_proj = interleaved_to_split_half(projections.k_proj, Hkv);
        }
        AttentionLayer result{H, Hkv, std::move(projections)};
        if (config.qk_norm == QKNormType::with_weights)
            result.qk_norm = QKNormWithWeights{
                tensors.read(layer + names.q_norm + ".weight", {D}),
                tensors.read(layer + names.k_norm + ".weight", {D}), config.rms_norm_eps};
        return result;
    }

    GatedMlp mlp(const std::string& layer) const {
        const std::size_t C = config.hidden_size, F = config.intermediate_size;
        return {linear(layer + names.gate_proj, F, C), linear(layer + names.up_proj, F, C),
                linear(layer + names.down_proj, C, F)};
    }
};

// Refuses biases and QK norms of the weights that the configuration does not describe: the
// model would be loaded without them.
void refuse_unexpected_tensors(const JsonFile& json, const Config& config,
                               const SafeTensors& tensors) {
    const TensorNames& names = hugging_face_names;
    std::vector<std::string> unexpected;
    for (const auto& name : {names.attention_norm, names.ffn_norm, names.gate_proj,
                             names.up_proj, names.down_proj})
        unexpected.push_back(name + ".bias");
    if (config.attention_bias != AttentionBias::qkvo)
        unexpected.push_back(names.o_proj + ".bias");
    if (config.attention_bias == AttentionBias::none)
        for (const auto& name : {names.q_proj, names.k_proj, names.v_proj})
            unexpected.push_back(name + ".bias");
    if (config.qk_norm == QKNormType::none)
        for (const auto& name : {names.q_norm, names.k_norm})
            unexpected.push_back(name + ".weight");
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        for (const std::string& name : unexpected)
            if (const auto tensor = names.layer + to_text(n) + "." + name; tensors.has(tensor))
                json.refuse("the weights have a tensor " + tensor +
                            ", which these settings do not describe");
}

// Reads layer by layer, so that no more than one tensor is in memory twice.
template <class Tensors>
Model load_tensors(const Config& config, Tensors& tensors, const TensorNames& names,
                   RopeLayout layout) {
    const CheckpointReader<Tensors> reader{config, tensors, names, layout};
    Model model{config, reader.embedding(names.embed_tokens), {}, reader.norm(names.norm), {}};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        const std::string layer = names.layer + std::to_string(n) + ".";
        model.layers.push_back({reader.attention(layer), reader.mlp(layer),
                                reader.norm(layer + names.attention_norm),
                                reader.norm(layer + names.ffn_norm)});
    }
    if (!config.tie_word_embeddings) model.lm_head = reader.embedding(names.lm_head);
    return model;
}

// Throws ShapeError if a layer has a bias or a QK norm that the configuration does not
// describe: the exported files would load without it.
void check_exportable(const Model& model) {
    const Config& config = model.config;
    const std::vector<PreNormBlock>& layers = model.layers;
    for (std::size_t n = 0; n < layers.size(); ++n)
        require(layers[n].self_attn.qk_norm.index() == std::size_t(config.qk_norm),
                "export: the QK norm of layer {} is not that of the configuration", n);
    for (const auto& [name, shape, values] : named_parameters(model)) {
        const bool of_o_proj = name.ends_with(".o_proj.bias");
        const bool described = name.find(".self_attn.") != name.npos &&
                               (of_o_proj ? config.attention_bias == AttentionBias::qkvo
                                          : config.attention_bias != AttentionBias::none);
        require(!name.ends_with(".bias") || described, "export: config.json cannot describe {}",
                name);
    }
}

Model load_gguf(const std::string& path) {
    const Gguf file(path);
    const Config config = read_config(file);
    file.refuse_other_types();
    GgufTensors tensors(file);
    Model model = load_tensors(config, tensors, gguf_names, rope_layout(file));
    tensors.refuse_unread();
    return model;
}

}  // namespace

Model load_model(const std::string& path) {
    if (is_gguf(path) || path.ends_with(".gguf")) return load_gguf(path);
    if (!is_folder(path)) return load_llama2c(path);
    const JsonFile json(path + "/config.json");
    const Config config = read_config(json);
    const SafeTensors tensors(path);
    if (is_mini_llm_config(json))
        return load_tensors(config, tensors, mini_llm_names, RopeLayout::interleaved);
    refuse_unexpected_tensors(json, config, tensors);
    return load_tensors(config, tensors, hugging_face_names, RopeLayout::split_half);
}

void save_parameters(const std::vector<Parameter>& parameters, const std::string& file) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : parameters)
        tensors.push_back({name, shape, values});
    write_safetensors(file, tensors);
}

void load_parameters(const std::string& file, const std::vector<Parameter>& parameters) {
    const SafeTensors tensors(file);
    for (const auto& [name, shape, values] : parameters) tensors.read(name, shape, values);
    if (const auto unread = tensors.unread(); !unread.empty())
        throw FileError(file + ": the model has no tensor " + unread.front());
}

void export_model(const Model& model, const std::string& folder, DType dtype) {
    const JsonMembers json = config_json(model.config, dtype);
    check_exportable(model);
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape, values] : named_parameters(model))
        tensors.push_back({name, shape, values});
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", tensors, dtype);
    write_json(folder + "/config.json", json);
}

}  // namespace llm
