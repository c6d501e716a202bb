// Mistral 7B v0.1: a Llama with a sliding window in every layer. Source: Hugging Face,
// modeling_mistral.py.
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void read_mistral(const JsonFile& json, FamilyConfig& config) {
    json.ignore("use_sliding_window");  // the window alone decides
    read_patterns(json, 0, config);
}

void write_mistral(const FamilyConfig& config, JsonMembers& json) {
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"sliding_window", sliding_window(config).value_or(4096)}});
}

}  // namespace

const Family& mistral_family() {
    static const Family family{.model_type = "mistral",
                               .architecture = "MistralForCausalLM",
                               .gguf_architecture = "llama",
                               .names = hugging_face_layer_names(),
                               .gguf_names = gguf_layer_names(),
                               .attribute_map = {{"attention_bias", ""}},
                               .gguf_layout = RopeLayout::interleaved,
                               .defaults = class_defaults_of("mistral"),
                               .read = read_mistral,
                               .write = write_mistral,
                               .check_gguf = reject_windows_of_llama};
    return family;
}

}  // namespace llm::models
