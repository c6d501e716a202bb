// Gemma: norms that multiply by 1 + w, embeddings multiplied by √C, heads of 256 features.
// Source: Hugging Face, modeling_gemma.py.
#include "chapters/models/families/gemma_common.hpp"

namespace llm::models {
namespace {

// The first files say "gelu" and mean the approximation with tanh, as hidden_activation says in
// later ones.
void read_gemma1(const JsonFile& json, FamilyConfig&) {
    const std::string key = "hidden_act", tanh(GELUTanh.name);
    if (json.has("hidden_activation"))
        json.ignore(key);
    else if (json.has(key) && json.text(key) != tanh && json.text(key) != GELU.name)
        json.reject_value(key, json.text(key), tanh);
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

}  // namespace llm::models
