// Experts that are stored in one tensor for all: those of gpt-oss and Llama 4, and those of the
// other families as transformers 5 may save them.
#pragma once

#include "chapters/models/family.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

// Stored in × out. The columns of gate and up alternate (gpt-oss), or gate has the first half.
struct StackedExperts {
    Tensor3 gate_up_proj, down_proj;  // (E, C, 2F), (E, F, C)
    Matrix gate_up_bias, down_bias;   // (E, 2F), (E, C); empty without biases
    bool alternate_columns;
};

// Whether there are stacked tensors whose names begin so, of a family whose own files have a
// tensor for each matrix.
bool has_fused_experts(const SafeTensors& tensors, const std::string& name);
// Reads these: gate_up_proj, (E, 2F, C), gate first, and down_proj, (E, C, F). Throws
// FileError.
void read_fused_experts(const SafeTensors& tensors, const MoeConfig& moe,
                        std::size_t hidden_size, const std::string& name,
                        std::vector<Expert>& experts);

// The weights of the experts of gpt-oss and Llama 4; MXFP4 weights are dequantized. Throws
// FileError.
void read_stacked_experts(const SafeTensors& tensors, const FamilyConfig& config,
                          const MoeConfig& moe, const std::string& name,
                          std::vector<Expert>& experts);
StackedExperts stack_experts(const std::vector<Expert>& experts, const FamilyConfig& config,
                             const MoeConfig& moe);

}  // namespace llm::models
