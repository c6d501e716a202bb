"""StarCoder2 (3B, 7B, 15B), written from transformers' modeling_starcoder2.py (4.57 and 5.0): a Llama whose norms are LayerNorms with a bias, whose
MLP has no gate (c_fc, GELU, c_proj), and whose projections have biases if use_bias says so; the norms have theirs always. With a sliding_window,
each layer has it. There is no key for the head's width, and none for a tied head in the two smaller models: tied is the default."""

import torch
from torch.nn import functional

from .common import attend, draw, inverse_frequencies, linear, rotate, split_heads

seed = 1
C, F, H, HKV, D, V, LAYERS = 24, 14, 4, 2, 6, 31, 3


def models():
    base = {"model_type": "starcoder2", "hidden_size": C, "intermediate_size": F, "num_attention_heads": H, "num_key_value_heads": HKV,
            "num_hidden_layers": LAYERS, "vocab_size": V, "max_position_embeddings": 64, "norm_epsilon": 1e-3, "hidden_act": "gelu_pytorch_tanh"}
    dropout = {"attention_dropout": 0.1, "embedding_dropout": 0.1, "residual_dropout": 0.1}
    weights = {"model.embed_tokens.weight": draw(V, C) / 2}
    parts = [("self_attn.q_proj", H * D, C), ("self_attn.k_proj", HKV * D, C), ("self_attn.v_proj", HKV * D, C), ("self_attn.o_proj", C, H * D),
             ("mlp.c_fc", F, C), ("mlp.c_proj", C, F)]
    for layer in range(LAYERS):
        for part, out, into in parts:
            weights |= {f"model.layers.{layer}.{part}.weight": draw(out, into), f"model.layers.{layer}.{part}.bias": torch.randn(out)}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights |= {f"model.layers.{layer}.{norm}.weight": torch.rand(C), f"model.layers.{layer}.{norm}.bias": torch.randn(C) / 2}
    weights |= {"model.norm.weight": torch.rand(C) * 2, "model.norm.bias": torch.randn(C) / 2}
    head = {"lm_head.weight": draw(V, C)}
    unbiased = {key: value for key, value in weights.items() if not key.endswith("bias") or "norm" in key}
    return {
        # As the 3B and 7B models are published.
        "starcoder2": ({**base, **dropout, "rope_theta": 500.0, "sliding_window": 6, "use_bias": True, "mlp_type": "default",
                        "norm_type": "layer_norm"}, weights),
        # As transformers 5 writes them.
        "starcoder2_full": ({**base, **dropout, "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}, "sliding_window": None,
                             "use_bias": True, "tie_word_embeddings": False}, {**weights, **head}),
        "starcoder2_unbiased": ({**base, "hidden_act": "gelu", "rope_theta": 500.0, "sliding_window": 6, "use_bias": False,
                                 "tie_word_embeddings": False}, {**unbiased, **head})}


def logits(config, weights, ids):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // heads
    theta = config.get("rope_parameters", config)["rope_theta"]
    frequencies = inverse_frequencies(head_dim, theta)

    def norm(x, name):
        return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], config["norm_epsilon"])

    def activation(x):
        return functional.gelu(x, approximate="tanh" if config["hidden_act"] == "gelu_pytorch_tanh" else "none")

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        h = norm(x, f"{name}.input_layernorm")
        queries, keys, values = (split_heads(linear(weights, h, f"{name}.self_attn.{part}_proj"), count)
                                 for part, count in zip("qkv", (heads, kv_heads, kv_heads)))
        attended = attend(rotate(queries, frequencies), rotate(keys, frequencies), values, head_dim ** -0.5, config["sliding_window"])
        x = x + linear(weights, attended, f"{name}.self_attn.o_proj")
        h = norm(x, f"{name}.post_attention_layernorm")
        x = x + linear(weights, activation(linear(weights, h, f"{name}.mlp.c_fc")), f"{name}.mlp.c_proj")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.T
