// How gpt-oss and Llama 4 store the experts of a mixture of experts: all in one tensor.
#pragma once

#include "chapters/models/family.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

// Stored in × out, as the ExpertStorage of the family says.
struct StackedExperts {
    Tensor3 gate_up_proj, down_proj;  // (E, C, 2F), (E, F, C)
    Matrix gate_up_bias, down_bias;   // (E, 2F), (E, C); empty without biases
    bool interleaved;
};

// The weights of these experts, from tensors whose names begin so; MXFP4 weights are
// dequantized. Throws FileError.
void read_stacked_experts(const SafeTensors& tensors, const FamilyConfig& config,
                          const std::string& name, std::vector<Expert>& experts);
StackedExperts stack_experts(const std::vector<Expert>& experts, const FamilyConfig& config);

}  // namespace llm::models
