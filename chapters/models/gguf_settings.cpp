#include <set>

#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/family_keys.hpp"
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

ExpertSizes read_gguf_experts(const GgufSettings& gguf, const std::string& width) {
    const ExpertSizes sizes{gguf.size("expert_count"), gguf.size("expert_used_count"),
                            gguf.size(width)};
    if (sizes.num_experts_per_tok > sizes.num_experts)
        gguf.file.reject(gguf.full("expert_used_count") + " exceeds expert_count");
    return sizes;
}

std::optional<YarnScaling> read_gguf_yarn(const GgufSettings& gguf) {
    if (!gguf.has("rope.scaling.type")) return std::nullopt;
    gguf.expect_text("rope.scaling.type", "yarn");
    YarnScaling yarn;
    yarn.factor = gguf.positive("rope.scaling.factor");
    yarn.original_max_position_embeddings =
        gguf.positive("rope.scaling.original_context_length");
    return yarn;
}

std::vector<bool> read_gguf_flags(const GgufSettings& gguf, const std::string& key,
                                  std::size_t num_layers) {
    std::vector<bool> flags = gguf.file.flags(gguf.full(key));
    if (flags.size() != num_layers)
        gguf.file.reject(gguf.full(key) + " has " + to_text(flags.size()) + " entries for " +
                         to_text(num_layers) + " layers");
    return flags;
}

void add_gguf_size(const FamilyConfig& config, const std::string& key, std::size_t size,
                   GgufMetadata& metadata) {
    metadata.emplace_back(config.family->gguf_architecture + "." + key, std::int64_t(size));
}

void add_gguf_number(const FamilyConfig& config, const std::string& key, double number,
                     GgufMetadata& metadata) {
    metadata.emplace_back(config.family->gguf_architecture + "." + key, number);
}

void add_gguf_window(const FamilyConfig& config, GgufMetadata& metadata) {
    if (const auto window = sliding_window(config))
        add_gguf_size(config, "attention.sliding_window", *window, metadata);
}

void add_gguf_experts(const FamilyConfig& config, GgufMetadata& metadata) {
    const ExpertSizes& sizes = first_moe(config)->sizes;
    add_gguf_size(config, "expert_count", sizes.num_experts, metadata);
    add_gguf_size(config, "expert_used_count", sizes.num_experts_per_tok, metadata);
    add_gguf_size(config, "expert_feed_forward_length", sizes.moe_intermediate_size, metadata);
}

void add_gguf_yarn(const FamilyConfig& config, GgufMetadata& metadata) {
    const RopeParameters* rope = main_rope(config);
    const auto* yarn = rope ? std::get_if<YarnScaling>(&rope->scaling) : nullptr;
    if (!yarn) return;
    const std::string prefix = config.family->gguf_architecture + ".rope.scaling.";
    metadata.emplace_back(prefix + "type", std::string("yarn"));
    metadata.emplace_back(prefix + "factor", double(yarn->factor));
    metadata.emplace_back(prefix + "original_context_length",
                          std::int64_t(yarn->original_max_position_embeddings));
}

void reject_other_query_widths(const FamilyConfig& config) {
    require(config.num_attention_heads * config.head_dim == config.hidden_size,
            "export: llama.cpp's {} has {} heads of {} for a hidden size of {}",
            config.family->gguf_architecture, config.num_attention_heads,
            config.hidden_size / config.num_attention_heads, config.hidden_size);
}

void reject_windows_of_llama(const FamilyConfig& config) {
    const std::size_t context = config.max_position_embeddings;
    for (const LayerConfig& layer : config.layers) {
        const auto window = window_of(layer);
        require(
            window.value_or(context) >= context,
            "export: llama.cpp's {} has no window: {} tokens do not fit into a window of {}",
            config.family->gguf_architecture, context, window.value_or(0));
    }
}

void reject_dense_layers(const FamilyConfig& config) {
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        require(moe_of(config.layers[n]),
                "export: llama.cpp's {} has a mixture in every layer; layer {} is dense",
                config.family->gguf_architecture, n);
}

void require_tied_head(const FamilyConfig& config, bool tied) {
    require(config.tie_word_embeddings == tied, "export: llama.cpp's {} has {} head",
            config.family->gguf_architecture, std::string_view(tied ? "a tied" : "no tied"));
}

const Family* find_family(const Gguf& file) {
    const std::string& architecture = file.text("general.architecture");
    if (architecture == "llama")  // chapter 09's, but for Mixtral
        return file.has("llama.expert_count") && file.integer("llama.expert_count") > 0
                   ? &mixtral_family()
                   : nullptr;
    if (architecture == "qwen2" || architecture == "qwen3") return nullptr;
    if (architecture == "olmo2" && file.has("olmo2.attention.sliding_window"))
        return &olmo3_family();
    std::set<std::string> supported;
    for (const Family* family : families()) {
        if (family->gguf_architecture == architecture) return family;
        supported.insert(family->gguf_architecture);
    }
    for (const EncoderFamily* family : encoder_families())
        supported.insert(family->gguf_architecture);
    std::string names;
    for (const std::string& name : supported) names += (names.empty() ? "" : ", ") + name;
    file.reject("general.architecture " + architecture +
                " is not supported; supported: " + names);
}

FamilyConfig read_family_config(const Gguf& file) try {
    const Family& family = *find_family(file);
    const GgufSettings gguf{file, family.gguf_architecture};
    const FamilyConfig fixed = config_with(family, {});
    const Config sizes = read_common_config(file, fixed.norm_type == NormType::rms_norm
                                                      ? "attention.layer_norm_rms_epsilon"
                                                      : "attention.layer_norm_epsilon");
    const std::string rotary = "rope.dimension_count", values = "attention.value_length";
    if (gguf.has(rotary) && gguf.size(rotary) > sizes.head_dim)
        file.reject(gguf.full(rotary) + " " + to_text(gguf.size(rotary)) +
                    " is not supported; supported: at most the head_dim, " +
                    to_text(sizes.head_dim));
    // The last layer must be there before memory for all is allocated.
    file.tensor(gguf_names.layer + std::to_string(sizes.num_hidden_layers - 1) + "." +
                family.gguf_names.attention_norm + ".weight");
    FamilyConfig config = config_with(family, sizes);
    if (gguf.has(rotary)) set_rotary_dim(config, gguf.size(rotary));
    config.num_nextn_predict_layers = gguf.size("block_count") - sizes.num_hidden_layers;
    family.read_gguf(gguf, config);
    if (first_attention(config) && gguf.has(values) && gguf.size(values) != config.head_dim)
        file.reject(gguf.full(values) + " " + to_text(gguf.size(values)) +
                    " is not supported; supported: the head_dim of queries and keys, " +
                    to_text(config.head_dim));
    reject_unread_settings(file, gguf.full(""));
    return config;
} catch (const ValueError& error) {
    file.reject(error.what());
}

}  // namespace llm::models
