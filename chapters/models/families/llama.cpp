// Llama and the types that differ from it in biases or a QK norm alone. Their files are read by
// models/llama. Source: Hugging Face, modeling_llama.py.
#include "chapters/models/family.hpp"

namespace llm::models {

const Family& llama_family() {
    static const Family family{.model_type = "llama",
                               .architecture = "LlamaForCausalLM",
                               .gguf_architecture = "llama",
                               .names = hugging_face_layer_names(),
                               .gguf_names = gguf_layer_names()};
    return family;
}

}  // namespace llm::models
