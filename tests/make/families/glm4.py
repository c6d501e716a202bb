"""GLM-4-0414 (9B, 32B), written from transformers' modeling_glm4.py (4.57 and 5.0): norms before and after each sublayer, where
post_attention_layernorm is the one *before* the MLP; biases of q, k and v, but not of o, if attention_bias says so (the 9B model has them, the 32B
model has none); RoPE of the first features of each head, in interleaved pairs; gate and up in one matrix, the gate first. transformers 5 writes
partial_rotary_factor into rope_parameters."""

import torch
from torch.nn import functional

from .common import attend, draw, inverse_frequencies, linear, rms_norm, rotate, split_heads

seed = 2
C, F, H, HKV, D, V, LAYERS = 24, 14, 4, 2, 10, 31, 3


def models():
    base = {"model_type": "glm4", "hidden_size": C, "intermediate_size": F, "num_attention_heads": H, "num_key_value_heads": HKV, "head_dim": D,
            "num_hidden_layers": LAYERS, "vocab_size": V, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "hidden_act": "silu",
            "attention_dropout": 0.0}
    weights = {"model.embed_tokens.weight": draw(V, C) / 2, "model.norm.weight": torch.rand(C) * 2}
    parts = [("self_attn.q_proj", H * D, C), ("self_attn.k_proj", HKV * D, C), ("self_attn.v_proj", HKV * D, C), ("self_attn.o_proj", C, H * D),
             ("mlp.gate_up_proj", 2 * F, C), ("mlp.down_proj", C, F)]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        for part, out, into in parts:
            weights[f"{name}.{part}.weight"] = draw(out, into)
            if part[-6:] in ("q_proj", "k_proj", "v_proj"):
                weights[f"{name}.{part}.bias"] = torch.randn(out)
        for norm in ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"):
            weights[f"{name}.{norm}.weight"] = torch.rand(C)
    head = {"lm_head.weight": draw(V, C)}
    unbiased = {key: value for key, value in weights.items() if not key.endswith("bias")}
    return {
        "glm4": ({**base, "attention_bias": True, "rope_theta": 500.0, "partial_rotary_factor": 0.6, "tie_word_embeddings": False},
                 {**weights, **head}),
        "glm4_unbiased": ({**base, "attention_bias": False, "tie_word_embeddings": True,
                           "rope_parameters": {"partial_rotary_factor": 0.6, "rope_theta": 500.0, "rope_type": "default"}}, unbiased)}


def logits(config, weights, ids):
    heads, kv_heads, head_dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    rope = config.get("rope_parameters", config)
    frequencies = inverse_frequencies(int(head_dim * rope["partial_rotary_factor"]), rope["rope_theta"])

    def norm(x, name):
        return rms_norm(x, weights[f"{name}.weight"], config["rms_norm_eps"])

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        h = norm(x, f"{name}.input_layernorm")
        queries, keys, values = (split_heads(linear(weights, h, f"{name}.self_attn.{part}_proj"), count)
                                 for part, count in zip("qkv", (heads, kv_heads, kv_heads)))
        queries, keys = (rotate(states, frequencies, interleaved=True) for states in (queries, keys))
        attended = linear(weights, attend(queries, keys, values, head_dim ** -0.5), f"{name}.self_attn.o_proj")
        x = x + norm(attended, f"{name}.post_self_attn_layernorm")
        h = norm(x, f"{name}.post_attention_layernorm")
        gate, up = linear(weights, h, f"{name}.mlp.gate_up_proj").chunk(2, -1)
        x = x + norm(linear(weights, functional.silu(gate) * up, f"{name}.mlp.down_proj"), f"{name}.post_mlp_layernorm")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.T
