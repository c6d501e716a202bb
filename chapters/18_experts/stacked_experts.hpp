// Chapter 18: how gpt-oss and Llama 4 store the experts of a mixture: all in one tensor.
#pragma once

#include "chapters/18_experts/mixture_config.hpp"
#include "common/files/safetensors.hpp"

namespace llm {

// Stored in × out. gpt-oss: gate and up are interleaved, and there are biases. Llama 4: gate in
// the first half, up in the second.
struct StackedExperts {
    Tensor3 gate_up_proj, down_proj;  // (E, C, 2F), (E, F, C)
    Matrix gate_up_bias, down_bias;   // (E, 2F), (E, C); empty without biases
    bool interleaved;
};
bool is_stacked(const MixtureConfig& config);

// The experts of a mixture, from tensors whose names begin so; MXFP4 weights are dequantized.
// Throws FileError.
std::vector<Expert> read_stacked_experts(const SafeTensors& tensors,
                                         const MixtureConfig& config, const std::string& name);
StackedExperts stack_experts(const MixtureOfExperts& mixture, const MixtureConfig& config);

}  // namespace llm
