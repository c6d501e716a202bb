#include "chapters/models/llama/load_model.hpp"

#include <algorithm>
#include <set>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "chapters/models/llama/llama2c.hpp"

namespace llm::models {

void reject_unread_tensors(const SafeTensors& tensors, const JsonFile& json,
                           const std::string& lm_head, const Matrix& embed_tokens,
                           const std::vector<std::string>& unused) {
    for (const std::string& name : tensors.unread()) {
        if (name.ends_with(".rotary_emb.inv_freq") || name == "rope.freqs_cis") continue;
        if (std::any_of(unused.begin(), unused.end(), [&](const std::string& part) {
                return name.starts_with(part) || name.ends_with(part);
            }))
            continue;
        if (name.ends_with(scale_suffix))
            json.reject("the weights have the scales " + name + ", but no FP8 weights " +
                        name.substr(0, name.size() - scale_suffix.size()));
        if (name != lm_head + ".weight")
            json.reject("the weights have a tensor " + name +
                        ", which these settings do not describe");
        if (tensors.read(name, {embed_tokens.shape(0), embed_tokens.shape(1)}) != embed_tokens)
            json.reject("tie_word_embeddings is true, but " + name +
                        " of the weights differs from the embedding");
    }
}

namespace {

const TensorNames mini_llm_names = {
    "tok_embeddings.emb",
    "layers.",
    "norm",
    "output",
    {"attention_norm",
     "attention.wq",
     "attention.wk",
     "attention.wv",
     "attention.wo",
     "ffn_norm",
     {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}}};

Model load_gguf(const std::string& path) {
    const Gguf file(path);
    const Config config = read_config(file);
    file.reject_other_types();
    GgufTensors tensors(file);
    Model model = read_model(config, tensors, gguf_names, rope_layout(file));
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
    const JsonFile json = open_config(path + "/config.json");
    const Config config = read_config(json);
    reject_quantized_weights(json);
    reject_other_head(json, config.tie_word_embeddings);
    const bool mini_llm = is_mini_llm_config(json);
    const TensorNames& names = mini_llm ? mini_llm_names : hugging_face_names;
    SafeTensors tensors(path);
    name_as_causal_lm(json, names.embed_tokens, names.lm_head, tensors);
    Model model = read_model(config, tensors, names,
                             mini_llm ? RopeLayout::interleaved : RopeLayout::split_half);
    reject_unread_tensors(tensors, json, names.lm_head, model.embed_tokens);
    return model;
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

}  // namespace llm::models
