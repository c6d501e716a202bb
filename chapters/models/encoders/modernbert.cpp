// ModernBERT: pre-norm blocks with gated MLPs and RoPE; most layers see a window. Source:
// Hugging Face, modeling_modernbert.py; Warner et al., 2024.
#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// The theta of a type of layers: a key, or, since transformers 5, a member of
// rope_parameters.TYPE.
Real read_theta(const JsonFile& json, const std::string& type, const std::string& key,
                double otherwise) {
    const std::string inside = "rope_parameters." + type, inner = inside + ".rope_theta";
    if (const std::string scaling = read_rope_type(json, inside); scaling != "default")
        json.reject_value(inside + ".rope_type", scaling, "default");
    const double outer = json.positive_or(key, otherwise);
    const double theta = json.positive_or(inner, outer);
    if (json.has(key) && theta != outer)
        json.reject(key + " " + brief(outer) + " and " + inner + " " + brief(theta) +
                    " contradict each other");
    return Real(theta);
}

// Whether layer n sees a window, without layer_types.
std::vector<bool> regular_windows(const WindowedLayers& windowed, std::size_t num_layers) {
    std::vector<bool> windows(num_layers);
    for (std::size_t n = 0; n < num_layers; ++n) windows[n] = windowed.has_window(n);
    return windows;
}

// Which layers see a window, and how far: local_attention counts both sides.
void read_windows(const JsonFile& json, EncoderFamilyConfig& config) {
    config.rope_theta = read_theta(json, "full_attention", "global_rope_theta", 160'000);
    WindowedLayers windowed;
    windowed.full_every = json.size_or("global_attn_every_n_layers", 3);
    windowed.window = json.size_or("local_attention", 128) / 2;
    // Null means that of the other layers.
    const std::string local = "local_rope_theta";
    windowed.rope_theta = read_theta(json, "sliding_attention", local,
                                     json.is_null(local) ? double(*config.rope_theta) : 10'000);
    config.windows = regular_windows(windowed, config.num_hidden_layers);
    if (json.has("layer_types"))
        config.windows = read_layer_kinds(json, "layer_types", "sliding_attention",
                                          "full_attention", config.num_hidden_layers);
    config.windowed = windowed;
}

void read_modernbert(const JsonFile& json, EncoderFamilyConfig& config) {
    read_windows(json, config);
    config.norm_bias = json.boolean_or("norm_bias", false);
    config.attention_bias = json.boolean_or("attention_bias", false);
    config.mlp_bias = json.boolean_or("mlp_bias", false);
    config.head_bias = json.boolean_or("classifier_bias", false);
    config.decoder_bias = json.boolean_or("decoder_bias", true);
    config.has_bias = config.norm_bias && config.attention_bias && config.mlp_bias;
    config.head_activation = read_activation(json, "classifier_activation", GELU);
    const std::string key = "classifier_pooling",
                      pooling = json.has(key) ? json.text(key) : "cls";
    if (pooling != "cls" && pooling != "mean") json.reject_value(key, pooling, "cls and mean");
    config.classifier_pooling = pooling == "cls" ? Pooling::cls : Pooling::mean;
    // Which logits are computed for a loss, how fast, and with which initial weights; and a
    // key of the published files, which transformers does not read.
    for (const char* unused :
         {"sparse_prediction", "sparse_pred_ignore_index", "deterministic_flash_attn",
          "reference_compile", "repad_logits_with_grad", "initializer_cutoff_factor",
          "position_embedding_type"})
        json.ignore(unused);
}

// Whether every full_every-th layer has full attention, and the others have not.
bool has_regular_windows(const EncoderFamilyConfig& config) {
    return config.windows == regular_windows(*config.windowed, config.num_hidden_layers);
}

std::vector<std::string> layer_types(const EncoderFamilyConfig& config) {
    std::vector<std::string> types;
    for (const bool has_window : config.windows)
        types.push_back(has_window ? "sliding_attention" : "full_attention");
    return types;
}

void write_modernbert(const EncoderFamilyConfig& config, JsonMembers& members) {
    const WindowedLayers& windowed = *config.windowed;
    // Only transformers 5 and later read layer_types.
    if (!has_regular_windows(config)) members.push_back({"layer_types", layer_types(config)});
    const bool mean = config.classifier_pooling == Pooling::mean;
    members.insert(members.end(),
                   {{"global_attn_every_n_layers", windowed.full_every},
                    {"local_attention", 2 * windowed.window},
                    {"global_rope_theta", double(*config.rope_theta)},
                    {"local_rope_theta", double(windowed.rope_theta)},
                    {"norm_bias", config.norm_bias},
                    {"attention_bias", config.attention_bias},
                    {"mlp_bias", config.mlp_bias},
                    {"decoder_bias", config.decoder_bias},
                    {"classifier_bias", config.head_bias},
                    {"classifier_activation", std::string(config.head_activation.name)},
                    {"classifier_pooling", mean ? "mean" : "cls"}});
}

EncoderNames modernbert_names() {
    EncoderNames names;
    names.prefix = "model.";
    names.word_embeddings = "model.embeddings.tok_embeddings";
    names.embeddings_norm = "model.embeddings.norm";
    names.layer = "model.layers.";
    names.layers.attention_norm = "attn_norm";
    names.layers.qkv_proj = "attn.Wqkv";
    names.layers.o_proj = "attn.Wo";
    names.layers.ffn_norm = "mlp_norm";
    names.layers.gate_up_proj = "mlp.Wi";
    names.layers.mlp.down_proj = "mlp.Wo";
    names.final_norm = "model.final_norm";
    names.head_dense = "head.dense";
    names.head_norm = "head.norm";
    names.decoder = names.decoder_bias = "decoder";
    names.classifier = "classifier";
    return names;
}

// Its graph has no biases, GELU with tanh or SiLU, and full attention in every n-th layer.
void add_modernbert_gguf(const EncoderFamilyConfig& config, GgufMetadata& metadata) {
    require(!config.norm_bias && !config.attention_bias && !config.mlp_bias,
            "export: llama.cpp's modern-bert has no biases");
    require(config.hidden_act.function == gelu || config.hidden_act.function == gelu_tanh ||
                config.hidden_act.function == silu,
            "export: llama.cpp's modern-bert has GELU or SiLU, not {}", config.hidden_act.name);
    require(has_regular_windows(config),
            "export: llama.cpp's modern-bert has full attention in every n-th layer alone");
    require(config.num_hidden_layers > 0,
            "export: llama.cpp's modern-bert has at least one layer");
    const WindowedLayers& windowed = *config.windowed;
    require(windowed.window > 0, "export: llama.cpp's modern-bert has no window of 0 tokens");
    const std::string prefix = config.family->gguf_architecture + ".";
    metadata.emplace_back(prefix + "attention.sliding_window",
                          std::int64_t(2 * windowed.window));
    metadata.emplace_back(prefix + "attention.sliding_window_pattern",
                          std::int64_t(windowed.full_every));
    metadata.emplace_back(prefix + "rope.freq_base_swa", double(windowed.rope_theta));
    metadata.emplace_back(prefix + "rope.scaling.type", std::string("none"));
}

// Missing settings have the defaults of llama.cpp.
void read_modernbert_gguf(const GgufSettings& gguf, EncoderFamilyConfig& config) {
    config.norm_bias = config.attention_bias = config.mlp_bias = config.has_bias = false;
    gguf.expect_text("rope.scaling.type", "none");
    config.rope_theta =
        gguf.has("rope.freq_base") ? gguf.positive("rope.freq_base") : Real(10'000);
    WindowedLayers windowed;
    windowed.rope_theta = gguf.has("rope.freq_base_swa") ? gguf.positive("rope.freq_base_swa")
                                                         : *config.rope_theta;
    const std::string window = "attention.sliding_window", pattern = window + "_pattern";
    const bool has_windows = gguf.has(window) && gguf.file.integer(gguf.full(window)) != 0;
    if (has_windows) windowed.window = gguf.size(window) / 2;
    const std::size_t full_every = gguf.has(pattern) ? gguf.size(pattern) : 3;
    windowed.full_every = has_windows ? full_every : 1;
    config.windows = regular_windows(windowed, config.num_hidden_layers);
    config.windowed = windowed;
}

EncoderNames modernbert_gguf_names() {
    EncoderNames names;
    names.word_embeddings = "token_embd";
    names.embeddings_norm = "token_embd_norm";
    names.layer = gguf_names.layer;
    names.layers = gguf_layer_names();
    names.layers.qkv_proj = "attn_qkv";
    names.layers.gate_up_proj = "ffn_up";
    names.final_norm = gguf_names.norm;
    return names;
}

}  // namespace

const EncoderFamily& modernbert_family() {
    static const EncoderFamily family = {
        .model_type = "modernbert",
        .classes = {{"ModernBertModel", {}},
                    {"ModernBertForMaskedLM", {.masked_lm = true}},
                    {"ModernBertForSequenceClassification", {.classifier = true}}},
        .base_class = "ModernBertModel",
        .names = modernbert_names(),
        .gguf_architecture = "modern-bert",
        .gguf_names = modernbert_gguf_names(),
        .attribute_map = {{"num_key_value_heads", ""},
                          {"head_dim", ""},
                          {"rope_theta", ""},
                          {"rms_norm_eps", "norm_eps"},
                          {"hidden_act", "hidden_activation"}},
        .defaults = {50368, 768, 1152, 22, 12, 0, 8192, 0, 1e-5, 0, true},
        .default_pad_token_id = 50283,
        .read = read_modernbert,
        .write = write_modernbert,
        .add_gguf = add_modernbert_gguf,
        .read_gguf = read_modernbert_gguf};
    return family;
}

}  // namespace llm::models
