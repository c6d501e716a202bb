// Chapter 09, file 4 of 9: the names of a model's tensors in files.
#pragma once

#include <string>

namespace llm {

// The names of tensors in a file; those of layer n are prefixed with "layer" and n. A name is
// followed by ".weight" or ".bias".
struct TensorNames {
    std::string embed_tokens, layer, norm, lm_head;
    std::string attention_norm, q_proj, k_proj, v_proj, o_proj;
    std::string ffn_norm, gate_proj, up_proj, down_proj;
    std::string q_norm = "", k_norm = "";  // if the model type has a QK norm
};

inline const TensorNames hugging_face_names = {
    "model.embed_tokens", "model.layers.",
    "model.norm",         "lm_head",
    "input_layernorm",    "self_attn.q_proj",
    "self_attn.k_proj",   "self_attn.v_proj",
    "self_attn.o_proj",   "post_attention_layernorm",  // despite its name, before the MLP
    "mlp.gate_proj",      "mlp.up_proj",
    "mlp.down_proj",      "self_attn.q_norm",
    "self_attn.k_norm"};
inline const TensorNames mini_llm_names = {
    "tok_embeddings.emb", "layers.",         "norm",           "output",       "attention_norm",
    "attention.wq",       "attention.wk",    "attention.wv",   "attention.wo", "ffn_norm",
    "feed_forward.w1",    "feed_forward.w3", "feed_forward.w2"};
inline const TensorNames gguf_names = {"token_embd",  "blk.",        "output_norm", "output",
                                       "attn_norm",   "attn_q",      "attn_k",      "attn_v",
                                       "attn_output", "ffn_norm",    "ffn_gate",    "ffn_up",
                                       "ffn_down",    "attn_q_norm", "attn_k_norm"};

}  // namespace llm
