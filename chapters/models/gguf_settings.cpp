#include <set>

#include "chapters/models/family.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "common/output/show.hpp"

namespace llm::models {

Real GgufSettings::positive(const std::string& key) const {
    const double number = file.number(full(key));
    if (!(number > 1e-30 && number < 1e30))
        file.reject(full(key) + " must be above 0 and below 1e30, not " + brief(number));
    return static_cast<Real>(number);
}

void GgufSettings::expect_text(const std::string& key, const std::string& text) const {
    if (has(key) && file.text(full(key)) != text)
        file.reject(full(key) + " " + file.text(full(key)) +
                    " is not supported; supported: " + text);
}

void read_gguf_windows(const GgufSettings& gguf, std::size_t full_every, FamilyConfig& config) {
    const std::string key = "attention.sliding_window";
    if (gguf.has(key))
        set_patterns(config, layer_patterns(config.num_hidden_layers,
                                            SlidingWindow{gguf.size(key)}, full_every));
}

void read_gguf_experts(const GgufSettings& gguf, const std::string& width, std::size_t step,
                       FamilyConfig& config) {
    config.experts.num_experts = gguf.size("expert_count");
    config.experts.num_experts_per_tok = gguf.size("expert_used_count");
    config.experts.moe_intermediate_size = gguf.size(width);
    if (config.experts.num_experts_per_tok > config.experts.num_experts)
        gguf.file.reject(gguf.full("expert_used_count") + " exceeds expert_count");
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        config.layers[n].is_moe = (n + 1) % step == 0;
}

const Family* find_family(const Gguf& file) {
    const std::string& architecture = file.text("general.architecture");
    if (architecture == "llama")  // chapter 09's, but for Mixtral
        return file.has("llama.expert_count") && file.integer("llama.expert_count") > 0
                   ? &mixtral_family()
                   : nullptr;
    if (architecture == "qwen2" || architecture == "qwen3") return nullptr;
    std::set<std::string> supported;
    for (const Family* family : families()) {
        if (family->gguf_architecture == architecture) return family;
        supported.insert(family->gguf_architecture);
    }
    std::string names;
    for (const std::string& name : supported) names += (names.empty() ? "" : ", ") + name;
    file.reject("general.architecture " + architecture +
                " is not supported; supported: " + names);
}

FamilyConfig read_family_config(const Gguf& file) try {
    const Family& family = *find_family(file);
    const GgufSettings gguf{file, family.gguf_architecture};
    FamilyConfig config =
        config_with(family, read_common_config(file, family.norm_type == NormType::rms_norm
                                                         ? "attention.layer_norm_rms_epsilon"
                                                         : "attention.layer_norm_epsilon"));
    const std::string value_length = "attention.value_length";
    if (!family.latent_attention && gguf.has(value_length) &&
        gguf.size(value_length) != config.head_dim)
        file.reject(gguf.full(value_length) + " " + to_text(gguf.size(value_length)) +
                    " is not supported; supported: the head_dim of queries and keys, " +
                    to_text(config.head_dim));
    config.qk_norm = family.qk_norm;
    config.attention_bias = family.has_biases ? AttentionBias::qkvo : AttentionBias::none;
    // The last layer must be there before memory for all is allocated.
    file.tensor(gguf_names.layer + std::to_string(config.num_hidden_layers - 1) + "." +
                family.gguf_names.attention_norm + ".weight");
    const std::string rotary = "rope.dimension_count";
    if (gguf.has(rotary))
        config.partial_rotary_factor = double(gguf.size(rotary)) / double(config.head_dim);
    if (config.partial_rotary_factor > 1 ||
        (!family.partial_rotary && config.partial_rotary_factor != 1))
        file.reject(gguf.full(rotary) + " " + to_text(gguf.size(rotary)) +
                    " is not supported; supported: the head_dim, " + to_text(config.head_dim));
    family.read_gguf(gguf, config);
    reject_unread_settings(file, gguf.full(""));
    return config;
} catch (const ValueError& error) {
    file.reject(error.what());
}

}  // namespace llm::models
