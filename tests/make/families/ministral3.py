"""Ministral 3: a Llama with YaRN whose queries have a temperature, 1 + β ln(1 + ⌊position / original length⌋), after RoPE; and Mistral 3, the
model for text and pictures around it. Followed: Hugging Face's modeling_ministral3.py, configuration_ministral3.py, modeling_mistral3.py and
modeling_rope_utils.py (transformers 5), llama.cpp's mistral3.cpp and conversion/mistral3.py."""

import math

import torch

from .common import attend, draw, gated_mlp, linear, rms_norm, rotate, split_heads, yarn

seed = 302


def rope(settings, head_dim):
    """Frequencies, and the factor of cosine and sine: the quotient of two if mscale and mscale_all_dim are there and not 0. Unlike in
    DeepSeek, the scale of the scores is 1/√D."""
    frequencies, factor = yarn(head_dim, settings["rope_theta"], settings["factor"], settings["original_max_position_embeddings"],
                               settings["beta_fast"], settings["beta_slow"])
    mscale = lambda key: 0.1 * settings[key] * math.log(settings["factor"]) + 1
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        factor = mscale("mscale") / mscale("mscale_all_dim")
    return frequencies, factor


def temperatures(settings, seq_len):
    """What each query is multiplied by: 1 up to the original length. (T, 1)"""
    length = settings["original_max_position_embeddings"]
    return 1 + settings["llama_4_scaling_beta"] * torch.log(1 + torch.floor(torch.arange(seq_len)[:, None] / length))


def text_logits(config, weights, ids):
    eps, heads, kv_heads, head_dim = (config[key] for key in ("rms_norm_eps", "num_attention_heads", "num_key_value_heads", "head_dim"))
    settings = config["rope_parameters"]
    frequencies, factor = rope(settings, head_dim)
    x = weights["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        h = rms_norm(x, weights[f"{layer}.input_layernorm.weight"], eps)
        queries, keys, values = (split_heads(linear(weights, h, f"{layer}.self_attn.{part}_proj"), count)
                                 for part, count in [("q", heads), ("k", kv_heads), ("v", kv_heads)])
        queries, keys = (rotate(y, frequencies, factor=factor) for y in (queries, keys))
        queries = queries * temperatures(settings, ids.shape[1])
        context = attend(queries, keys, values, head_dim ** -0.5, config["sliding_window"])
        x = x + linear(weights, context, f"{layer}.self_attn.o_proj")
        x = x + gated_mlp(weights, rms_norm(x, weights[f"{layer}.post_attention_layernorm.weight"], eps), f"{layer}.mlp")
    head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return rms_norm(x, weights["model.norm.weight"], eps) @ head.T


def logits(config, weights, ids):
    """Of the text alone: the weights of the language model lose their prefix, and those of the pictures are not used."""
    if config["model_type"] == "mistral3":
        prefix = "language_model."
        config, weights = config["text_config"], {name[len(prefix):]: value for name, value in weights.items() if name.startswith(prefix)}
    return text_logits(config, weights, ids)


def make_weights(config):
    C, F, V, heads, kv_heads, D = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads",
                                                            "num_key_value_heads", "head_dim"))
    weights = {"model.embed_tokens.weight": draw(V, C) / 2, "model.norm.weight": 2 * torch.rand(C)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        for part, out, into in [("self_attn.q", heads * D, C), ("self_attn.k", kv_heads * D, C), ("self_attn.v", kv_heads * D, C),
                                ("self_attn.o", C, heads * D), ("mlp.gate", F, C), ("mlp.up", F, C), ("mlp.down", C, F)]:
            weights[f"{layer}.{part}_proj.weight"] = draw(out, into)
        weights |= {f"{layer}.{part}_layernorm.weight": torch.rand(C) for part in ("input", "post_attention")}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = draw(V, C)
    return weights


def picture_weights(vision, hidden_size):
    """Some weights of Pixtral's vision tower, and those of the projector. Their names end as those of the text model do."""
    C, F, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    layer = "vision_tower.transformer.layers.0"
    weights = {"vision_tower.patch_conv.weight": draw(C, vision["num_channels"], patch, patch), "vision_tower.ln_pre.weight": torch.rand(C)}
    weights |= {f"{layer}.{name}.weight": torch.rand(C) for name in ("attention_norm", "ffn_norm")}
    weights |= {f"{layer}.attention.{part}_proj.weight": draw(C, C) for part in "qkvo"}
    weights |= {f"{layer}.feed_forward.{part}_proj.weight": draw(out, into) for part, out, into in [("gate", F, C), ("up", F, C), ("down", C, F)]}
    weights |= {"multi_modal_projector.norm.weight": torch.rand(C), "multi_modal_projector.patch_merger.merging_layer.weight": draw(C, 4 * C),
                "multi_modal_projector.linear_1.weight": draw(hidden_size, C)}
    return weights | {"multi_modal_projector.linear_2.weight": draw(hidden_size, hidden_size)}


def models():
    """A model for text alone, tied and without a window, with the quotient of the published files, 1. And one for text and pictures: untied, as
    its text_config says (the key of the whole file is true in files of transformers 5 and decides nothing here), with a window in all layers."""
    base = {"attention_dropout": 0.0, "head_dim": 6, "hidden_act": "silu", "hidden_size": 20, "initializer_range": 0.02, "intermediate_size": 14,
            "max_position_embeddings": 64, "model_type": "ministral3", "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-3, "use_cache": True, "vocab_size": 31}
    settings = {"beta_fast": 1.0, "beta_slow": 0.1, "factor": 8.0, "llama_4_scaling_beta": 0.7, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 8, "rope_theta": 500.0, "rope_type": "yarn", "type": "yarn"}
    text = {"architectures": ["Ministral3ForCausalLM"], "dtype": "bfloat16", **base, "rope_parameters": settings, "sliding_window": None,
            "tie_word_embeddings": True, "transformers_version": "5.15.0"}
    inner = {**base, "rope_parameters": {**settings, "beta_fast": 2.0, "beta_slow": 0.25, "factor": 4.0, "llama_4_scaling_beta": 0.9,
                                         "mscale_all_dim": 0.4, "original_max_position_embeddings": 16},
             "sliding_window": 6, "tie_word_embeddings": False}
    vision = {"attention_dropout": 0.0, "head_dim": 4, "hidden_act": "silu", "hidden_size": 8, "image_size": 6, "intermediate_size": 10,
              "model_type": "pixtral", "num_attention_heads": 2, "num_channels": 3, "num_hidden_layers": 1, "patch_size": 3,
              "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
    both = {"architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16", "image_token_index": 10, "model_type": "mistral3",
            "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2, "text_config": inner,
            "tie_word_embeddings": True, "transformers_version": "5.15.0", "vision_config": vision, "vision_feature_layer": -1}
    text_weights = make_weights(text)
    weights = {f"language_model.{name}": value for name, value in make_weights(inner).items()}
    return {"ministral3": (text, text_weights), "mistral3": (both, weights | picture_weights(vision, inner["hidden_size"]))}
