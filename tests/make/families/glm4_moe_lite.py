"""glm4_moe_lite (GLM-4.7-Flash): latent attention with values wider than the keys' unrotated part, and sigmoid routing.

Followed: Hugging Face transformers 5.0 to 5.15, modular_glm4_moe_lite.py, modeling_deepseek_v3.py (interleaved rotation of a key part that all
heads share; norms of the latents with eps 1e-6, whatever rms_norm_eps; YaRN's factor in the scale, squared) and modeling_glm4_moe.py (the
correction bias chooses, the unbiased score weighs); mlx-lm's glm4_moe_lite.py for the published keys. Published: GLM-4.7-Flash, with
first_k_dense_replace, separate experts and a layer of multi-token prediction after the last one."""

import math

import torch
from torch.nn import functional

from families.common import attend, draw, gated_mlp, inverse_frequencies, linear, rms_norm, rotate, split_heads, yarn

seed = 4700

C, F, V, H, NOPE, KV_RANK, LAYERS = 20, 14, 31, 3, 6, 12, 3


def base(**settings):
    return {"architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "dtype": "bfloat16",
            "eos_token_id": [2, 3, 5], "hidden_act": "silu", "hidden_size": C, "intermediate_size": F, "kv_lora_rank": KV_RANK,
            "max_position_embeddings": 64, "model_type": "glm4_moe_lite", "num_attention_heads": H, "num_hidden_layers": LAYERS,
            "num_key_value_heads": H, "pad_token_id": 2, "qk_nope_head_dim": NOPE, "rms_norm_eps": 1e-3, "tie_word_embeddings": False,
            "vocab_size": V, **settings}


def sparse_layers(config):
    dense = config.get("first_k_dense_replace", 1)
    return [kind == "sparse" for kind in config.get("mlp_layer_types", ["dense"] * dense + ["sparse"] * (LAYERS - dense))]


def mlp_weights(name, width):
    return {f"{name}.gate_proj.weight": draw(width, C), f"{name}.up_proj.weight": draw(width, C), f"{name}.down_proj.weight": draw(C, width)}


def layer_weights(name, config, sparse):
    value_dim, rope, q_rank, experts, width = (config[key] for key in ("v_head_dim", "qk_rope_head_dim", "q_lora_rank", "n_routed_experts",
                                                                       "moe_intermediate_size"))
    weights = {f"{name}{norm}.weight": torch.rand(C) for norm in ("input_layernorm", "post_attention_layernorm")}
    shapes = {"kv_a_proj_with_mqa": (KV_RANK + rope, C), "kv_b_proj": (H * (NOPE + value_dim), KV_RANK), "o_proj": (C, H * value_dim)}
    if q_rank:
        shapes |= {"q_a_proj": (q_rank, C), "q_b_proj": (H * (NOPE + rope), q_rank)}
        weights[name + "self_attn.q_a_layernorm.weight"] = torch.rand(q_rank)
    else:
        shapes["q_proj"] = (H * (NOPE + rope), C)
    weights |= {f"{name}self_attn.{part}.weight": draw(*shape) for part, shape in shapes.items()}
    for part in {"q_a_proj", "kv_a_proj_with_mqa"} & set(shapes):
        weights[f"{name}self_attn.{part}.weight"][: q_rank if part == "q_a_proj" else KV_RANK] *= 0.1  # small latents show the eps of their norms
    weights[name + "self_attn.kv_a_layernorm.weight"] = torch.rand(KV_RANK)
    if not sparse:
        return {**weights, **mlp_weights(name + "mlp", F)}
    weights |= {name + "mlp.gate.weight": draw(experts, C), name + "mlp.gate.e_score_correction_bias": torch.randn(experts) - 1}
    weights |= mlp_weights(name + "mlp.shared_experts", config["n_shared_experts"] * width)
    for expert in range(experts):
        weights |= mlp_weights(f"{name}mlp.experts.{expert}", width)
    return weights


def weights_of(config):
    weights = {"model.embed_tokens.weight": draw(V, C), "model.norm.weight": torch.rand(C), "lm_head.weight": draw(V, C)}
    for n, sparse in enumerate(sparse_layers(config)):
        weights |= layer_weights(f"model.layers.{n}.", config, sparse)
    if config.get("num_nextn_predict_layers"):
        name = f"model.layers.{LAYERS}."
        weights |= {**layer_weights(name, config, True), name + "eh_proj.weight": draw(C, 2 * C), name + "enorm.weight": torch.rand(C),
                    name + "hnorm.weight": torch.rand(C), name + "shared_head.norm.weight": torch.rand(C)}
    return weights


def fuse(weights, experts):
    """The experts as transformers 5 holds them, (E, 2F, C) with the gate's rows first; without the layer of multi-token prediction."""
    fused = {}
    for key, value in weights.items():
        name, _, rest = key.partition("mlp.experts.")
        if name.startswith(f"model.layers.{LAYERS}."):
            continue
        if not rest:
            fused[key] = value
        elif rest == "0.gate_proj.weight":
            stack = lambda part: torch.stack([weights[f"{name}mlp.experts.{e}.{part}_proj.weight"] for e in range(experts)])
            fused |= {name + "mlp.experts.gate_up_proj": torch.cat([stack("gate"), stack("up")], 1), name + "mlp.experts.down_proj": stack("down")}
    return fused


def models():
    """As published; the same as transformers 5 writes it; and one whose dense layer is not the first, with YaRN, groups, plain queries and
    gates that are not normalized."""
    sizes = {"moe_intermediate_size": 10, "n_routed_experts": 5, "n_shared_experts": 1, "num_experts_per_tok": 2, "q_lora_rank": 9,
             "qk_rope_head_dim": 4, "v_head_dim": 8, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.8}
    theta = {"rope_theta": 500.0}
    published = base(**sizes, topk_method="noaux_tc", first_k_dense_replace=1, num_nextn_predict_layers=1, partial_rotary_factor=1.0,
                     rope_scaling=None, rope_theta=500, transformers_version="5.0.0rc0")
    saved = base(**sizes, mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters={**theta, "rope_type": "default"}, rope_interleave=True,
                 qk_head_dim=NOPE + 4, pretraining_tp=1, initializer_range=0.02, use_cache=True, transformers_version="5.15.0")
    scaling = {**theta, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 1.0, "beta_slow": 0.05,
               "mscale": 0.7, "mscale_all_dim": 0.9}
    other = base(**{**sizes, "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 3, "q_lora_rank": None,
                    "qk_rope_head_dim": 8, "v_head_dim": 5, "n_group": 3, "topk_group": 2, "norm_topk_prob": False},
                 mlp_layer_types=["sparse", "dense", "sparse"], rope_parameters=scaling, rope_interleave=True, qk_head_dim=NOPE + 8, head_dim=8,
                 transformers_version="5.15.0")
    weights, other_weights = weights_of(published), weights_of(other)
    return {"glm4_moe_lite": (published, weights), "glm4_moe_lite_fused": (saved, fuse(weights, sizes["n_routed_experts"])),
            "glm4_moe_lite_yarn": (other, fuse(other_weights, other["n_routed_experts"]))}


def choose(config, scores, bias):
    """The experts of each row: the groups with the largest sums of two biased scores, then the largest biased scores in them."""
    biased, groups = scores + bias, config["n_group"]
    grouped = biased.view(len(biased), groups, -1)
    best = grouped.topk(2, -1)[0].sum(-1).topk(config["topk_group"], -1)[1]
    allowed = torch.zeros(len(biased), groups).scatter_(1, best, 1).bool()
    return grouped.masked_fill(~allowed[..., None], -math.inf).flatten(1).topk(config["num_experts_per_tok"], -1)[1]


def expert(weights, name, index, x):
    if f"{name}.gate_up_proj" not in weights:
        return gated_mlp(weights, x, f"{name}.{index}")
    gate, up = (x @ weights[f"{name}.gate_up_proj"][index].T).chunk(2, -1)
    return (functional.silu(gate) * up) @ weights[f"{name}.down_proj"][index].T


def mixture(config, weights, x, name):
    rows = x.reshape(-1, C)
    scores = (rows @ weights[name + ".gate.weight"].T).sigmoid()
    chosen = choose(config, scores, weights[name + ".gate.e_score_correction_bias"])
    gates = scores.gather(1, chosen)
    if config["norm_topk_prob"]:
        gates = gates / (gates.sum(-1, keepdim=True) + 1e-20)
    gates = gates * config["routed_scaling_factor"]
    mixed = [sum(gate * expert(weights, name + ".experts", int(e), row) for gate, e in zip(*pair)) for *pair, row in zip(gates, chosen, rows)]
    return (torch.stack(mixed) + gated_mlp(weights, rows, name + ".shared_experts")).view_as(x)


def rotation(config):
    """Frequencies, the factor of cosine and sine, and that of the scores."""
    scaling, rope = config.get("rope_parameters") or config, config["qk_rope_head_dim"]
    if scaling.get("rope_type") != "yarn":
        return inverse_frequencies(rope, scaling["rope_theta"]), 1.0, 1.0
    frequencies = yarn(rope, *(scaling[key] for key in ("rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow")))[0]
    mscale, all_dim = (0.1 * scaling[key] * math.log(scaling["factor"]) + 1 for key in ("mscale", "mscale_all_dim"))
    return frequencies, mscale / all_dim, all_dim**2


def attention(config, weights, x, name):
    (frequencies, factor, score_factor), rope, value_dim = rotation(config), config["qk_rope_head_dim"], config["v_head_dim"]
    turn = lambda y: rotate(y, frequencies, True, factor)
    inner_norm = lambda y, part: rms_norm(y, weights[f"{name}.{part}.weight"], 1e-6)
    queries = (linear(weights, inner_norm(linear(weights, x, name + ".q_a_proj"), "q_a_layernorm"), name + ".q_b_proj") if config["q_lora_rank"]
               else linear(weights, x, name + ".q_proj"))
    q_nope, q_rope = split_heads(queries, H).split([NOPE, rope], -1)
    latent, k_rope = linear(weights, x, name + ".kv_a_proj_with_mqa").split([KV_RANK, rope], -1)
    expanded = split_heads(linear(weights, inner_norm(latent, "kv_a_layernorm"), name + ".kv_b_proj"), H)
    k_nope, values = expanded.split([NOPE, value_dim], -1)
    keys = torch.cat([k_nope, turn(k_rope[:, None]).expand(-1, H, -1, -1)], -1)
    attended = attend(torch.cat([q_nope, turn(q_rope)], -1), keys, values, (NOPE + rope) ** -0.5 * score_factor)
    return linear(weights, attended, name + ".o_proj")


def logits(config, weights, ids):
    x = weights["model.embed_tokens.weight"][ids]
    for n, sparse in enumerate(sparse_layers(config)):
        name = f"model.layers.{n}."
        norm = lambda y, part: rms_norm(y, weights[f"{name}{part}.weight"], config["rms_norm_eps"])
        x = x + attention(config, weights, norm(x, "input_layernorm"), name + "self_attn")
        h = norm(x, "post_attention_layernorm")
        x = x + (mixture(config, weights, h, name + "mlp") if sparse else gated_mlp(weights, h, name + "mlp"))
    return rms_norm(x, weights["model.norm.weight"], config["rms_norm_eps"]) @ weights["lm_head.weight"].T
