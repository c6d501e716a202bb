"""LFM2 and LFM2-MoE of Liquid AI, written from transformers' modeling_lfm2.py and modeling_lfm2_moe.py (4.54 to 5.17), "LFM2 Technical Report"
(2025) and mlx-lm's lfm2.py and lfm2_moe.py. A layer is a short convolution or attention: in_proj gives B, C and x, in this order; the layer is
out_proj(C · conv(B · x)), without an activation. `embedding_norm` is the final norm. A config.json has one of three spellings: that of Liquid AI
(full_attn_idxs, block_ff_dim), that of transformers 4 (layer_types, rope_theta) and that of transformers 5 (rope_parameters). The width
of a dense MLP is computed from three keys in lfm2, and is intermediate_size in lfm2_moe, whose experts have a router as DeepSeek-V3's."""

import torch
from torch.nn import functional

from families.common import attend, draw, inverse_frequencies, linear, rms_norm, rotate, split_heads

seed = 2


def mlp_width(config):
    """Of transformers: rounded up only where there is a multiplier. mlx-lm and llama.cpp always round."""
    width = config.get("block_ff_dim", config.get("intermediate_size"))
    if config["model_type"] == "lfm2" and config.get("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        multiplier, multiple = config.get("block_ffn_dim_multiplier", 1.0), config.get("block_multiple_of", 256)
        if multiplier is not None:
            width = -(-int(multiplier * width) // multiple) * multiple
    return width


def layer_types(config):
    if config.get("layer_types"):
        return config["layer_types"]
    return ["full_attention" if n in config["full_attn_idxs"] else "conv" for n in range(config["num_hidden_layers"])]


def head_dim(config):
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def random_weights(config):
    """Biases where the config has them; experts one by one, as all published files and what transformers 5 saves by default."""
    hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    kernel, width = config["conv_L_cache"], head_dim(config)
    weights = {"model.embed_tokens.weight": draw(config["vocab_size"], hidden), "model.embedding_norm.weight": torch.rand(hidden)}
    if not config.get("tie_word_embeddings", config.get("tie_embedding", True)):
        weights["lm_head.weight"] = draw(config["vocab_size"], hidden)

    def mlp(name, width):
        for part, shape in (("w1", (width, hidden)), ("w3", (width, hidden)), ("w2", (hidden, width))):
            weights[f"{name}.{part}.weight"] = draw(*shape)

    for n, kind in enumerate(layer_types(config)):
        layer = f"model.layers.{n}"
        weights |= {f"{layer}.{part}_norm.weight": torch.rand(hidden) for part in ("operator", "ffn")}
        if kind == "conv":
            weights |= {f"{layer}.conv.in_proj.weight": draw(3 * hidden, hidden), f"{layer}.conv.out_proj.weight": draw(hidden, hidden),
                        f"{layer}.conv.conv.weight": torch.randn(hidden, 1, kernel)}
            if config.get("conv_bias"):
                weights |= {f"{layer}.conv.{part}.bias": torch.randn(size) / 2
                            for part, size in (("in_proj", 3 * hidden), ("conv", hidden), ("out_proj", hidden))}
        else:
            for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                weights[f"{layer}.self_attn.{part}_proj.weight"] = draw(count * width, hidden)
            weights |= {f"{layer}.self_attn.{part}_layernorm.weight": torch.rand(width) + 0.5 for part in "qk"}
            weights[f"{layer}.self_attn.out_proj.weight"] = draw(hidden, heads * width)
        if n < config.get("num_dense_layers", config["num_hidden_layers"]):
            mlp(f"{layer}.feed_forward", mlp_width(config))
            continue
        weights[f"{layer}.feed_forward.gate.weight"] = draw(config["num_experts"], hidden)
        if config["use_expert_bias"]:
            weights[f"{layer}.feed_forward.expert_bias"] = torch.randn(config["num_experts"]) / 2
        for e in range(config["num_experts"]):
            mlp(f"{layer}.feed_forward.experts.{e}", config["moe_intermediate_size"])
    return weights


def fused_experts(weights):
    """As transformers 5 has them in memory, and saves them on request: gate_up_proj (E, 2F, C), down_proj (E, C, F)."""
    fused, experts = {}, {}
    for name, weight in weights.items():
        if ".experts." not in name:
            fused[name] = weight
            continue
        layer, end = name.split(".experts.")
        expert, part, _ = end.split(".")
        experts.setdefault(layer, {}).setdefault(int(expert), {})[part] = weight
    for layer, parts in experts.items():
        fused[f"{layer}.experts.gate_up_proj"] = torch.stack([torch.cat([parts[e]["w1"], parts[e]["w3"]]) for e in range(len(parts))])
        fused[f"{layer}.experts.down_proj"] = torch.stack([parts[e]["w2"] for e in range(len(parts))])
    return fused


def models():
    sizes = {"vocab_size": 31, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "norm_eps": 1e-3}
    rope = {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    # As transformers 5 saves it. The MLP has 21 features: 2/3 of 17 are 11, half as many again 16, and the next multiple of 7.
    lfm2 = {**sizes, "hidden_size": 24, "intermediate_size": 17, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.5,
            "block_multiple_of": 7, "num_hidden_layers": 5, "layer_types": ["conv", "full_attention", "conv", "full_attention", "conv"],
            "full_attn_idxs": None, "conv_L_cache": 4, "conv_bias": False, "tie_word_embeddings": True, **rope, "architectures":
            ["Lfm2ForCausalLM"], "model_type": "lfm2"}
    weights = random_weights(lfm2)
    # As Liquid AI published LFM2-350M: without a key for tied embeddings, and with the settings of a library that is not public.
    newer = ("intermediate_size", "layer_types", "rope_parameters", "tie_word_embeddings")
    published = {key: value for key, value in lfm2.items() if key not in newer}
    published |= {"block_ff_dim": 17, "full_attn_idxs": [1, 3], "rope_theta": 500.0, "block_dim": 24, "block_mlp_init_scale": 1.0,
                  "block_norm_eps": 1e-3, "block_out_init_scale": 1.0, "block_use_swiglu": True, "block_use_xavier_init": True, "conv_dim": 24,
                  "conv_dim_out": 24, "conv_use_xavier_init": True, "num_heads": 4, "use_pos_enc": True}
    # Biases in the convolutions, a width that is not adjusted, heads that do not fill the hidden size, a head of its own; as LFM2.5's keys.
    bias = {**sizes, "hidden_size": 20, "head_dim": 6, "intermediate_size": 14, "block_auto_adjust_ff_dim": False, "num_hidden_layers": 4,
            "layer_types": ["full_attention", "conv", "conv", "full_attention"], "conv_L_cache": 3, "conv_bias": True, "tie_embedding": False,
            "tie_word_embeddings": False, "rope_theta": 500.0, "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2"}
    moe = {**sizes, "hidden_size": 20, "head_dim": 6, "intermediate_size": 14, "moe_intermediate_size": 9, "num_experts": 5,
           "num_experts_per_tok": 2, "num_dense_layers": 1, "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
           "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3, "conv_bias": False,
           "tie_word_embeddings": True, **rope, "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe"}
    experts = random_weights(moe)
    plain = {key: value for key, value in experts.items() if not key.endswith("expert_bias")}
    return {"lfm2": (lfm2, weights), "lfm2_published": (published, weights), "lfm2_bias": (bias, random_weights(bias)),
            "lfm2_moe": (moe, experts), "lfm2_moe_fused": ({**moe, "routed_scaling_factor": 1.7}, fused_experts(experts)),
            "lfm2_moe_plain": ({**moe, "use_expert_bias": False, "norm_topk_prob": False}, plain)}


def short_convolution(weights, x, name):
    """The kernel of a channel sees the token itself, last, and the tokens before it."""
    b, c, x = linear(weights, x, f"{name}.in_proj").chunk(3, -1)
    kernel = weights[f"{name}.conv.weight"]
    inputs = functional.pad((b * x).mT, (kernel.shape[-1] - 1, 0))
    mixed = functional.conv1d(inputs, kernel, weights.get(f"{name}.conv.bias"), groups=kernel.shape[0]).mT
    return linear(weights, c * mixed, f"{name}.out_proj")


def attention(config, weights, x, name, frequencies):
    """QK norm before RoPE, one for all heads."""
    queries, keys, values = (split_heads(linear(weights, x, f"{name}.{part}_proj"), config[f"num_{kind}_heads"])
                             for part, kind in (("q", "attention"), ("k", "key_value"), ("v", "key_value")))
    queries, keys = (rotate(rms_norm(y, weights[f"{name}.{part}_layernorm.weight"], config["norm_eps"]), frequencies)
                     for part, y in (("q", queries), ("k", keys)))
    return linear(weights, attend(queries, keys, values, head_dim(config) ** -0.5), f"{name}.out_proj")


def mlp(weights, x, name):
    return linear(weights, functional.silu(linear(weights, x, f"{name}.w1")) * linear(weights, x, f"{name}.w3"), f"{name}.w2")


def expert(weights, x, name, e):
    if f"{name}.experts.gate_up_proj" not in weights:
        return mlp(weights, x, f"{name}.experts.{e}")
    gate, up = (x @ weights[f"{name}.experts.gate_up_proj"][e].T).chunk(2, -1)
    return (functional.silu(gate) * up) @ weights[f"{name}.experts.down_proj"][e].T


def mixture(config, weights, x, name):
    """The bias takes part in the choice of the experts, not in their weights."""
    rows = x.flatten(0, 1)
    scores = linear(weights, rows, f"{name}.gate").sigmoid()
    bias = weights[f"{name}.expert_bias"] if config["use_expert_bias"] else 0
    chosen = (scores + bias).topk(config["num_experts_per_tok"])[1]
    gates = scores.gather(1, chosen)
    if config["norm_topk_prob"]:
        gates = gates / (gates.sum(-1, keepdim=True) + 1e-6)
    gates = gates * config["routed_scaling_factor"]
    output = [sum(gates[n, k] * expert(weights, rows[n], name, int(e)) for k, e in enumerate(chosen[n])) for n in range(len(rows))]
    return torch.stack(output).view_as(x)


def logits(config, weights, ids):
    eps = config["norm_eps"]
    theta = config.get("rope_parameters", config)["rope_theta"]
    frequencies = inverse_frequencies(head_dim(config), theta)
    x = weights["model.embed_tokens.weight"][ids]
    for n, kind in enumerate(layer_types(config)):
        layer = f"model.layers.{n}"
        normalized = rms_norm(x, weights[f"{layer}.operator_norm.weight"], eps)
        x = x + (short_convolution(weights, normalized, f"{layer}.conv") if kind == "conv" else
                 attention(config, weights, normalized, f"{layer}.self_attn", frequencies))
        normalized = rms_norm(x, weights[f"{layer}.ffn_norm.weight"], eps)
        dense = n < config.get("num_dense_layers", config["num_hidden_layers"])
        x = x + (mlp(weights, normalized, f"{layer}.feed_forward") if dense else mixture(config, weights, normalized, f"{layer}.feed_forward"))
    x = rms_norm(x, weights["model.embedding_norm.weight"], eps)
    return x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T
