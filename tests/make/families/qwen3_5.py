"""Qwen3.5, 3.6 and 3.8, dense and MoE, the text part. Written from transformers' modeling_qwen3_5.py and modeling_qwen3_5_moe.py (5.2 to 5.18), its
conversion_mapping.py and modeling_rope_utils.py, mlx-lm's qwen3_5.py and llama.cpp's conversion/qwen.py. Layers as those of Qwen3-Next, whose norms
multiply by 1 + w, and that of the DeltaNet by w; its four input projections are apart. Router weights are always normalized: there is no
norm_topk_prob. mrope gives a text three equal position ids, which is RoPE. Tensors mtp.* and model.visual.* are not part of the text model.

Spellings: published files are of the wrapper, with model.language_model. and fused experts, whose config.json says full_attention_interval and
layer_types. What transformers saves of a text model has the model type qwen3_5_text or qwen3_5_moe_text, the prefix of the wrapper all the same,
and experts one by one; other programs write model. without it."""

import torch
from torch.nn import functional

from families.common import attend, draw, gated_mlp, inverse_frequencies, linear, rms_norm, rotate, split_heads
from make_fixtures import delta_layer

seed = 59  # With most seeds, float32 changes the logits by more than 1e-5 of the largest.

PREFIX = "model.language_model."


def text_config(config):
    return config.get("text_config", config)


def layer_types(config):
    interval = config.get("full_attention_interval", 4)
    otherwise = ["linear_attention" if (n + 1) % interval else "full_attention" for n in range(config["num_hidden_layers"])]
    return config.get("layer_types", otherwise)


def linear_sizes(config):
    return tuple(config[f"linear_{key}"] for key in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))


def random_weights(config):
    """With the names of a wrapper, and fused experts."""
    C, heads, kv_heads, D = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    key_heads, value_heads, key_dim, value_dim = linear_sizes(config)
    width, value_width = 2 * key_heads * key_dim + value_heads * value_dim, value_heads * value_dim
    mlp = lambda name, F: {f"{name}.gate_proj.weight": draw(F, C), f"{name}.up_proj.weight": draw(F, C), f"{name}.down_proj.weight": draw(C, F)}
    weights = {PREFIX + "embed_tokens.weight": draw(config["vocab_size"], C), PREFIX + "norm.weight": torch.rand(C) - 0.5}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = draw(config["vocab_size"], C)
    for n, kind in enumerate(layer_types(config)):
        layer, full, state = (f"{PREFIX}layers.{n}.{part}" for part in ("", "self_attn.", "linear_attn."))
        weights |= {f"{layer}{norm}.weight": torch.rand(C) - 0.5 for norm in ("input_layernorm", "post_attention_layernorm")}
        if kind == "full_attention":
            for part, shape in {"q": (2 * heads * D, C), "k": (kv_heads * D, C), "v": (kv_heads * D, C), "o": (C, heads * D)}.items():
                weights[f"{full}{part}_proj.weight"] = draw(*shape)
                if config["attention_bias"]:
                    weights[f"{full}{part}_proj.bias"] = torch.randn(shape[0]) / 2
            weights |= {f"{full}{part}_norm.weight": torch.rand(D) - 0.5 for part in "qk"}
        else:
            weights |= {state + "in_proj_qkv.weight": draw(width, C), state + "in_proj_z.weight": draw(value_width, C),
                        state + "in_proj_b.weight": draw(value_heads, C), state + "in_proj_a.weight": draw(value_heads, C),
                        state + "conv1d.weight": draw(width, 1, config["linear_conv_kernel_dim"]), state + "A_log": torch.randn(value_heads) - 1,
                        state + "dt_bias": torch.randn(value_heads), state + "norm.weight": torch.rand(value_dim) + 0.5,
                        state + "out_proj.weight": draw(C, value_width)}
        if "num_experts" not in config:
            weights |= mlp(layer + "mlp", config["intermediate_size"])
            continue
        experts, F = config["num_experts"], config["moe_intermediate_size"]
        weights |= {layer + "mlp.gate.weight": draw(experts, C), layer + "mlp.experts.gate_up_proj": draw(experts, 2 * F, C),
                    layer + "mlp.experts.down_proj": draw(experts, C, F), layer + "mlp.shared_expert_gate.weight": draw(1, C),
                    **mlp(layer + "mlp.shared_expert", config["shared_expert_intermediate_size"])}
    return weights


def other_parts(C):
    """Of the vision model and of multi-token prediction, whose experts are one by one."""
    return {"model.visual.patch_embed.proj.weight": torch.randn(3, 3, 2, 2, 2), "model.visual.patch_embed.proj.bias": torch.randn(3),
            "model.visual.pos_embed.weight": torch.randn(5, 3), "model.visual.blocks.0.norm1.weight": torch.randn(3),
            "model.visual.merger.linear_fc2.weight": torch.randn(C, 12), "mtp.fc.weight": torch.randn(C, 2 * C),
            "mtp.norm.weight": torch.randn(C), "mtp.pre_fc_norm_embedding.weight": torch.randn(C), "mtp.pre_fc_norm_hidden.weight": torch.randn(C),
            "mtp.layers.0.input_layernorm.weight": torch.randn(C), "mtp.layers.0.mlp.experts.0.gate_proj.weight": torch.randn(7, C)}


def separate_experts(weights):
    """As transformers saves them: mlp.experts.E.gate_proj.weight, up_proj and down_proj."""
    separate = {}
    for name, weight in weights.items():
        start, *part = name.split("experts.")
        if part == ["gate_up_proj"]:
            for e, gate_up in enumerate(weight):
                separate[f"{start}experts.{e}.gate_proj.weight"], separate[f"{start}experts.{e}.up_proj.weight"] = gate_up.chunk(2)
        elif part == ["down_proj"]:
            separate |= {f"{start}experts.{e}.down_proj.weight": down for e, down in enumerate(weight)}
        else:
            separate[name] = weight
    return separate


def wrapper(text, model_type, architecture):
    """The published config.json: sizes of the text model only inside of text_config."""
    vision = {"deepstack_visual_indexes": [], "depth": 1, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3, "in_channels": 3,
              "initializer_range": 0.02, "intermediate_size": 9, "model_type": model_type, "num_heads": 1, "num_position_embeddings": 5,
              "out_hidden_size": text["hidden_size"], "patch_size": 2, "spatial_merge_size": 2, "temporal_patch_size": 2}
    return {"architectures": [architecture], "image_token_id": 29, "model_type": model_type, "text_config": text,
            "tie_word_embeddings": text["tie_word_embeddings"], "transformers_version": "4.57.0.dev0", "video_token_id": 30,
            "vision_config": vision, "vision_end_token_id": 28, "vision_start_token_id": 27}


def models():
    """key_head_dim and value_head_dim are equal where llama.cpp shall read the model."""
    sizes = {"attention_bias": False, "attention_dropout": 0.0, "dtype": "bfloat16", "eos_token_id": 2, "head_dim": 10, "hidden_act": "silu",
             "hidden_size": 24, "initializer_range": 0.02, "linear_conv_kernel_dim": 3, "linear_key_head_dim": 5, "linear_num_key_heads": 2,
             "linear_num_value_heads": 6, "linear_value_head_dim": 5, "max_position_embeddings": 64, "num_attention_heads": 4,
             "num_key_value_heads": 2, "rms_norm_eps": 1e-3, "use_cache": True, "vocab_size": 31}
    published = {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    rope = {"mrope_interleaved": True, "mrope_section": [1, 1, 1], "rope_type": "default", "rope_theta": 500, "partial_rotary_factor": 0.6}
    window = ["linear_attention", "linear_attention", "full_attention"]

    # As Qwen3.8-27B, with its keys.
    dense = {**sizes, **published, "bos_token_id": 1, "full_attention_interval": 3, "intermediate_size": 14, "layer_types": window + window[:1],
             "model_type": "qwen3_5_text", "num_hidden_layers": 4, "output_gate_type": "swish", "pad_token_id": None,
             "partial_rotary_factor": 0.6, "rope_parameters": rope, "tie_word_embeddings": False}
    dense_weights = random_weights(dense) | other_parts(24)
    # As transformers writes the config of a text model; tied embeddings, biases, keys that are narrower than values.
    text = {**sizes, "architectures": ["Qwen3_5ForCausalLM"], "attention_bias": True, "bos_token_id": None, "intermediate_size": 14,
            "layer_types": ["full_attention", "linear_attention", "full_attention"], "linear_key_head_dim": 3, "model_type": "qwen3_5_text",
            "num_hidden_layers": 3, "pad_token_id": None, "rope_parameters": rope, "tie_word_embeddings": True,
            "transformers_version": "5.15.0"}
    text_weights = {name.replace(PREFIX, "model."): weight for name, weight in random_weights(text).items()}
    # As Qwen3.5-35B-A3B, with its keys; then the same weights as transformers saves them, and a config without all that has a default.
    mixture = {**sizes, **published, "full_attention_interval": 2, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
               "mlp_only_layers": [], "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 7, "num_experts": 5, "num_experts_per_tok": 2,
               "num_hidden_layers": 3, "router_aux_loss_coef": 0.001, "rope_parameters": rope, "shared_expert_intermediate_size": 9,
               "tie_word_embeddings": False}
    mixture_weights = random_weights(mixture)
    left_out = {"layer_types", "mlp_only_layers", *published}
    separate = {key: value for key, value in mixture.items() if key not in left_out}
    separate |= {"architectures": ["Qwen3_5MoeForCausalLM"], "output_router_logits": False, "partial_rotary_factor": 0.6,
                 "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    return {"qwen3_5": (wrapper(dense, "qwen3_5", "Qwen3_5ForConditionalGeneration"), dense_weights),
            "qwen3_5_text": (text, text_weights),
            "qwen3_5_moe": (wrapper(mixture, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"), mixture_weights),
            "qwen3_5_moe_text": (separate, separate_experts(mixture_weights))}


def attention(config, weights, x, name, frequencies):
    """A head of q_proj has rows of its query, and then as many of its gate."""
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"], "v": config["num_key_value_heads"]}
    queries, keys, values = (split_heads(linear(weights, x, f"{name}{part}_proj"), count) for part, count in heads.items())
    queries, gate = queries.chunk(2, -1)
    queries, keys = (rotate(rms_norm(y, 1 + weights[f"{name}{part}_norm.weight"], config["rms_norm_eps"]), frequencies)
                     for part, y in (("q", queries), ("k", keys)))
    context = attend(queries, keys, values, config["head_dim"] ** -0.5)
    return linear(weights, context * gate.transpose(1, 2).flatten(2).sigmoid(), name + "o_proj")


def linear_attention(config, weights, x, name):
    """Value head h uses key head h // (value heads per key head)."""
    qkv, z, b, a = (linear(weights, x, f"{name}in_proj_{part}") for part in ("qkv", "z", "b", "a"))
    weight = lambda part: weights[f"{name}{part}" if part in ("A_log", "dt_bias") else f"{name}{part}.weight"]
    return delta_layer(qkv, z, b, a, weight, linear_sizes(config), config["rms_norm_eps"])


def expert(weights, x, name, e):
    if name + "experts.gate_up_proj" not in weights:
        return gated_mlp(weights, x, f"{name}experts.{e}")
    gate, up = (x @ weights[name + "experts.gate_up_proj"][e].T).chunk(2, -1)
    return (functional.silu(gate) * up) @ weights[name + "experts.down_proj"][e].T


def mixture_of_experts(config, weights, x, name):
    rows = x.flatten(0, 1)
    gates, chosen = linear(weights, rows, name + "gate").softmax(-1).topk(config["num_experts_per_tok"])
    gates = gates / gates.sum(-1, keepdim=True)
    routed = torch.stack([sum(gates[n, k] * expert(weights, row, name, int(e)) for k, e in enumerate(chosen[n])) for n, row in enumerate(rows)])
    shared = linear(weights, rows, name + "shared_expert_gate").sigmoid() * gated_mlp(weights, rows, name + "shared_expert")
    return (routed + shared).view_as(x)


def logits(config, weights, ids):
    """In float64, as those of Qwen3-Next: the states pass rounding on from token to token."""
    config, eps = text_config(config), text_config(config)["rms_norm_eps"]
    weights = {name: weight.double() for name, weight in weights.items()}
    prefix = PREFIX if PREFIX + "norm.weight" in weights else "model."
    rope = config["rope_parameters"]
    rotary_dim = int(config["head_dim"] * rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 0.25)))
    frequencies = inverse_frequencies(rotary_dim, rope["rope_theta"])
    norm = lambda y, name: rms_norm(y, 1 + weights[f"{prefix}{name}.weight"], eps)
    x = weights[prefix + "embed_tokens.weight"][ids]
    for n, kind in enumerate(layer_types(config)):
        layer = f"layers.{n}."
        h = norm(x, layer + "input_layernorm")
        x = x + (linear_attention(config, weights, h, f"{prefix}{layer}linear_attn.") if kind == "linear_attention" else
                 attention(config, weights, h, f"{prefix}{layer}self_attn.", frequencies))
        h, name = norm(x, layer + "post_attention_layernorm"), f"{prefix}{layer}mlp"
        x = x + (mixture_of_experts(config, weights, h, name + ".") if "num_experts" in config else gated_mlp(weights, h, name))
    return (norm(x, "norm") @ weights.get("lm_head.weight", weights[prefix + "embed_tokens.weight"]).T).float()
