"""granite_swa (Granite SWASH: windows, sinks, theta per layer) and a Granite 4.1 as it is saved today.

Followed: Hugging Face transformers 5.15, modular_granite_swa.py (its eager attention scales the output by sigmoid(logsumexp - sink), which is
one more logit in the softmax) and modeling_granite.py; layer_rope_theta 0 means no rotation. Published: granite-swash-2b, which has layer_types
but no layer_rope_theta; granite-4.1-3b, -8b and -30b, which are of model type granite."""

import torch

from families.common import attend, draw, gated_mlp, inverse_frequencies, linear, rms_norm, rotate, split_heads

seed = 4100

V, H, HKV, D = 31, 4, 2, 6


def base(hidden_size, layers, feed_forward):
    """Keys in the order of save_pretrained, with its bookkeeping; the multipliers of published files are sometimes integers."""
    return {"attention_bias": False, "attention_dropout": 0.0, "attention_multiplier": 0.35, "bos_token_id": 1, "dtype": "bfloat16",
            "embedding_multiplier": 3, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": hidden_size, "initializer_range": 0.1,
            "intermediate_size": feed_forward, "logits_scaling": 2.3, "max_position_embeddings": 64, "mlp_bias": False,
            "num_attention_heads": H, "num_hidden_layers": layers, "num_key_value_heads": HKV, "pad_token_id": 0, "residual_multiplier": 0.45,
            "rms_norm_eps": 1e-3, "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}, "transformers_version": "5.15.0",
            "use_cache": True, "vocab_size": V}


def weights_of(config):
    C, F = config["hidden_size"], config["intermediate_size"]
    weights = {"model.embed_tokens.weight": draw(V, C), "model.norm.weight": torch.rand(C)}
    if not config.get("tie_word_embeddings", True):
        weights["lm_head.weight"] = draw(V, C)
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        shapes = {"self_attn.q_proj": (H * D, C), "self_attn.k_proj": (HKV * D, C), "self_attn.v_proj": (HKV * D, C),
                  "self_attn.o_proj": (C, H * D), "mlp.gate_proj": (F, C), "mlp.up_proj": (F, C), "mlp.down_proj": (C, F)}
        for part, shape in shapes.items():
            weights[f"{name}{part}.weight"] = draw(*shape)
            if config["mlp_bias" if "mlp" in part else "attention_bias"]:
                weights[f"{name}{part}.bias"] = torch.randn(shape[0])
        weights |= {f"{name}{norm}.weight": torch.rand(C) for norm in ("input_layernorm", "post_attention_layernorm")}
        if config["model_type"] == "granite_swa":
            weights[name + "self_attn.sinks"] = torch.randn(H) + 1
    return weights


def models():
    """The first has all settings; the second leaves to the defaults what the published files leave out or say in the old spelling, and has
    the biases; the third is a Granite 4.1, which has no head_dim."""
    full, window = "full_attention", "sliding_attention"
    given = {**base(20, 5, 14), "architectures": ["GraniteSWAForCausalLM"], "head_dim": D, "model_type": "granite_swa",
             "tie_word_embeddings": False, "sliding_window": 6, "layer_types": [full, window, window, full, window],
             "layer_rope_theta": [0.0, 40.0, 500.0, 500.0, 0.0]}
    defaults = {**base(24, 5, 14), "architectures": ["GraniteSWAForCausalLM"], "attention_bias": True, "mlp_bias": True,
                "model_type": "granite_swa", "rope_scaling": None, "rope_theta": 500, "sliding_window": 5, "layer_types": None,
                "layer_rope_theta": None}
    del defaults["rope_parameters"]
    dense = {**base(24, 3, 14), "architectures": ["GraniteForCausalLM"], "model_type": "granite", "tie_word_embeddings": True}
    configs = {"granite_swa": given, "granite_swa_defaults": defaults, "granite_41": dense}
    return {name: (config, weights_of(config)) for name, config in configs.items()}


def logits(config, weights, ids):
    count, eps, scale = config["num_hidden_layers"], config["rms_norm_eps"], config["residual_multiplier"]
    types = config.get("layer_types") or ["full_attention" if n % 4 == 0 else "sliding_attention" for n in range(count)]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    thetas = config.get("layer_rope_theta") or [theta] * count
    x = weights["model.embed_tokens.weight"][ids] * config["embedding_multiplier"]
    for n in range(count):
        name = f"model.layers.{n}."
        norm = lambda y, part: rms_norm(y, weights[f"{name}{part}.weight"], eps)
        h = norm(x, "input_layernorm")
        heads = {"q": H, "k": HKV, "v": HKV}
        queries, keys, values = (split_heads(linear(weights, h, f"{name}self_attn.{part}_proj"), heads[part]) for part in "qkv")
        if thetas[n]:
            queries, keys = (rotate(y, inverse_frequencies(D, thetas[n])) for y in (queries, keys))
        window = config["sliding_window"] if "sliding_window" in config and types[n] == "sliding_attention" else None
        attended = attend(queries, keys, values, config["attention_multiplier"], window, weights.get(name + "self_attn.sinks"))
        x = x + scale * linear(weights, attended, name + "self_attn.o_proj")
        x = x + scale * gated_mlp(weights, norm(x, "post_attention_layernorm"), name + "mlp")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return rms_norm(x, weights["model.norm.weight"], eps) @ head.T / config["logits_scaling"]
