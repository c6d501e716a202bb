// Granite 3: a Llama with four multipliers, of the embeddings, the scores, the residuals and
// the logits (muP). Source: Hugging Face, modeling_granite.py; "Tensor Programs V" (Yang et
// al., 2022).
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void read_granite(const JsonFile& json, FamilyConfig& config) {
    const auto number = [&](const std::string& key) { return Real(json.positive_or(key, 1)); };
    config.embedding_multiplier = number("embedding_multiplier");
    config.attention_multiplier = number("attention_multiplier");
    config.residual_multiplier = number("residual_multiplier");
    config.logits_scaling = number("logits_scaling");
}

void write_granite(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"embedding_multiplier", double(config.embedding_multiplier)},
                             {"attention_multiplier", double(*config.attention_multiplier)},
                             {"residual_multiplier", double(config.residual_multiplier)},
                             {"logits_scaling", double(config.logits_scaling)}});
}

void add_granite_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    metadata.insert(metadata.end(),
                    {{"granite.embedding_scale", double(config.embedding_multiplier)},
                     {"granite.attention.scale", double(*config.attention_multiplier)},
                     {"granite.residual_scale", double(config.residual_multiplier)},
                     {"granite.logit_scale", double(config.logits_scaling)}});
}

void read_granite_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    config.embedding_multiplier = gguf.positive("embedding_scale");
    config.attention_multiplier = gguf.positive("attention.scale");
    config.residual_multiplier = gguf.positive("residual_scale");
    config.logits_scaling = gguf.positive("logit_scale");
}

}  // namespace

const Family& granite_family() {
    static const Family family{.model_type = "granite",
                               .architecture = "GraniteForCausalLM",
                               .gguf_architecture = "granite",
                               .names = hugging_face_layer_names(),
                               .gguf_names = gguf_layer_names(),
                               .gguf_layout = RopeLayout::interleaved,
                               .has_mlp_bias_key = true,
                               .defaults = {32000, 4096, 11008, 32, 32, 0, 2048},
                               .read = read_granite,
                               .write = write_granite,
                               .add_gguf = add_granite_gguf,
                               .read_gguf = read_granite_gguf};
    return family;
}

}  // namespace llm::models
