"""OLMo 3: OLMo 2's layers (norms after the sublayers, QK norm over all heads) with windows in three layers of four, and YaRN in the layers with
full attention only; layers with a window have plain RoPE. Followed: Hugging Face's modeling_olmo3.py and configuration_olmo3.py (transformers
4.57 and 5.13 or newer; 5.0 to 5.12 rotate all layers by YaRN) and llama.cpp's olmo2.cpp."""

import torch

from .common import attend, draw, gated_mlp, inverse_frequencies, linear, rms_norm, rotate, split_heads, yarn

seed = 301


def layer_types(config):
    """Full attention in every fourth layer, unless the file lists the layers."""
    return config.get("layer_types") or [f"{'sliding' if (n + 1) % 4 else 'full'}_attention" for n in range(config["num_hidden_layers"])]


def rope_parameters(config, kind):
    """RoPE of the layers of this kind. transformers 5 nests it by kind, or has one object for both; 4.57 has rope_theta and rope_scaling. The
    latter two are those of full attention; layers with a window have their theta."""
    flat = config.get("rope_parameters") or {**config["rope_scaling"], "rope_theta": config["rope_theta"]}
    if kind in flat:
        return flat[kind]
    return flat if kind == "full_attention" else {"rope_type": "default", "rope_theta": flat["rope_theta"]}


def rope(config, kind, head_dim):
    """Frequencies, and the factor of cosine and sine."""
    settings = rope_parameters(config, kind)
    if settings["rope_type"] == "default":
        return inverse_frequencies(head_dim, settings["rope_theta"]), 1.0
    frequencies, factor = yarn(head_dim, settings["rope_theta"], settings["factor"], settings["original_max_position_embeddings"],
                               settings["beta_fast"], settings["beta_slow"])
    return frequencies, settings.get("attention_factor", factor)


def logits(config, weights, ids):
    eps, heads, kv_heads = config["rms_norm_eps"], config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    x = weights["model.embed_tokens.weight"][ids]
    for n, kind in enumerate(layer_types(config)):
        layer = f"model.layers.{n}"
        norm = lambda y, name: rms_norm(y, weights[f"{layer}.{name}.weight"], eps)
        queries = split_heads(norm(linear(weights, x, f"{layer}.self_attn.q_proj"), "self_attn.q_norm"), heads)
        keys = split_heads(norm(linear(weights, x, f"{layer}.self_attn.k_proj"), "self_attn.k_norm"), kv_heads)
        values = split_heads(linear(weights, x, f"{layer}.self_attn.v_proj"), kv_heads)
        frequencies, factor = rope(config, kind, head_dim)
        queries, keys = (rotate(y, frequencies, factor=factor) for y in (queries, keys))
        window = config["sliding_window"] if kind == "sliding_attention" else None
        context = attend(queries, keys, values, head_dim ** -0.5, window)
        x = x + norm(linear(weights, context, f"{layer}.self_attn.o_proj"), "post_attention_layernorm")
        x = x + norm(gated_mlp(weights, x, f"{layer}.mlp"), "post_feedforward_layernorm")
    return linear(weights, rms_norm(x, weights["model.norm.weight"], eps), "lm_head")


def make_weights(config):
    C, F, V, heads, kv_heads = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads",
                                                         "num_key_value_heads"))
    D = config.get("head_dim", C // heads)
    weights = {"model.embed_tokens.weight": draw(V, C) / 2, "model.norm.weight": 2 * torch.rand(C), "lm_head.weight": draw(V, C)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        for part, out, into in [("q", heads * D, C), ("k", kv_heads * D, C), ("v", kv_heads * D, C), ("o", C, heads * D)]:
            weights[f"{layer}.self_attn.{part}_proj.weight"] = draw(out, into)
            if config["attention_bias"]:
                weights[f"{layer}.self_attn.{part}_proj.bias"] = torch.randn(out)
        for part, out, into in [("gate", F, C), ("up", F, C), ("down", C, F)]:
            weights[f"{layer}.mlp.{part}_proj.weight"] = draw(out, into)
        weights |= {f"{layer}.self_attn.q_norm.weight": 2 * torch.rand(heads * D), f"{layer}.self_attn.k_norm.weight": 2 * torch.rand(kv_heads * D)}
        weights |= {f"{layer}.post_{part}_layernorm.weight": torch.rand(C) for part in ("attention", "feedforward")}
    return weights


def models():
    """As transformers 5.15 writes it: rope_parameters by kind of layer, which could have a theta of its own for windows. And as the published
    files are, from 4.57: rope_scaling and rope_theta; this one has no layer_types, no biases, and heads as wide as the hidden states."""
    base = {"architectures": ["Olmo3ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu", "intermediate_size": 14,
            "max_position_embeddings": 64, "model_type": "olmo3", "num_attention_heads": 4, "num_hidden_layers": 5, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-3, "sliding_window": 6, "tie_word_embeddings": False, "use_cache": True, "vocab_size": 31}
    full = {"attention_factor": 1.3, "beta_fast": 2.0, "beta_slow": 0.25, "factor": 4.0, "original_max_position_embeddings": 16,
            "rope_theta": 500.0, "rope_type": "yarn"}
    kinds = {"full_attention": full, "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"}}
    types = [f"{kind}_attention" for kind in ("full", "sliding", "sliding", "full", "sliding")]
    new = {**base, "attention_bias": True, "dtype": "bfloat16", "head_dim": 6, "hidden_size": 20, "layer_types": types, "rope_parameters": kinds,
           "transformers_version": "5.15.0"}
    scaling = {"beta_fast": 1.0, "beta_slow": 0.1, "factor": 8.0, "original_max_position_embeddings": 8, "rope_type": "yarn"}
    old = {**base, "attention_bias": False, "hidden_size": 24, "rope_scaling": scaling, "rope_theta": 500.0, "torch_dtype": "bfloat16",
           "transformers_version": "4.57.0"}
    return {"olmo3": (new, make_weights(new)), "olmo3_v4": (old, make_weights(old))}
