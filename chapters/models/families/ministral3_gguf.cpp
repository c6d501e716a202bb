// Ministral 3 in GGUF files. Source: llama.cpp, mistral3.cpp, llama-context.cpp and
// conversion/mistral3.py.
#include "chapters/models/families/ministral3_gguf.hpp"

namespace llm::models {
namespace {

const std::string temperature_key = "attention.temperature_scale";

// The factor of cosine and sine is a quotient, as in config.json; llama.cpp's mscale is 1.
YarnScaling read_gguf_yarn_of_mistral3(const GgufSettings& gguf, YarnScaling yarn) {
    const auto number = [&](const std::string& key, Real otherwise) {
        const bool there = gguf.file.any_number(gguf.full(key)).value_or(0) != 0;
        return there ? gguf.positive(key) : otherwise;
    };
    yarn.beta_fast = number("rope.scaling.yarn_beta_fast", 32);
    yarn.beta_slow = number("rope.scaling.yarn_beta_slow", 1);
    yarn.attention_factor =
        yarn_mscale(yarn.factor, 1) /
        yarn_mscale(yarn.factor, number("rope.scaling.yarn_log_multiplier", 0)) *
        number("rope.scaling.attn_factor", 1);
    return yarn;
}

}  // namespace

void check_ministral3_gguf(const FamilyConfig& config) {
    reject_windows_of_llama(config);
    const auto* yarn = std::get_if<YarnScaling>(&main_rope(config)->scaling);
    require(!yarn || yarn->truncate, "export: llama.cpp rounds YaRN's limits to whole pairs");
    const auto& tuning = first_attention(config)->temperature_tuning;
    const Real length =
        yarn ? yarn->original_max_position_embeddings : Real(config.max_position_embeddings);
    require(!tuning || tuning->floor_scale == length,
            "export: llama.cpp's mistral3 has a temperature that grows every {} tokens",
            std::size_t(length));
}

void add_ministral3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    add_gguf_yarn(config, metadata);
    const auto add = [&](const std::string& key, Real number) {
        add_gguf_number(config, key, double(number), metadata);
    };
    if (const auto& tuning = first_attention(config)->temperature_tuning)
        add(temperature_key, tuning->attn_scale);
    const auto* yarn = std::get_if<YarnScaling>(&main_rope(config)->scaling);
    if (!yarn) return;
    add("rope.scaling.yarn_beta_fast", yarn->beta_fast);
    add("rope.scaling.yarn_beta_slow", yarn->beta_slow);
    // As converters write an mscale_all_dim of 1; or as a multiple of the default.
    const Real factor = yarn_attention_factor(*yarn);
    if (factor == 1) return add("rope.scaling.yarn_log_multiplier", 1);
    add("rope.scaling.attn_factor", factor / yarn_mscale(yarn->factor, 1));
}

void read_ministral3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    Real length = Real(config.max_position_embeddings);
    if (const auto yarn = read_gguf_yarn(gguf)) {
        set_rope_scaling(config, read_gguf_yarn_of_mistral3(gguf, *yarn));
        length = yarn->original_max_position_embeddings;
    }
    if (gguf.has(temperature_key))
        set_temperature(config, length, gguf.file.number(gguf.full(temperature_key)));
}

}  // namespace llm::models
