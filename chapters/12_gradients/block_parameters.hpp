// Chapter 12, file 7 of 8: the parameters of chapter 08's other blocks, and of their LayerNorm
// and MLP without a gate.
#pragma once

#include "chapters/09_full_model/parameters.hpp"

namespace llm {

inline void add_parameters(ParameterList& list, const std::string& name, LayerNorm& norm) {
    add_tensor(list, name + ".weight", norm.weight);
    if (norm.bias) add_tensor(list, name + ".bias", *norm.bias);
}
inline void add_parameters(ParameterList& list, const std::string& name, Mlp& mlp) {
    add_parameters(list, name + ".up_proj", mlp.up_proj);
    add_parameters(list, name + ".down_proj", mlp.down_proj);
}

// Blocks with one norm after each sublayer, under OLMo 2's names.
template <class NormAfterBlock>
void add_norms_after_sublayers(ParameterList& list, const std::string& name,
                               NormAfterBlock& block) {
    add_parameters(list, name + ".self_attn", block.self_attn);
    add_parameters(list, name + ".post_attention_layernorm", block.attention_norm);
    add_parameters(list, name + ".mlp", block.mlp);
    add_parameters(list, name + ".post_feedforward_layernorm", block.ffn_norm);
}
template <class Norm, class MlpLayer, class Attention>
void add_parameters(ParameterList& list, const std::string& name,
                    PostNormBlockWith<Norm, MlpLayer, Attention>& block) {
    add_norms_after_sublayers(list, name, block);
}
template <class MlpLayer, class Attention>
void add_parameters(ParameterList& list, const std::string& name,
                    ResPostNormBlockWith<MlpLayer, Attention>& block) {
    add_norms_after_sublayers(list, name, block);
}
template <class MlpLayer, class Attention>
void add_parameters(ParameterList& list, const std::string& name,
                    SandwichBlockWith<MlpLayer, Attention>& block) {
    add_parameters(list, name + ".input_layernorm", block.attention_norm);
    add_parameters(list, name + ".self_attn", block.self_attn);
    add_parameters(list, name + ".post_attention_layernorm", block.attention_output_norm);
    add_parameters(list, name + ".pre_feedforward_layernorm", block.ffn_norm);
    add_parameters(list, name + ".mlp", block.mlp);
    add_parameters(list, name + ".post_feedforward_layernorm", block.ffn_output_norm);
}
template <class Norm, class MlpLayer, class Attention>
void add_parameters(ParameterList& list, const std::string& name,
                    ParallelBlockWith<Norm, MlpLayer, Attention>& block) {
    add_parameters(list, name + ".input_layernorm", block.norm);
    add_parameters(list, name + ".self_attn", block.self_attn);
    add_parameters(list, name + ".mlp", block.mlp);
}

}  // namespace llm
