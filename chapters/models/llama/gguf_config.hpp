// The configuration of a model in a GGUF file.
#pragma once

#include <set>

#include "chapters/09_full_model/model.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {

// The tensor with Llama 3's scaling: a divisor for each of RoPE's frequencies.
inline const std::string gguf_rope_factors = "rope_freqs.weight";

// Reads the metadata of a model of architecture llama, qwen2 or qwen3. Biases, a tied head and
// Llama 3's scaling follow from the tensors. Throws FileError, which names the key, if one is
// missing, contradicts another, or requires an unsupported feature. Source: llama.cpp,
// llama-model.cpp, load_hparams.
Config read_config(const Gguf& file);

// What all architectures have: sizes, theta, the ε of the norms, which has this key, and
// whether the head is tied. The other keys are those of the architecture. Throws FileError.
Config read_common_config(const Gguf& file, const std::string& eps_key);
// Throws FileError, which names a key that begins so and that nothing has read, unless it has
// no effect: those of embeddings, and the defaults of llama.cpp for other architectures. Only
// those of encoders are not causal.
void reject_unread_settings(const Gguf& file, const std::string& prefix, bool causal = true);

// The RoPE layout of q_proj and k_proj. For llama, llama.cpp's converter permutes the rows of
// Hugging Face's weights to interleaved pairs.
RopeLayout rope_layout(const std::string& architecture);
RopeLayout rope_layout(const Gguf& file);

}  // namespace llm::models
