// LFM2: layers of gated short convolutions, and some of attention with a QK norm. Source:
// Hugging Face, modeling_lfm2.py. The first files have keys of Liquid AI's own library.
#include "chapters/models/families/lfm2.hpp"

#include "chapters/06_swiglu/mlp.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void build_lfm2(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

// layer_types, or the numbers of the layers with attention; without both, all have it.
std::vector<bool> read_convolution_layers(const JsonFile& json, std::size_t num_layers) {
    const bool lists_attention = !json.has("layer_types") && json.has("full_attn_idxs");
    std::vector<bool> result(num_layers, lists_attention);
    if (lists_attention)
        for (const std::int64_t n : json.ids("full_attn_idxs")) {
            if (std::size_t(n) >= num_layers)
                json.reject("full_attn_idxs",
                            "has no layer " + to_text(n) + " of " + to_text(num_layers));
            result[std::size_t(n)] = false;
        }
    json.ignore("full_attn_idxs");
    if (!json.has("layer_types")) return result;
    const auto types = json.text_lists("layer_types");
    if (types.size() != num_layers)
        json.reject("layer_types has " + to_text(types.size()) + " entries for " +
                    to_text(num_layers) + " layers");
    for (std::size_t n = 0; n < num_layers; ++n) {
        const std::string type = types[n].empty() ? "" : types[n].front();
        if (type != "conv" && type != "full_attention")
            json.reject_value("layer_types", type, "conv and full_attention");
        result[n] = type == "conv";
    }
    return result;
}

// Two thirds, times a multiplier, rounded up. As transformers, which does not round if the
// multiplier is null (llama.cpp's converter does).
std::size_t read_width(const JsonFile& json, std::size_t width) {
    const std::size_t multiple = json.size_or("block_multiple_of", 256);
    const double multiplier = json.positive_or("block_ffn_dim_multiplier", 1);
    if (!json.boolean_or("block_auto_adjust_ff_dim", true)) return width;
    width = 2 * width / 3;
    if (json.is_null("block_ffn_dim_multiplier")) return width;
    return round_up(std::size_t(multiplier * double(width)), multiple);
}

// Liquid AI's theta, besides rope_theta or without it.
void read_theta(const JsonFile& json, FamilyConfig& config) {
    if (!json.has("theta")) return;
    const Real theta = Real(json.positive_or("theta", 1));
    const bool has_other = json.has("rope_theta") || json.has("rope_parameters");
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer)) {
            if (has_other && rope->rope_theta != theta)
                json.reject("theta", "contradicts rope_theta");
            rope->rope_theta = theta;
        }
}

// Settings that transformers does not read: other values than these were never published.
void check_settings_of_liquid(const JsonFile& json, std::size_t hidden_size) {
    for (const char* width : {"block_dim", "conv_dim", "conv_dim_out"})
        if (json.size_or(width, hidden_size) != hidden_size)
            json.reject_value(width, to_text(json.size(width)),
                              "the hidden_size, " + to_text(hidden_size));
    for (const char* key : {"block_use_swiglu", "use_pos_enc"})
        if (!json.boolean_or(key, true)) json.reject_value(key, "false", "true");
    for (const char* of_training :
         {"block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
          "block_use_xavier_init", "conv_use_xavier_init"})
        json.ignore(of_training);
}

void read_lfm2(const JsonFile& json, FamilyConfig& config) {
    const std::size_t width = config.intermediate_size;
    if (json.size_or("intermediate_size", width) != width)
        json.reject("intermediate_size", "contradicts block_ff_dim");
    config.intermediate_size = read_width(json, width);
    for (LayerConfig& layer : config.layers)
        mlp_of(layer)->intermediate_size = config.intermediate_size;
    read_theta(json, config);
    check_settings_of_liquid(json, config.hidden_size);
    read_lfm2_layers(json, config);
}

void write_lfm2(const FamilyConfig& config, JsonMembers& json) {
    json.push_back({"block_auto_adjust_ff_dim", false});
    write_lfm2_layers(config, json);
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

const Family& lfm2_family() {
    static const Family family = [] {
        Family lfm2 = make_lfm2_family();
        lfm2.model_type = "lfm2";
        lfm2.architecture = "Lfm2ForCausalLM";
        lfm2.gguf_architecture = "lfm2";
        lfm2.attribute_map["intermediate_size"] = "block_ff_dim";
        lfm2.defaults = {65536, 2560, 12288, 32, 32, 8, 128'000, 0, 1e-5, 1'000'000, true};
        lfm2.read = read_lfm2;
        lfm2.write = write_lfm2;
        return lfm2;
    }();
    return family;
}

}  // namespace llm::models
