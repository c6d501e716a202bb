// Granite 3: a Llama with four multipliers, of the embeddings, the scores, the residuals and
// the logits (muP). Source: Hugging Face, modeling_granite.py; "Tensor Programs V" (Yang et
// al., 2022).
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void set_score_scale(FamilyConfig& config, double scale) {
    for (LayerConfig& layer : config.layers) attention_of(layer)->scale = scale;
}

void read_granite(const JsonFile& json, FamilyConfig& config) {
    read_mlp_bias(json, config);
    const auto number = [&](const std::string& key) { return Real(json.positive_or(key, 1)); };
    config.embedding_multiplier = number("embedding_multiplier");
    config.residual_multiplier = number("residual_multiplier");
    config.logits_scaling = number("logits_scaling");
    set_score_scale(config, json.positive_or("attention_multiplier", 1));
}

void write_granite(const FamilyConfig& config, JsonMembers& json) {
    add_mlp_bias(config, json);
    json.insert(json.end(), {{"embedding_multiplier", double(config.embedding_multiplier)},
                             {"attention_multiplier", first_attention(config)->scale},
                             {"residual_multiplier", double(config.residual_multiplier)},
                             {"logits_scaling", double(config.logits_scaling)}});
}

void add_granite_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const auto add = [&](const std::string& key, double number) {
        add_gguf_number(config, key, number, metadata);
    };
    add("embedding_scale", double(config.embedding_multiplier));
    add("attention.scale", first_attention(config)->scale);
    add("residual_scale", double(config.residual_multiplier));
    add("logit_scale", double(config.logits_scaling));
}

void read_granite_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    config.embedding_multiplier = gguf.positive("embedding_scale");
    config.residual_multiplier = gguf.positive("residual_scale");
    config.logits_scaling = gguf.positive("logit_scale");
    set_score_scale(config, double(gguf.positive("attention.scale")));
}

}  // namespace

const Family& granite_family() {
    static const Family family{.model_type = "granite",
                               .architecture = "GraniteForCausalLM",
                               .gguf_architecture = "granite",
                               .names = hugging_face_layer_names(),
                               .gguf_names = gguf_layer_names(),
                               .gguf_layout = RopeLayout::interleaved,
                               .defaults = {32000, 4096, 11008, 32, 32, 0, 2048},
                               .read = read_granite,
                               .write = write_granite,
                               .add_gguf = add_granite_gguf,
                               .read_gguf = read_granite_gguf};
    return family;
}

}  // namespace llm::models
