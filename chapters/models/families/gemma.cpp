// Gemma: norms that multiply by 1 + w, embeddings multiplied by √C. Gemma 2 and Gemma 3 (text):
// windows in most layers, four norms in each block. Gemma 2 has soft caps, Gemma 3 a QK norm
// and another theta for its windows. Source: Hugging Face, modeling_gemma.py,
// modeling_gemma2.py and modeling_gemma3.py.
#include <cmath>

#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void build_gemma(FamilyConfig& config) {
    config.embedding_multiplier = std::sqrt(Real(config.hidden_size));
    for (LayerConfig& layer : config.layers) mlp_of(layer)->activation = GELUTanh;
}

void build_gemma2(FamilyConfig& config) {
    build_gemma(config);
    config.norm_placement = NormPlacement::sandwich;
}

void build_gemma3(FamilyConfig& config) {
    build_gemma2(config);
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

// Scores are divided by the root of this number.
void set_query_pre_attn_scalar(FamilyConfig& config, double number) {
    for (LayerConfig& layer : config.layers) attention_of(layer)->scale = 1 / std::sqrt(number);
}
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

// The other keys of both; the last two are those of Gemma 2 by default.
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

void read_gemma2(const JsonFile& json, FamilyConfig& config) {
    read_windows_and_scores(json, 2, 50, 30, config);
}

// The theta of layers with a window, which have no scaling.
void set_local_theta(FamilyConfig& config, Real theta) {
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer); rope && window_of(layer)) {
            rope->rope_theta = theta;
            rope->scaling = std::monostate{};
        }
}

void read_gemma3(const JsonFile& json, FamilyConfig& config) {
    const std::string old_key = "_sliding_window_pattern", key = "sliding_window_pattern";
    read_windows_and_scores(json, json.has(old_key) ? json.size(old_key) : json.size_or(key, 6),
                            {}, {}, config);
    set_local_theta(config, Real(json.positive_or("rope_local_base_freq", 10'000)));
}

void write_gemma(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"sliding_window", sliding_window(config).value_or(4096)},
                             {"query_pre_attn_scalar", double(query_pre_attn_scalar(config))}});
    if (const auto& cap = first_attention(config)->attn_logit_softcapping)
        json.push_back({"attn_logit_softcapping", double(*cap)});
    if (const auto& cap = config.final_logit_softcapping)
        json.push_back({"final_logit_softcapping", double(*cap)});
}

void write_gemma3(const FamilyConfig& config, JsonMembers& json) {
    write_gemma(config, json);
    for (const LayerConfig& layer : config.layers)
        if (window_of(layer)) {
            json.push_back({"rope_local_base_freq", double(rope_of(layer)->rope_theta)});
            return;
        }
}

bool has_score_cap(const FamilyConfig& config) {
    return first_attention(config)->attn_logit_softcapping.has_value();
}

void check_pattern_and_scores(const FamilyConfig& config, std::size_t full_every) {
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

void check_gemma2_gguf(const FamilyConfig& config) {
    check_pattern_and_scores(config, 2);
    require(has_score_cap(config) && config.final_logit_softcapping,
            "export: llama.cpp's gemma2 has soft caps of scores and logits");
}

void check_gemma3_gguf(const FamilyConfig& config) {
    check_pattern_and_scores(config, 6);
    for (const LayerConfig& layer : config.layers)
        require(!window_of(layer) || rope_of(layer)->rope_theta == 10'000,
                "export: llama.cpp's gemma3 has a rope_local_base_freq of 10000");
    require(!has_score_cap(config), "export: llama.cpp's gemma3 has no soft cap of scores");
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

// The models of 27 billion parameters scale scores by C / H.
void read_score_scale_of_27b(std::size_t num_layers, FamilyConfig& config) {
    if (config.num_hidden_layers == num_layers)
        set_query_pre_attn_scalar(config,
                                  double(config.hidden_size / config.num_attention_heads));
}

void read_gemma2_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 2, config);
    read_score_scale_of_27b(46, config);
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->attn_logit_softcapping = gguf.positive("attn_logit_softcapping");
    config.final_logit_softcapping = gguf.positive("final_logit_softcapping");
}

// Positions of full attention may be divided by a factor.
void read_gemma3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 6, config);
    read_score_scale_of_27b(62, config);
    gguf.expect_text("rope.scaling.type", "linear");
    if (gguf.has("rope.scaling.factor"))
        set_rope_scaling(config,
                         FrequencyFactors{Vector(std::array{config.head_dim / 2},
                                                 gguf.positive("rope.scaling.factor"))});
    set_local_theta(config, Real(10'000));
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

// Hugging Face calls the norm before the MLP post_attention_layernorm in Llama. In Gemma, the
// norm of that name is what it says.
Family gemma_like(const std::string& type, const std::string& architecture,
                  const std::string& gguf_architecture, const ClassDefaults& defaults) {
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
            .write = write_gemma,
            .add_gguf = add_gemma_gguf};
}

}  // namespace

const Family& gemma_family() {
    static const Family family{
        .model_type = "gemma",
        .architecture = "GemmaForCausalLM",
        .gguf_architecture = "gemma",
        .names = hugging_face_layer_names(),
        .gguf_names = gguf_layer_names(),
        .layout = {.norm_offset = 1},
        .attribute_map = {{"hidden_act", "hidden_activation"}},
        .defaults = {256000, 3072, 24576, 28, 16, 16, 8192, 256, 1e-6, 10'000, true},
        .build = build_gemma,
        .read = read_gemma1,
        .check_gguf = [](const FamilyConfig& config) { require_tied_head(config, true); }};
    return family;
}

const Family& gemma2_family() {
    static const Family family = [] {
        Family gemma2 =
            gemma_like("gemma2", "Gemma2ForCausalLM", "gemma2",
                       {256000, 2304, 9216, 26, 8, 4, 8192, 256, 1e-6, 10'000, true});
        gemma2.build = build_gemma2;
        gemma2.read = read_gemma2;
        gemma2.check_gguf = check_gemma2_gguf;
        gemma2.read_gguf = read_gemma2_gguf;
        return gemma2;
    }();
    return family;
}

const Family& gemma3_family() {
    static const Family family = [] {
        Family gemma3 =
            gemma_like("gemma3_text", "Gemma3ForCausalLM", "gemma3",
                       {262208, 2304, 9216, 26, 8, 4, 131072, 256, 1e-6, 1'000'000, true});
        gemma3.build = build_gemma3;
        gemma3.read = read_gemma3;
        gemma3.write = write_gemma3;
        gemma3.check_gguf = check_gemma3_gguf;
        gemma3.read_gguf = read_gemma3_gguf;
        return gemma3;
    }();
    return family;
}

}  // namespace llm::models
