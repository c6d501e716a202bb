// Gemma: norms that multiply by 1 + w, embeddings multiplied by √C. Gemma 2 and Gemma 3 (text):
// windows in most layers, four norms in each block. Gemma 2 has soft caps, Gemma 3 a QK norm
// and another theta for its windows. Source: Hugging Face, modeling_gemma.py,
// modeling_gemma2.py and modeling_gemma3.py. The settings take effect in family_model.cpp,
// which builds the layers, and in family_checkpoint.cpp, which adds 1 to the norms.
#include "chapters/models/family.hpp"
#include "chapters/models/llama/rope_keys.hpp"

namespace llm::models {
namespace {

// A soft cap: a default if the key is missing, none if it is null.
std::optional<Real> read_softcap(const JsonFile& json, const std::string& key,
                                 std::optional<double> otherwise) {
    if (json.is_null(key) || (!json.has(key) && !otherwise)) return std::nullopt;
    return Real(json.positive_or(key, otherwise.value_or(1)));
}

// The theta of layers with a window: rope_local_base_freq, or, since transformers 5, in
// rope_parameters.sliding_attention.
Real read_local_theta(const JsonFile& json) {
    const std::string inside = "rope_parameters.sliding_attention";
    if (!json.has(inside)) return Real(json.positive_or("rope_local_base_freq", 10'000));
    if (const std::string type = read_rope_type(json, inside); type != "default")
        json.reject_value(inside + ".rope_type", type, "default");
    return Real(json.positive_or(inside + ".rope_theta", 0));
}

void read_gemma(const JsonFile& json, bool gemma2, FamilyConfig& config) {
    const std::size_t full_every = gemma2 ? 2
                                   : json.has("_sliding_window_pattern")
                                       ? json.size("_sliding_window_pattern")
                                       : json.size_or("sliding_window_pattern", 6);
    read_patterns(json, full_every, config);
    json.ignore("hidden_act");           // hidden_activation is used
    json.ignore("sliding_window_size");  // sliding_window is used
    if (!gemma2) config.rope_local_base_freq = read_local_theta(json);
    config.query_pre_attn_scalar = Real(json.positive_or("query_pre_attn_scalar", 256));
    const std::optional<double> none;
    config.attn_logit_softcapping =
        read_softcap(json, "attn_logit_softcapping", gemma2 ? std::optional(50.0) : none);
    config.final_logit_softcapping =
        read_softcap(json, "final_logit_softcapping", gemma2 ? std::optional(30.0) : none);
}
void read_gemma2(const JsonFile& json, FamilyConfig& config) { read_gemma(json, true, config); }
void read_gemma3(const JsonFile& json, FamilyConfig& config) {
    read_gemma(json, false, config);
}

void write_gemma(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"sliding_window", sliding_window(config).value_or(4096)},
                             {"query_pre_attn_scalar", double(config.query_pre_attn_scalar)}});
    if (config.rope_local_base_freq)
        json.push_back({"rope_local_base_freq", double(*config.rope_local_base_freq)});
    if (config.attn_logit_softcapping)
        json.push_back({"attn_logit_softcapping", double(*config.attn_logit_softcapping)});
    if (config.final_logit_softcapping)
        json.push_back({"final_logit_softcapping", double(*config.final_logit_softcapping)});
}

void check_gemma_gguf(const FamilyConfig& config) {
    const bool gemma2 = config.family == &gemma2_family();
    const std::string& type = config.family->model_type;
    const std::size_t full_every = gemma2 ? 2 : 6;
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(std::holds_alternative<FullAttention>(config.layers[n].pattern) ==
                    ((n + 1) % full_every == 0),
                "export: llama.cpp's {} has full attention in layers {}, {}, ... and windows "
                "in all others",
                type, full_every - 1, 2 * full_every - 1);
    require(config.query_pre_attn_scalar == static_cast<Real>(config.head_dim),
            "export: llama.cpp's {} scales scores by 1/√head_dim: query_pre_attn_scalar must "
            "be {}",
            type, config.head_dim);
    require(!config.rope_local_base_freq || *config.rope_local_base_freq == 10'000,
            "export: llama.cpp's gemma3 has a rope_local_base_freq of 10000");
    require(config.tie_word_embeddings, "export: llama.cpp's {} has a tied head", type);
    require(!gemma2 || (config.attn_logit_softcapping && config.final_logit_softcapping),
            "export: llama.cpp's gemma2 has soft caps of scores and logits");
    require(gemma2 || !config.attn_logit_softcapping,
            "export: llama.cpp's gemma3 has no soft cap of scores");
}

void add_gemma_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const auto add = [&](const std::string& key, const GgufValue& value) {
        metadata.emplace_back(config.family->gguf_architecture + "." + key, value);
    };
    if (const auto window = sliding_window(config))
        add("attention.sliding_window", static_cast<std::int64_t>(*window));
    if (config.rope_factor != 1) {
        add("rope.scaling.type", std::string("linear"));
        add("rope.scaling.factor", double(config.rope_factor));
    }
    if (config.attn_logit_softcapping)
        add("attn_logit_softcapping", double(*config.attn_logit_softcapping));
    if (config.final_logit_softcapping)
        add("final_logit_softcapping", double(*config.final_logit_softcapping));
}

// llama.cpp's Gemma 3 divides positions by a factor, and both have windows; Gemma 2 has soft
// caps. The models of 27 billion parameters scale scores by C / H.
void read_gemma_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    const bool gemma2 = config.family == &gemma2_family();
    read_gguf_windows(gguf, gemma2 ? 2 : 6, config);
    if (config.num_hidden_layers == (gemma2 ? 46 : 62))
        config.query_pre_attn_scalar =
            static_cast<Real>(config.hidden_size / config.num_attention_heads);
    if (!gemma2) config.rope_local_base_freq = 10'000;
    gguf.expect_text("rope.scaling.type", "linear");
    if (gguf.has("rope.scaling.factor"))
        config.rope_factor = gguf.positive("rope.scaling.factor");
    if (!gemma2) return;
    config.attn_logit_softcapping = gguf.positive("attn_logit_softcapping");
    config.final_logit_softcapping = gguf.positive("final_logit_softcapping");
}

// The first files say "gelu" and mean the approximation with tanh, as hidden_activation says in
// later ones.
void read_gemma1(const JsonFile& json, FamilyConfig&) {
    const std::string key = "hidden_act", tanh(GELUTanh.name);
    if (json.has("hidden_activation"))
        json.ignore(key);
    else if (json.has(key) && json.text(key) != tanh && json.text(key) != GELU.name)
        json.reject_value(key, json.text(key), tanh);
}

void check_gemma1_gguf(const FamilyConfig& config) {
    require(config.tie_word_embeddings, "export: llama.cpp's gemma has a tied head");
}

// Hugging Face calls the norm before the MLP post_attention_layernorm in Llama. In Gemma, the
// norm of that name is what it says.
Family make_gemma2_family() {
    FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
    names.attention_output_norm = "post_attention_layernorm";
    names.ffn_norm = "pre_feedforward_layernorm";
    names.ffn_output_norm = "post_feedforward_layernorm";
    in_gguf.attention_output_norm = "post_attention_norm";
    in_gguf.ffn_output_norm = "post_ffw_norm";
    return {.model_type = "gemma2",
            .architecture = "Gemma2ForCausalLM",
            .gguf_architecture = "gemma2",
            .names = names,
            .gguf_names = in_gguf,
            .activation = GELUTanh,
            .activation_key = "hidden_activation",
            .norm_placement = NormPlacement::sandwich,
            .norms_add_one = true,
            .scales_embeddings = true,
            .defaults = {256000, 2304, 9216, 26, 8, 4, 8192, 256, 1e-6, 10'000, true},
            .read = read_gemma2,
            .write = write_gemma,
            .check_gguf = check_gemma_gguf,
            .add_gguf = add_gemma_gguf,
            .read_gguf = read_gemma_gguf};
}

}  // namespace

const Family& gemma_family() {
    static const Family family{
        .model_type = "gemma",
        .architecture = "GemmaForCausalLM",
        .gguf_architecture = "gemma",
        .names = hugging_face_layer_names(),
        .gguf_names = gguf_layer_names(),
        .activation = GELUTanh,
        .activation_key = "hidden_activation",
        .norms_add_one = true,
        .scales_embeddings = true,
        .defaults = {256000, 3072, 24576, 28, 16, 16, 8192, 256, 1e-6, 10'000, true},
        .read = read_gemma1,
        .check_gguf = check_gemma1_gguf};
    return family;
}

const Family& gemma2_family() {
    static const Family family = make_gemma2_family();
    return family;
}

const Family& gemma3_family() {
    static const Family family = [] {
        Family gemma3 = make_gemma2_family();
        gemma3.model_type = "gemma3_text";
        gemma3.architecture = "Gemma3ForCausalLM";
        gemma3.local_rope = true;
        gemma3.gguf_architecture = "gemma3";
        gemma3.defaults = {262208, 2304, 9216, 26, 8, 4, 131072, 256, 1e-6, 1'000'000, true};
        gemma3.qk_norm = QKNormType::with_weights;
        gemma3.read = read_gemma3;
        return gemma3;
    }();
    return family;
}

}  // namespace llm::models
