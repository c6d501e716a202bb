// What LFM2 and LFM2-MoE share.
#include "chapters/models/families/lfm2.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void build_lfm2(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

// layer_types, or the numbers of the layers with attention; without both, all have it.
std::vector<bool> read_convolution_layers(const JsonFile& json, std::size_t num_layers) {
    if (json.has("layer_types")) {
        json.ignore("full_attn_idxs");
        return read_layer_kinds(json, "layer_types", "conv", "full_attention", num_layers);
    }
    std::vector<bool> result(num_layers, json.has("full_attn_idxs"));
    if (!json.has("full_attn_idxs")) return result;
    for (const std::int64_t n : json.ids("full_attn_idxs")) {
        if (std::size_t(n) >= num_layers)
            json.reject("full_attn_idxs",
                        "has no layer " + to_text(n) + " of " + to_text(num_layers));
        result[std::size_t(n)] = false;
    }
    return result;
}

}  // namespace

const GatedConvolutionSizes* convolution_of(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const auto* sizes = std::get_if<GatedConvolutionSizes>(&layer.mixer)) return sizes;
    return nullptr;
}

void read_lfm2_layers(const JsonFile& json, FamilyConfig& config) {
    const GatedConvolutionSizes sizes{config.hidden_size, json.size_or("conv_L_cache", 3),
                                      json.boolean_or("conv_bias", false)};
    const std::vector<bool> is_convolution =
        read_convolution_layers(json, config.layers.size());
    for (std::size_t n = 0; n < is_convolution.size(); ++n)
        if (is_convolution[n]) config.layers[n].mixer = sizes;
    config.tie_word_embeddings = json.boolean_or("tie_embedding", config.tie_word_embeddings);
    if (json.has("hidden_act") && json.text("hidden_act") != "silu")
        json.reject_value("hidden_act", json.text("hidden_act"), "silu");
}

void write_lfm2_layers(const FamilyConfig& config, JsonMembers& json) {
    std::vector<std::string> types;
    for (const LayerConfig& layer : config.layers)
        types.push_back(attention_of(layer) ? "full_attention" : "conv");
    json.push_back({"layer_types", types});
    if (const GatedConvolutionSizes* sizes = convolution_of(config))
        json.insert(json.end(),
                    {{"conv_L_cache", sizes->conv_kernel_dim}, {"conv_bias", sizes->bias}});
}

Family make_lfm2_family() {
    FamilyLayerNames names = hugging_face_layer_names();
    names.attention_norm = "operator_norm";
    names.ffn_norm = "ffn_norm";
    names.o_proj = "self_attn.out_proj";
    names.q_norm = "self_attn.q_layernorm";
    names.k_norm = "self_attn.k_layernorm";
    names.in_proj = "conv.in_proj";
    names.conv1d = "conv.conv";
    names.out_proj = "conv.out_proj";
    names.mlp = {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"};
    TensorNames model_names = hugging_face_names;
    model_names.norm = "model.embedding_norm";  // despite its name, after the layers
    return {.model_type = "",
            .architecture = "",
            .gguf_architecture = "",
            .names = names,
            .gguf_names = lfm2_gguf_names(),
            .model_names = model_names,
            .attribute_map = {{"rms_norm_eps", "norm_eps"},
                              {"attention_bias", ""},
                              {"hidden_act", ""}},
            .build = build_lfm2,
            .check_gguf = check_lfm2_gguf,
            .add_gguf = add_lfm2_gguf,
            .read_gguf = read_lfm2_gguf};
}

}  // namespace llm::models
