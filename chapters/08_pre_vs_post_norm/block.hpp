// Chapter 08, file 1 of 1 — Where do the norms go?
#pragma once

#include <variant>

#include "chapters/05_gqa/attention.hpp"
#include "chapters/06_swiglu/mlp.hpp"
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"

namespace llm {

// A transformer block maps the residual stream x, (B, T, C), to (B, T, C). The formula above
// each struct is applied twice: with attention as f, then with the MLP as f.

// The output of a block: the residual stream after it, and the attention weights.
using BlockOutput = AttentionLayer::Output;

// x + f(norm(x)): the residual stream itself is never normalized, only the input of each
// sublayer. Source: GPT-2 (Radford et al., 2019), with LayerNorm and Mlp; Llama, Qwen.
template <class Norm, class MlpLayer, class Attention = AttentionLayer>
struct PreNormBlockWith {
    Attention self_attn;
    MlpLayer mlp;
    Norm attention_norm, ffn_norm;  // HF: input_layernorm, post_attention_layernorm
    Real residual_multiplier = 1;   // of f

    using AttentionType = Attention;

    BlockOutput operator()(const Tensor3& hidden_states,              // (B, T, C)
                           const typename Attention::Inputs& inputs,  // of T positions
                           typename Attention::Cache* cache = nullptr) const {
        auto [attention_output, attentions] =
            self_attn(attention_norm(hidden_states), inputs, cache);
        const Tensor3 after_attention = hidden_states + residual_multiplier * attention_output;
        const Tensor3 mlp_output = mlp(ffn_norm(after_attention));
        return {after_attention + residual_multiplier * mlp_output, std::move(attentions)};
    }
};
using PreNormBlock = PreNormBlockWith<RMSNorm, GatedMlp>;

// norm(x + f(x)): the residual stream itself is normalized, after each of the two additions.
// Source: Vaswani et al., 2017, section 3.1 (with LayerNorm); BERT, with LayerNorm and Mlp.
template <class Norm, class MlpLayer, class Attention>
struct PostNormBlockWith {
    Attention self_attn;
    MlpLayer mlp;
    Norm attention_norm, ffn_norm;

    using AttentionType = Attention;

    BlockOutput operator()(const Tensor3& hidden_states,
                           const typename Attention::Inputs& inputs,
                           typename Attention::Cache* cache = nullptr) const {
        auto [attention_output, attentions] = self_attn(hidden_states, inputs, cache);
        const Tensor3 after_attention = attention_norm(hidden_states + attention_output);
        return {ffn_norm(after_attention + mlp(after_attention)), std::move(attentions)};
    }
};
using PostNormBlock = PostNormBlockWith<RMSNorm, GatedMlp, AttentionLayer>;

// x + norm(f(x)): only the output of each sublayer is normalized, before it is added. Source:
// "Swin Transformer V2" (Liu et al., 2021); OLMo 2.
template <class MlpLayer, class Attention>
struct ResPostNormBlockWith {
    Attention self_attn;
    MlpLayer mlp;
    RMSNorm attention_norm, ffn_norm;

    using AttentionType = Attention;

    BlockOutput operator()(const Tensor3& hidden_states,
                           const typename Attention::Inputs& inputs,
                           typename Attention::Cache* cache = nullptr) const {
        auto [attention_output, attentions] = self_attn(hidden_states, inputs, cache);
        const Tensor3 after_attention = hidden_states + attention_norm(attention_output);
        return {after_attention + ffn_norm(mlp(after_attention)), std::move(attentions)};
    }
};
using ResPostNormBlock = ResPostNormBlockWith<GatedMlp, AttentionLayer>;

// x + norm(f(norm(x))): the input and the output of each sublayer are normalized. Source:
// "CogView" (Ding et al., 2021); Gemma 2.
template <class MlpLayer, class Attention>
struct SandwichBlockWith {
    Attention self_attn;
    MlpLayer mlp;
    RMSNorm attention_norm, attention_output_norm, ffn_norm, ffn_output_norm;

    using AttentionType = Attention;

    BlockOutput operator()(const Tensor3& hidden_states,
                           const typename Attention::Inputs& inputs,
                           typename Attention::Cache* cache = nullptr) const {
        auto [attention_output, attentions] =
            self_attn(attention_norm(hidden_states), inputs, cache);
        const Tensor3 after_attention = hidden_states + attention_output_norm(attention_output);
        return {after_attention + ffn_output_norm(mlp(ffn_norm(after_attention))),
                std::move(attentions)};
    }
};
using SandwichBlock = SandwichBlockWith<GatedMlp, AttentionLayer>;

// x + attention(norm(x)) + mlp(norm(x)), once: both sublayers have the same normalized input.
// The MLP does not depend on attention. Source: GPT-J (Wang and Komatsuzaki, 2021), with
// LayerNorm and Mlp; PaLM; Cohere's Command, with LayerNorm.
template <class Norm, class MlpLayer, class Attention>
struct ParallelBlockWith {
    Attention self_attn;
    MlpLayer mlp;
    Norm norm;  // HF: input_layernorm

    using AttentionType = Attention;

    BlockOutput operator()(const Tensor3& hidden_states,
                           const typename Attention::Inputs& inputs,
                           typename Attention::Cache* cache = nullptr) const {
        const Tensor3 normalized = norm(hidden_states);
        auto [attention_output, attentions] = self_attn(normalized, inputs, cache);
        return {hidden_states + attention_output + mlp(normalized), std::move(attentions)};
    }
};
using ParallelBlock = ParallelBlockWith<RMSNorm, GatedMlp, AttentionLayer>;

// A block with any norm placement, built with norms whose weights are 1. Throws
// ValueError for an invalid enum value.
enum class NormPlacement { pre_norm, post_norm, res_post_norm, sandwich, parallel };
using Block =
    std::variant<PreNormBlock, PostNormBlock, ResPostNormBlock, SandwichBlock, ParallelBlock>;
Block make_block(NormPlacement norm_placement, const AttentionLayer& self_attn,
                 const GatedMlp& mlp, Real rms_norm_eps);
Tensor3 apply(const Block& block, const Tensor3& hidden_states,  // (B, T, C) -> (B, T, C)
              const AttentionInputs& inputs);

// GPT-2's initialization of the layers that write to the residual stream, o_proj and down_proj:
// multiplies weight and bias by 1/√(2L), so that the RMS of the sum of the 2L sublayer outputs
// of L blocks is about that of a single unscaled one. Throws ValueError if L is 0. Source:
// GPT-2 (Radford et al., 2019), section 2.3.
Linear scale_for_depth(const Linear& output_projection, std::size_t num_hidden_layers);

}  // namespace llm
