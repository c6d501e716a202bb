// Chapter 09, file 3 of 5: the parameters of a model: their names, their number, and the FLOPs
// per token.
#pragma once

#include <span>
#include <string>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// A tensor that training updates, by the name that it has in a checkpoint.
struct Parameter {
    std::string name;  // Hugging Face's: "model.layers.0.mlp.up_proj.weight"
    std::vector<std::size_t> shape;
    std::span<Real> values;
};

// Append the parameters of one part of a model, each name prefixed with the name of the part.
using ParameterList = std::vector<Parameter>;
template <std::size_t N>
void add_tensor(ParameterList& list, const std::string& name, xt::xtensor<Real, N>& tensor) {
    list.push_back(
        {name, {tensor.shape().begin(), tensor.shape().end()}, {tensor.data(), tensor.size()}});
}
void add_parameters(ParameterList& list, const std::string& name, Linear& linear);
void add_parameters(ParameterList& list, const std::string& name, RMSNorm& norm);
void add_parameters(ParameterList& list, const std::string& name, AttentionLayer& layer);
void add_parameters(ParameterList& list, const std::string& name, GatedMlp& mlp);
void add_parameters(ParameterList& list, const std::string& name, Matrix& matrix);
template <class Norm, class MlpLayer, class Attention>
void add_parameters(ParameterList& list, const std::string& name,
                    PreNormBlockWith<Norm, MlpLayer, Attention>& block) {
    add_parameters(list, name + ".input_layernorm", block.attention_norm);
    add_parameters(list, name + ".self_attn", block.self_attn);
    add_parameters(list, name + ".post_attention_layernorm", block.ffn_norm);
    add_parameters(list, name + ".mlp", block.mlp);
}

// All parameters of a model, as views of its tensors: the model must outlive them. A tied head
// is not listed twice. Source: torch.nn.Module.named_parameters.
template <class Layer, class AnyConfig, class FinalNorm>
std::vector<Parameter> named_parameters(DecoderModel<Layer, AnyConfig, FinalNorm>& model) {
    ParameterList list;
    add_parameters(list, "model.embed_tokens.weight", model.embed_tokens);
    if (model.embed_positions)
        add_parameters(list, "model.embed_positions.weight", *model.embed_positions);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        add_parameters(list, "model.layers." + std::to_string(n), model.layers[n]);
    add_parameters(list, "model.norm", model.norm);
    if (model.lm_head) add_parameters(list, "lm_head.weight", *model.lm_head);
    return list;
}
struct ConstParameter {
    std::string name;
    std::vector<std::size_t> shape;
    std::span<const Real> values;
};
std::vector<ConstParameter> named_parameters(const Model& model);

// The number of parameters by part. A tied head counts once, as embedding.
struct ParameterCount {
    std::uint64_t embedding = 0, attention = 0, mlp = 0, norms = 0, head = 0;

    std::uint64_t total() const { return embedding + attention + mlp + norms + head; }
};
ParameterCount count_parameters(const Config& config);  // allocates no tensor
ParameterCount count_parameters(const Model& model);    // sizes of the tensors in memory

// FLOPs of the forward pass for one token at a position, counted from 0: two per element of
// each matrix (a multiplication and an addition), and per position attended to four per feature
// of each query head (two for the score, two for the weighted sum of values), whether or not
// heads share keys. Source: Kaplan et al., 2020, section 2.1.
std::uint64_t flops_per_token(const Config& config, std::size_t position);

}  // namespace llm
