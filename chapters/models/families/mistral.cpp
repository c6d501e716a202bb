// Mistral 7B v0.1: a Llama with a sliding window in every layer. Source: Hugging Face,
// modeling_mistral.py.
#include "chapters/models/family.hpp"

namespace llm::models {
namespace {

void read_mistral(const JsonFile& json, FamilyConfig& config) {
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
                               .gguf_layout = RopeLayout::interleaved,
                               .defaults = {.rms_norm_eps = 1e-6},
                               .read = read_mistral,
                               .write = write_mistral,
                               .check_gguf = reject_windows_of_llama};
    return family;
}

}  // namespace llm::models
