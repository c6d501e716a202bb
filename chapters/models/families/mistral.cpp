// Mistral 7B v0.1: a Llama with a sliding window in every layer. Source: Hugging Face,
// modeling_mistral.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void read_mistral(const JsonFile& json, FamilyConfig& config) {
    json.ignore("use_sliding_window");  // the window alone decides
    read_patterns(json, 0, config);
}

}  // namespace

const Family& mistral_family() {
    static const Family family{.model_type = "mistral",
                               .architecture = "MistralForCausalLM",
                               .gguf_architecture = "llama",
                               .names = hugging_face_layer_names(),
                               .gguf_names = gguf_layer_names(),
                               .gguf_layout = RopeLayout::interleaved,
                               .attribute_map = {{"attention_bias", ""}},
                               .defaults = class_defaults_of("mistral"),
                               .read = read_mistral,
                               .write =
                                   [](const FamilyConfig& config, JsonMembers& json) {
                                       add_windows(config, json);
                                       if (!sliding_window(config))
                                           json.push_back({"sliding_window", nullptr});
                                   },
                               .check_gguf = reject_windows_of_llama};
    return family;
}

}  // namespace llm::models
