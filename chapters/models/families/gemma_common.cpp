#include "chapters/models/families/gemma_common.hpp"

#include <cmath>

namespace llm::models {

void build_gemma(FamilyConfig& config) {
    config.embedding_multiplier = std::sqrt(Real(config.hidden_size));
    for (LayerConfig& layer : config.layers) mlp_of(layer)->activation = GELUTanh;
}

// Hugging Face calls the norm before the MLP post_attention_layernorm in Llama. In Gemma, the
// norm of that name is what it says.
Family gemma_with_four_norms(const std::string& type, const std::string& architecture,
                             const std::string& gguf_architecture,
                             const ClassDefaults& defaults) {
    FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
    names.attention_output_norm = "post_attention_layernorm";
    names.ffn_norm = "pre_feedforward_layernorm";
    names.ffn_output_norm = "post_feedforward_layernorm";
    in_gguf.attention_output_norm = "post_attention_norm";
    in_gguf.ffn_output_norm = "post_ffw_norm";
    return {.model_type = type,
            .architecture = architecture,
            .gguf_architecture = gguf_architecture,
            .names = names,
            .gguf_names = in_gguf,
            .layout = {.norm_offset = 1},
            .attribute_map = {{"hidden_act", "hidden_activation"}},
            .defaults = defaults,
            .write = write_windows_and_scores,
            .add_gguf = add_gemma_gguf};
}

void set_query_pre_attn_scalar(FamilyConfig& config, double number) {
    for (LayerConfig& layer : config.layers) attention_of(layer)->scale = 1 / std::sqrt(number);
}
namespace {

Real query_pre_attn_scalar(const FamilyConfig& config) {
    const double scale = first_attention(config)->scale;
    return Real(1 / (scale * scale));
}

// A soft cap: a default if the key is missing, none if it is null.
std::optional<Real> read_softcap(const JsonFile& json, const std::string& key,
                                 std::optional<double> otherwise) {
    if (json.is_null(key) || (!json.has(key) && !otherwise)) return std::nullopt;
    return Real(json.positive_or(key, otherwise.value_or(1)));
}

}  // namespace

void read_windows_and_scores(const JsonFile& json, std::size_t full_every,
                             std::optional<double> score_cap, std::optional<double> logit_cap,
                             FamilyConfig& config) {
    read_patterns(json, full_every, config);
    json.ignore("hidden_act");           // hidden_activation is used
    json.ignore("sliding_window_size");  // sliding_window is used
    set_query_pre_attn_scalar(config, json.positive_or("query_pre_attn_scalar", 256));
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->attn_logit_softcapping =
            read_softcap(json, "attn_logit_softcapping", score_cap);
    config.final_logit_softcapping = read_softcap(json, "final_logit_softcapping", logit_cap);
}

void write_windows_and_scores(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"sliding_window", sliding_window(config).value_or(4096)},
                             {"query_pre_attn_scalar", double(query_pre_attn_scalar(config))}});
    if (const auto& cap = first_attention(config)->attn_logit_softcapping)
        json.push_back({"attn_logit_softcapping", double(*cap)});
    if (const auto& cap = config.final_logit_softcapping)
        json.push_back({"final_logit_softcapping", double(*cap)});
}

void check_gemma_gguf(const FamilyConfig& config, std::size_t full_every) {
    const std::string& type = config.family->model_type;
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(!window_of(config.layers[n]) == ((n + 1) % full_every == 0),
                "export: llama.cpp's {} has full attention in layers {}, {}, ... and windows "
                "in all others",
                type, full_every - 1, 2 * full_every - 1);
    require(query_pre_attn_scalar(config) == static_cast<Real>(config.head_dim),
            "export: llama.cpp's {} scales scores by 1/√head_dim: query_pre_attn_scalar must "
            "be {}",
            type, config.head_dim);
    require(config.tie_word_embeddings, "export: llama.cpp's {} has a tied head", type);
}

void add_gemma_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_window(config, metadata);
    if (const auto* divisors = std::get_if<FrequencyFactors>(&main_rope(config)->scaling)) {
        const std::string prefix = config.family->gguf_architecture + ".rope.scaling.";
        metadata.emplace_back(prefix + "type", std::string("linear"));
        metadata.emplace_back(prefix + "factor", double(divisors->factors(0)));
    }
    if (const auto& cap = first_attention(config)->attn_logit_softcapping)
        add_gguf_number(config, "attn_logit_softcapping", double(*cap), metadata);
    if (const auto& cap = config.final_logit_softcapping)
        add_gguf_number(config, "final_logit_softcapping", double(*cap), metadata);
}

void read_score_scale_of_27b(std::size_t num_layers, FamilyConfig& config) {
    if (config.num_hidden_layers == num_layers)
        set_query_pre_attn_scalar(config,
                                  double(config.hidden_size / config.num_attention_heads));
}

}  // namespace llm::models
