// Chapter 14, file 2 of 13: LoRA, low-rank adapters of linear layers.
#pragma once

#include <string>
#include <vector>

#include "chapters/12_gradients/model_backward.hpp"

namespace llm {

// The hyperparameters of an adapter, named as in PEFT's LoraConfig. target_modules: any of
// q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj.
struct LoraConfig {
    std::size_t r = 8;  // the rank
    Real lora_alpha = 16;
    bool use_rslora = false;
    std::vector<std::string> target_modules = {"q_proj", "v_proj"};

    // α/r, or α/√r (rsLoRA). Source: Hu et al., 2021, section 4.1; Kalajdzievski, 2023.
    Real scaling() const;
};

// The adapter of one linear layer: y = x Wᵀ + s x Aᵀ Bᵀ. W is frozen.
struct LoraLayer {
    std::string name;  // of the linear layer: "model.layers.0.self_attn.q_proj"
    Matrix lora_A;     // (r, in)
    Matrix lora_B;     // (out, r)
};
struct LoraAdapter {
    LoraConfig config;
    std::vector<LoraLayer> layers;
};

// The linear layers of a model with their names, in the order of named_parameters.
struct NamedLinear {
    std::string name;
    Linear* linear;
};
std::vector<NamedLinear> named_linears(Model& model);
struct ConstNamedLinear {
    std::string name;
    const Linear* linear;
};
std::vector<ConstNamedLinear> named_linears(const Model& model);

// An adapter for all target modules of all layers. A is uniform between -1/√in and 1/√in
// (PyTorch's Kaiming-uniform with a = √5), B is 0, so that the model at first computes the same
// numbers. Throws ValueError if r is 0 or a target module does not exist. Source: PEFT,
// LoraLayer.reset_lora_parameters.
LoraAdapter make_lora(const Model& model, const LoraConfig& config, Generator& generator);

// The forward pass of one linear layer with an adapter that is not merged.
Matrix lora_linear(const Linear& linear, const LoraLayer& layer, Real scaling,
                   const Matrix& inputs);  // (N, in) -> (N, out)

// Throws ValueError unless the base model has the linear layers of the adapter, in its sizes.
void check_adapter(const Model& base, const LoraAdapter& adapter);

// Merging: W + s B A as one matrix, so that the forward and backward passes of the chapters
// before compute with the adapter unchanged. The first overload overwrites the adapted matrices
// of `merged`, a copy of the base model. Both throw ValueError as check_adapter() does.
void merge_lora(const Model& base, const LoraAdapter& adapter, Model& merged);
Model merge_lora(const Model& base, const LoraAdapter& adapter);
// Subtracts s B A again; the weights differ from the original ones by rounding errors.
void unmerge_lora(Model& merged, const LoraAdapter& adapter);

// Accumulates the gradients of A and B, computed from the gradient dW of the merged weights:
// dB = s dW Aᵀ and dA = s Bᵀ dW. This needs the memory of all dense gradients during a step;
// PEFT computes x Aᵀ in the forward pass instead and never stores a dW. The state of the
// optimizer and the file have the size of the adapter in both cases.
void lora_backward(const LoraAdapter& adapter, const Model& model_gradient,
                   LoraAdapter& gradient);

// A and B of each layer, by their names in PEFT's files:
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
std::vector<Parameter> named_parameters(LoraAdapter& adapter);

// The trainable parameters, and the bytes of their AdamW state (two numbers per parameter).
std::uint64_t num_parameters(const LoraAdapter& adapter);
std::uint64_t optimizer_bytes(std::uint64_t num_trainable_parameters);

}  // namespace llm
