#!/usr/bin/python3
"""Writes tests/fixtures/*.npy with PyTorch. A tool for maintainers: building, running and testing the
project does not need PyTorch. Debian 12: apt-get install python3-torch, then tests/make/make_fixtures.py.

The sizes of all axes differ (B 2, T 5, S 7, H 6, Hkv 3, D 4, C 20), so that a comparison with a fixture
detects swapped axes."""

import json
import math
from pathlib import Path

import numpy
import torch
from torch import nn

FOLDER = Path(__file__).resolve().parents[1] / "fixtures"
B, T, S, H, HKV, D, C = 2, 5, 7, 6, 3, 4, 20


def save(name, tensor):
    file = FOLDER / f"{name}.npy"
    file.parent.mkdir(parents=True, exist_ok=True)
    numpy.save(file, numpy.ascontiguousarray(tensor.detach().numpy()))


def load_ids():
    """The texts of the models in tests/fixtures/models: (2, 19) ids below 31."""
    return torch.from_numpy(numpy.load(FOLDER / "models/ids.npy"))


def random_numbers():
    """Values of each random function from one generator, in this order."""
    torch.manual_seed(1234)
    save("random/randn_3", torch.randn(3))
    save("random/randn_2_after_3", torch.randn(2))  # begins with the cached normal value
    save("random/randn_16", torch.randn(16))
    save("random/randn_5_by_7", torch.randn(5, 7))  # 35 elements: not a multiple of 16
    save("random/rand_3_by_4", torch.rand(3, 4))
    save("random/uniform_6", torch.empty(6).uniform_(-2.5, 0.5))
    save("random/randint_9", torch.randint(-3, 100, (9,)))
    save("random/embedding_3_by_6", nn.Embedding(3, 6).weight)
    torch.manual_seed(2**32 - 1)
    save("random/randn_last_seed", torch.randn(4, 4))


def masking():
    """Chapter 01."""
    torch.manual_seed(77)
    save("01_masking/hidden_states", torch.randn(2, 10, 128))
    save("01_masking/position_ids", torch.arange(0, T).unsqueeze(0).repeat(3, 1))
    minus_infinity = torch.full((T, S), -torch.inf)
    causal = torch.triu(minus_infinity, diagonal=1 + S - T)
    save("01_masking/causal_mask", causal)
    save("01_masking/attention_mask", causal[None, None].expand(B, 1, -1, -1))

    padding_mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    save("01_masking/padding_mask", padding_mask)
    save("01_masking/padded_position_ids", (padding_mask.cumsum(-1) - 1).masked_fill(padding_mask == 0, 1))
    masked_keys = padding_mask[:, None, None, :] == 0
    padded = causal[None, None].expand(B, 1, -1, -1).masked_fill(masked_keys, -torch.inf)
    save("01_masking/padded_mask", padded)

    scores = 3 * torch.randn(B, H, T, S)
    save("01_masking/scores", scores)
    # PyTorch gives NaN for a fully masked row; the lesson gives zeros.
    save("01_masking/weights", torch.softmax(scores + padded, -1).nan_to_num(0.0))
    large = 1e4 * torch.randn(T, S)
    save("01_masking/large_scores", large)
    save("01_masking/large_weights", torch.softmax(large, -1))


def projections():
    """Chapter 02."""
    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    layers = {name: nn.Linear(128, out_features, bias=False)
              for name, out_features in [("q", 128), ("k", 32), ("v", 32), ("o", 128)]}
    save("02_projections/demo_q_proj_weight", layers["q"].weight[:4])
    save("02_projections/demo_o_proj_weight", layers["o"].weight[:4])
    save("02_projections/demo_query_states", layers["q"](hidden_states))
    save("02_projections/demo_key_states", layers["k"](hidden_states))
    save("02_projections/demo_value_states", layers["v"](hidden_states))

    torch.manual_seed(5)
    states = torch.randn(B, T, C)
    save("02_projections/states", states)
    for name, out_features, in_features in [("q", H * D, C), ("k", HKV * D, C), ("v", HKV * D, C), ("o", C, H * D)]:
        layer = nn.Linear(in_features, out_features, bias=True)
        save(f"02_projections/{name}_proj_weight", layer.weight)
        save(f"02_projections/{name}_proj_bias", layer.bias)
        if in_features == C:
            save(f"02_projections/{name}_states", layer(states))


def head_splitting():
    """Chapter 03."""
    torch.manual_seed(3)
    states = torch.randn(B, T, H * D)
    heads = states.view(B, T, H, D).transpose(1, 2)
    save("03_head_splitting/states", states)
    save("03_head_splitting/heads", heads)
    save("03_head_splitting/merged", heads.transpose(1, 2).reshape(B, T, H * D))

    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    q_proj, k_proj, v_proj = (nn.Linear(128, out_features, bias=False) for out_features in (128, 32, 32))
    save("03_head_splitting/demo_query_states", q_proj(hidden_states).view(2, 10, 16, 8).transpose(1, 2))
    save("03_head_splitting/demo_key_states", k_proj(hidden_states).view(2, 10, 4, 8).transpose(1, 2))
    save("03_head_splitting/demo_value_states", v_proj(hidden_states).view(2, 10, 4, 8).transpose(1, 2))


def rotary_angles(head_dim, theta, positions):
    inverse_frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2).float() / head_dim))
    return inverse_frequencies, positions[..., None].float() * inverse_frequencies


def rotate_half(states):
    first, second = states.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def llama3_frequencies(frequencies, factor, low, high, original):
    """As Hugging Face's _compute_llama3_parameters."""
    wavelengths = 2 * torch.pi / frequencies
    scaled = torch.where(wavelengths > original / low, frequencies / factor, frequencies)
    smooth = (original / wavelengths - low) / (high - low)
    smoothed = (1 - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelengths < original / high) * ~(wavelengths > original / low)
    return torch.where(medium, smoothed, scaled)


def rope():
    """Chapter 04. Both RoPE layouts as in their reference code: Hugging Face's and Meta's."""
    torch.manual_seed(4)
    heads, head_dim = 3, 8
    states = torch.randn(B, heads, T, head_dim)
    positions = torch.tensor([[0, 1, 2, 3, 4], [11, 7, 30, 7, 2]])
    frequencies, angles = rotary_angles(head_dim, 10000.0, positions)
    save("04_rope/states", states)
    save("04_rope/positions", positions)
    save("04_rope/frequencies", frequencies)

    table = torch.arange(40).float()[:, None] * frequencies
    save("04_rope/table_cos", table.cos())
    save("04_rope/table_sin", table.sin())
    repeated = torch.cat((angles, angles), dim=-1)[:, None]
    save("04_rope/split_half", states * repeated.cos() + rotate_half(states) * repeated.sin())
    save("04_rope/rotate_half", rotate_half(states))

    pairs = torch.view_as_complex(states.reshape(B, heads, T, head_dim // 2, 2))
    rotations = torch.polar(torch.ones_like(angles), angles)[:, None]
    save("04_rope/interleaved", torch.view_as_real(pairs * rotations).flatten(3))

    # Hugging Face's conversion of Meta's weights (3 heads of 8 rows).
    weight, bias = torch.randn(heads * head_dim, C), torch.randn(heads * head_dim)
    permute = lambda rows: rows.view(heads, head_dim // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
    save("04_rope/interleaved_weight", weight)
    save("04_rope/interleaved_bias", bias)
    save("04_rope/split_half_weight", permute(weight))
    save("04_rope/split_half_bias", permute(bias))

    # Llama 3.1's rope_scaling, as Hugging Face computes it, and with other parameters.
    frequencies, _ = rotary_angles(128, 500000.0, positions)
    for name, factor, low, high, original in [("llama3", 8.0, 1.0, 4.0, 8192), ("llama3_other", 32.0, 2.0, 5.0, 4096)]:
        save(f"04_rope/{name}_frequencies", llama3_frequencies(frequencies, factor, low, high, original))

    # Sinusoidal position encodings as in The Annotated Transformer: sines at even features.
    angles = rotary_angles(6, 10000.0, torch.arange(T))[1]
    save("04_rope/sinusoidal", torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))


def rms_normalize(states, eps):
    return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + eps)


def attention(queries, keys, values, mask):
    """Attention weights and context, computed as in Hugging Face's eager_attention_forward."""
    num_key_value_groups = queries.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(num_key_value_groups, dim=1) for x in (keys, values))
    weights = torch.softmax(queries @ keys.transpose(2, 3) / queries.shape[-1] ** 0.5 + mask, dim=-1)
    return weights, weights @ values


def gqa():
    """Chapter 05. Attention with T 5, S 7; then the whole layer on the input of the demo."""
    torch.manual_seed(55)
    queries, keys, values = torch.randn(B, H, T, D), torch.randn(B, HKV, S, D), torch.randn(B, HKV, S, D)
    mask = torch.triu(torch.full((T, S), -torch.inf), diagonal=1 + S - T)[None, None].repeat(B, 1, 1, 1)
    mask[1, :, :, :2] = -torch.inf  # two padded keys in the second sequence
    weights, context = attention(queries, keys, values, mask)
    for name, tensor in [("queries", queries), ("keys", keys), ("values", values), ("mask", mask),
                         ("weights", weights), ("context", context)]:
        save(f"05_gqa/{name}", tensor)
    save("05_gqa/repeated_keys", keys.repeat_interleave(H // HKV, dim=1))
    save("05_gqa/scores", queries[0, 1] @ keys[0, 0].T / D ** 0.5)
    save("05_gqa/rms_normalized", rms_normalize(queries, 1e-5))

    # The sizes of the demo: (2, 10, 128), 16 query heads and 4 key/value heads of 8; split-half RoPE.
    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    q_proj, k_proj, v_proj, o_proj = (nn.Linear(128, out_features, bias=False) for out_features in (128, 32, 32, 128))
    split = lambda states, heads: states.view(2, 10, heads, 8).transpose(1, 2)
    queries, keys = split(q_proj(hidden_states), 16), split(k_proj(hidden_states), 4)
    values = split(v_proj(hidden_states), 4)
    causal = torch.triu(torch.full((10, 10), -torch.inf), diagonal=1)
    q_norm, k_norm = torch.rand(8) + 0.5, torch.rand(8) + 0.5
    save("05_gqa/q_norm", q_norm)
    save("05_gqa/k_norm", k_norm)

    def layer(name, positions, eps):
        angles = rotary_angles(8, 10000.0, positions)[1]
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        rotate = lambda states: states * angles.cos() + rotate_half(states) * angles.sin()
        variants = {
            "no_norm": (rotate(queries), rotate(keys)),
            "llama4": (rms_normalize(rotate(queries), eps), rms_normalize(rotate(keys), eps)),
            "qwen3": (rotate(rms_normalize(queries, eps) * q_norm), rotate(rms_normalize(keys, eps) * k_norm)),
        }
        for variant, (rotated_queries, rotated_keys) in variants.items():
            weights, context = attention(rotated_queries, rotated_keys, values, causal)
            save(f"05_gqa/{name}{variant}_output", o_proj(context.transpose(1, 2).reshape(2, 10, 128)))
            if name == "" and variant == "llama4":
                save("05_gqa/demo_queries", rotated_queries)
                save("05_gqa/demo_keys", rotated_keys)
                save("05_gqa/demo_weights", weights)
                save("05_gqa/demo_context", context)

    layer("", torch.arange(10)[None].repeat(2, 1), 1e-5)
    layer("other_", torch.tensor([[0, 1, 2, 3, 4, 15, 16, 17, 18, 29], [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]]), 0.5)


def swiglu():
    """Chapter 06. Activations on a grid with their derivatives by autograd; then MLPs with F 28 and the demo's F 352."""
    grid = torch.cat((torch.linspace(-8, 8, 65), torch.tensor([-200.0, -1.278, 1e-4, 200.0])))
    activations = {
        "sigmoid": torch.sigmoid, "relu": nn.functional.relu, "gelu": nn.functional.gelu,
        "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"), "silu": nn.functional.silu,
        "swish": lambda x: x * torch.sigmoid(1.702 * x),
    }
    save("06_swiglu/grid", grid)
    for name, function in activations.items():
        x = grid.double().requires_grad_()
        function(x).sum().backward()
        save(f"06_swiglu/{name}", function(grid))
        save(f"06_swiglu/{name}_derivative", x.grad.float())

    torch.manual_seed(66)
    hidden_states = torch.randn(B, T, C)
    gate, down, up = nn.Linear(C, 28, bias=False), nn.Linear(28, C, bias=False), nn.Linear(C, 28, bias=False)
    save("06_swiglu/hidden_states", hidden_states)
    for name, linear in [("gate_proj", gate), ("down_proj", down), ("up_proj", up)]:
        save(f"06_swiglu/{name}", linear.weight)
    for name in ("sigmoid", "relu", "gelu", "silu"):
        save(f"06_swiglu/gated_{name}", down(activations[name](gate(hidden_states)) * up(hidden_states)))
    for name in ("relu", "gelu_tanh"):
        save(f"06_swiglu/plain_{name}", down(activations[name](up(hidden_states))))

    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    w1, w2, w3 = nn.Linear(128, 352, bias=False), nn.Linear(352, 128, bias=False), nn.Linear(128, 352, bias=False)
    fc1, fc2 = nn.Linear(128, 512), nn.Linear(512, 128)
    gate, up = w1(hidden_states), w3(hidden_states)
    product = nn.functional.silu(gate) * up
    for name, tensor in [("gate", gate), ("up", up), ("product", product), ("output", w2(product)),
                         ("plain_output", fc2(nn.functional.relu(fc1(hidden_states))))]:
        save(f"06_swiglu/demo_{name}", tensor)
    torch.manual_seed(6)
    biased = nn.Linear(C, 28), nn.Linear(28, C), nn.Linear(C, 28)  # gate, down, up, each with its bias
    hidden_states = torch.from_numpy(numpy.load(FOLDER / "06_swiglu/hidden_states.npy"))
    save("06_swiglu/biased", biased[1](nn.functional.silu(biased[0](hidden_states)) * biased[2](hidden_states)))


def half_rms_norm(rows, weight, eps):
    """RMSNorm with each operation rounded to float16; sums are sequential."""
    half = numpy.float16
    result = numpy.empty_like(rows)
    with numpy.errstate(over="ignore"):
        for row, values in enumerate(rows):
            total = half(0)
            for value in values:
                total = half(total + half(value * value))
            root = half(numpy.sqrt(half(half(total / half(len(values))) + half(eps))))
            result[row] = [half(half(value / root) * w) for value, w in zip(values, weight)]
    return torch.from_numpy(result).float()


def rmsnorm_vs_layernorm():
    """Chapter 07. Inputs with a mean of 3, so that subtracting it matters; a second eps of 0.5, so that its position does."""
    torch.manual_seed(777)
    rows, weight, bias = 3 + 2 * torch.randn(B, T, C), torch.rand(C) + 0.5, torch.randn(C)
    save("07_rmsnorm_vs_layernorm/hidden_states", rows)
    save("07_rmsnorm_vs_layernorm/weight", weight)
    save("07_rmsnorm_vs_layernorm/bias", bias)
    for name, eps in [("", 1e-5), ("_large_eps", 0.5)]:
        layer_norm = nn.functional.layer_norm
        save(f"07_rmsnorm_vs_layernorm/layer_norm{name}", layer_norm(rows, (C,), weight, bias, eps))
        save(f"07_rmsnorm_vs_layernorm/layer_norm_no_bias{name}", layer_norm(rows, (C,), weight, None, eps))
        save(f"07_rmsnorm_vs_layernorm/rms_norm{name}", rms_normalize(rows, eps) * weight)
        save(f"07_rmsnorm_vs_layernorm/rms_norm_bias{name}", rms_normalize(rows, eps) * weight + bias)
        part = rows[0, :, :7]  # int(20 * 0.38)
        save(f"07_rmsnorm_vs_layernorm/partial{name}", rows[0] * torch.rsqrt(part.pow(2).mean(-1, keepdim=True) + eps))

    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    save("07_rmsnorm_vs_layernorm/demo_layer_norm", nn.LayerNorm(128, eps=1e-5)(hidden_states))
    save("07_rmsnorm_vs_layernorm/demo_rms_norm", rms_normalize(hidden_states, 1e-5))

    halves, half_weight = rows[0].half(), weight.half()
    halves[1] *= 40  # some squares are infinite
    halves[2] *= 0.01
    normalized = rms_normalize(halves.float(), 1e-3)
    save("07_rmsnorm_vs_layernorm/halves", halves.float())
    save("07_rmsnorm_vs_layernorm/half_weight", half_weight.float())
    save("07_rmsnorm_vs_layernorm/cast_before_weight", (normalized.half() * half_weight).float())
    save("07_rmsnorm_vs_layernorm/cast_after_weight", (normalized * half_weight.float()).half().float())
    save("07_rmsnorm_vs_layernorm/in_half", half_rms_norm(halves.numpy(), half_weight.numpy(), 1e-3))

    values = torch.cat((torch.randn(30), torch.tensor([0.0, 1.00390625, 1.01171875, -257.0, 1e38, 3.4e38, 1e-40])))
    save("07_rmsnorm_vs_layernorm/values", values)
    save("07_rmsnorm_vs_layernorm/bfloat16", values.bfloat16().float())


class Sublayers:
    """Causal attention with split-half RoPE, and SwiGLU. Weights are initialized in the lesson's order."""

    def __init__(self, hidden_size, heads, kv_heads, head_dim, intermediate_size, qk_norm_eps=None):
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.heads, self.kv_heads, self.head_dim, self.qk_norm_eps = heads, kv_heads, head_dim, qk_norm_eps
        self.q, self.k = linear(hidden_size, heads * head_dim), linear(hidden_size, kv_heads * head_dim)
        self.v, self.o = linear(hidden_size, kv_heads * head_dim), linear(heads * head_dim, hidden_size)
        self.gate, self.down, self.up = (
            linear(hidden_size, intermediate_size), linear(intermediate_size, hidden_size), linear(hidden_size, intermediate_size))

    def self_attn(self, states):
        batch_size, seq_len, _ = states.shape
        split = lambda x, heads: x.view(batch_size, seq_len, heads, self.head_dim).transpose(1, 2)
        queries, keys = split(self.q(states), self.heads), split(self.k(states), self.kv_heads)
        angles = rotary_angles(self.head_dim, 10000.0, torch.arange(seq_len)[None])[1]
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        queries, keys = (x * angles.cos() + rotate_half(x) * angles.sin() for x in (queries, keys))
        if self.qk_norm_eps:
            queries, keys = rms_normalize(queries, self.qk_norm_eps), rms_normalize(keys, self.qk_norm_eps)
        causal = torch.triu(torch.full((seq_len, seq_len), -torch.inf), diagonal=1)
        context = attention(queries, keys, split(self.v(states), self.kv_heads), causal)[1]
        return self.o(context.transpose(1, 2).reshape(batch_size, seq_len, -1))

    def mlp(self, states):
        return self.down(nn.functional.silu(self.gate(states)) * self.up(states))


def blocks(f, x, a, b, c, d):
    """The output of each norm placement, with the norms a and b, and in the sandwich c and d after attention and MLP."""
    h = x + f.self_attn(a(x))
    post = a(x + f.self_attn(x))
    res_post = x + a(f.self_attn(x))
    sandwich = x + c(f.self_attn(a(x)))
    return {"pre_norm": h + f.mlp(b(h)), "post_norm": b(post + f.mlp(post)),
            "res_post_norm": res_post + b(f.mlp(res_post)),
            "sandwich": sandwich + d(f.mlp(b(sandwich))), "parallel": x + f.self_attn(a(x)) + f.mlp(a(x))}


def pre_vs_post_norm():
    """Chapter 08. Small sizes with random norm weights, then the sizes of the demo with norm weights of one."""
    torch.manual_seed(88)
    hidden_states = 2 * torch.randn(B, T, C)
    f = Sublayers(C, H, HKV, D, 28)
    weights = torch.rand(4, C) + 0.5
    save("08_pre_vs_post_norm/hidden_states", hidden_states)
    save("08_pre_vs_post_norm/norm_weights", weights)
    norms = [lambda x, w=w: rms_normalize(x, 1e-3) * w for w in weights]
    for name, output in blocks(f, hidden_states, *norms).items():
        save(f"08_pre_vs_post_norm/{name}", output)

    torch.manual_seed(77)
    hidden_states = torch.randn(2, 10, 128)
    f = Sublayers(128, 16, 4, 8, 352, qk_norm_eps=1e-5)
    norm = lambda x: rms_normalize(x, 1e-5)
    for name, output in blocks(f, hidden_states, norm, norm, norm, norm).items():
        save(f"08_pre_vs_post_norm/demo_{name}", output)


def decoder(config, weights, ids, positions=None, mask=None):
    """A whole decoder from tensors with Hugging Face's names: the hidden states after each layer, and logits. Positions have
    the shape (T), the mask that is added to the scores (T, T)."""
    heads, kv_heads, head_dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    norm = lambda x, name: rms_normalize(x, config["rms_norm_eps"]) * weights[f"{name}.weight"]
    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)
    frequencies = rotary_angles(head_dim, config["rope_theta"], torch.arange(1))[0]
    if "llama3" in config:
        frequencies = llama3_frequencies(frequencies, *config["llama3"])
    seq_len = ids.shape[1]
    angles = (torch.arange(seq_len) if positions is None else positions)[:, None].float() * frequencies

    def rotate(x):
        if config.get("interleaved"):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], head_dim // 2, 2))
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        repeated = torch.cat((angles, angles), dim=-1)
        return x * repeated.cos() + rotate_half(x) * repeated.sin()

    causal = torch.triu(torch.full((seq_len, seq_len), -torch.inf), diagonal=1) if mask is None else mask
    x = weights["model.embed_tokens.weight"][ids]
    hidden_states = [x]
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        h = norm(x, name + "input_layernorm")
        split = lambda y, count: y.view(*ids.shape, count, head_dim).transpose(1, 2)
        queries, keys = split(linear(h, name + "self_attn.q_proj"), heads), split(linear(h, name + "self_attn.k_proj"), kv_heads)
        if name + "self_attn.q_norm.weight" in weights:
            queries, keys = norm(queries, name + "self_attn.q_norm"), norm(keys, name + "self_attn.k_norm")
        values = split(linear(h, name + "self_attn.v_proj"), kv_heads)
        context = attention(rotate(queries), rotate(keys), values, causal)[1]
        x = x + linear(context.transpose(1, 2).reshape(*ids.shape, -1), name + "self_attn.o_proj")
        h = norm(x, name + "post_attention_layernorm")
        gated = nn.functional.silu(linear(h, name + "mlp.gate_proj")) * linear(h, name + "mlp.up_proj")
        x = x + linear(gated, name + "mlp.down_proj")
        hidden_states.append(x)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return torch.stack(hidden_states), norm(x, "model.norm") @ head.T


def init_decoder(config, init):
    """Initializes the tensors in Mini-LLM's order: embedding; for each layer q, k, v, o, gate, down, up; the head."""
    hidden, intermediate, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    weights = {"model.embed_tokens.weight": init(vocab, hidden, embedding=True), "model.norm.weight": torch.ones(hidden)}
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        for projection, out, into in [("self_attn.q_proj", queries, hidden), ("self_attn.k_proj", keys, hidden),
                                      ("self_attn.v_proj", keys, hidden), ("self_attn.o_proj", hidden, queries),
                                      ("mlp.gate_proj", intermediate, hidden), ("mlp.down_proj", hidden, intermediate),
                                      ("mlp.up_proj", intermediate, hidden)]:
            weights[f"{name}{projection}.weight"] = init(out, into)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{norm}.weight"] = torch.ones(hidden)
    head = init(vocab, hidden)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = head
    return weights


def write_safetensors(file, tensors, extra=None):
    header, data = dict(extra or {}), b"\0" * max([e["data_offsets"][1] for e in (extra or {}).values()] or [0])
    types = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.uint8: "U8"}
    for name, tensor in tensors.items():
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
        raw = tensor.contiguous().view(integers).numpy().tobytes()
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def full_model():
    """Chapter 09. Logits of an untrained Mini-LLM; then a small checkpoint of each kind with its logits."""
    mini = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 16, "num_attention_heads": 6,
            "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 32000, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "tie_word_embeddings": True, "interleaved": True}
    ids = torch.tensor([[1, 334, 3855, 288]])
    torch.manual_seed(77)
    pytorch = lambda out, into, embedding=False: (nn.Embedding(out, into) if embedding else nn.Linear(into, out, bias=False)).weight.detach()
    hidden_states, logits = decoder(mini, init_decoder(mini, pytorch), ids)
    save("09_full_model/demo_hidden_states", hidden_states[:, 0, :, ::16])
    save("09_full_model/demo_logits", logits[..., ::97])
    small = lambda out, into, embedding=False: torch.empty(out, into).normal_(0, 0.02)
    # Split halves, as in all models that are not loaded from Mini-LLM's own files.
    split = {**mini, "interleaved": False}
    save("09_full_model/demo_small_logits", decoder(split, init_decoder(split, small), ids)[1][..., ::97])

    folder = FOLDER / "09_full_model"
    ids = torch.tensor([[3, 16, 0, 5, 5], [9, 1, 2, 3, 4]])
    base = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 17, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-3, "rope_theta": 500.0, "tie_word_embeddings": False, "hidden_act": "silu"}
    torch.manual_seed(9)
    init = lambda out, into, embedding=False: torch.randn(out, into) * (1 if embedding else into ** -0.5)

    def checkpoint(name, config, dtype=torch.float32, more={}):
        weights = init_decoder(config, init)
        for tensor in weights:
            if "norm" in tensor:
                weights[tensor] = torch.rand(weights[tensor].shape) + 0.5
        for n in range(2):
            for tensor, size in more.items():
                weights[f"model.layers.{n}.self_attn.{tensor}"] = torch.randn(size)
        weights = {key: value.to(dtype) for key, value in weights.items()}
        save(f"09_full_model/{name}_logits", decoder(config, {k: v.float() for k, v in weights.items()}, ids)[1])
        (folder / name).mkdir(exist_ok=True)
        return weights

    def write_config(name, config):
        (folder / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    config = {**base, "tie_word_embeddings": True, "llama3": (8.0, 1.0, 4.0, 32)}
    weights = checkpoint("llama", config, torch.bfloat16)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]  # redundant: some tools write a tied head
    write_safetensors(folder / "llama/model.safetensors", weights)
    written = {key: value for key, value in config.items() if key != "llama3"}
    write_config("llama", {**written, "model_type": "llama", "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}})

    weights = checkpoint("qwen2", base, torch.float16, {"q_proj.bias": 16, "k_proj.bias": 8, "v_proj.bias": 8})
    parts = [{k: v for k, v in weights.items() if (".0." in k) == first} for first in (True, False)]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for part, name in zip(parts, names):
        write_safetensors(folder / "qwen2" / name, part)
    index = {"metadata": {}, "weight_map": {k: name for part, name in zip(parts, names) for k in part}}
    (folder / "qwen2/model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    without = {key: value for key, value in base.items() if key != "head_dim"}
    write_config("qwen2", {**without, "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False})

    config = {**base, "head_dim": 6}
    weights = checkpoint("qwen3", config, more={"q_norm.weight": 6, "k_norm.weight": 6})
    write_safetensors(folder / "qwen3/model.safetensors", weights)
    write_config("qwen3", {**config, "model_type": "qwen3", "attention_bias": False, "rope_scaling": None})

    weights = checkpoint("mistral", base)
    write_safetensors(folder / "mistral/model.safetensors", weights)
    without = {key: value for key, value in base.items() if key != "rope_theta"}
    write_config("mistral", {**without, "model_type": "mistral", "sliding_window": None,
                             "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})

    config = {**base, "intermediate_size": 72, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": True, "interleaved": True}
    weights = checkpoint("mini_llm", config)
    names = {"model.embed_tokens.": "tok_embeddings.emb.", "model.norm.": "norm.", "model.layers.": "layers.",
             "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
             "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}

    def renamed(name):
        for old, new in names.items():
            name = name.replace(old, new)
        return name

    extra = {"rope.freqs_cis": {"dtype": "C64", "shape": [64, 2], "data_offsets": [0, 1024]}}
    write_safetensors(folder / "mini_llm/model.safetensors", {renamed(k): v for k, v in weights.items()}, extra)
    write_config("mini_llm", {"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 17,
                              "multiple_of": 24, "max_seq_len": 64})

    for name, tied in [("llama2c", False), ("llama2c_tied", True)]:
        config = {**base, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "interleaved": True, "tie_word_embeddings": tied}
        weights = checkpoint(name, config)
        (folder / name).rmdir()
        layers = lambda name: [weights[f"model.layers.{n}.{name}.weight"] for n in range(2)]
        tensors = [weights["model.embed_tokens.weight"], *layers("input_layernorm"), *layers("self_attn.q_proj"),
                   *layers("self_attn.k_proj"), *layers("self_attn.v_proj"), *layers("self_attn.o_proj"),
                   *layers("post_attention_layernorm"), *layers("mlp.gate_proj"), *layers("mlp.down_proj"),
                   *layers("mlp.up_proj"), weights["model.norm.weight"], torch.zeros(2, 64, 2)]
        tensors += [] if tied else [weights["lm_head.weight"]]
        header = numpy.array([16, 20, 2, 4, 2, 17 if tied else -17, 64], dtype="<i4").tobytes()
        (folder / f"{name}.bin").write_bytes(header + b"".join(t.numpy().tobytes() for t in tensors))


def read_safetensors(file):
    """All tensors of a file in F32, F16 or BF16."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:end]).items():
        if name != "__metadata__":
            begin, stop = entry["data_offsets"]
            raw = data[end + begin:end + stop]
            if entry["dtype"] == "BF16":  # the upper half of a float32
                raw = (numpy.frombuffer(raw, dtype="<u2").astype("<u4") << 16).tobytes()
            elif entry["dtype"] == "F16":
                raw = numpy.frombuffer(raw, dtype="<f2").astype("<f4").tobytes()
            tensors[name] = torch.from_numpy(numpy.frombuffer(raw, dtype="<f4").copy()).reshape(entry["shape"])
    return tensors


def generation():
    """Chapter 11. The results of Hugging Face's logits processors; a greedy continuation by a checkpoint."""
    torch.manual_seed(10)
    logits = torch.randn(40) * 1.5
    seen = torch.tensor([3, 7, 7, 21, 39])
    temperature = lambda logits, value: logits / value
    top_k = lambda logits, k: logits.masked_fill(logits < logits.topk(k).values[-1], -math.inf)

    def top_p(logits, p):
        ascending, order = logits.sort(descending=False)
        removed = ascending.softmax(0).cumsum(0) <= 1 - p
        removed[-1] = False
        return logits.masked_fill(removed.scatter(0, order, removed), -math.inf)

    def min_p(logits, p):
        probabilities = logits.softmax(0)
        return logits.masked_fill(probabilities < p * probabilities.max(), -math.inf)

    def penalty(logits, value):
        score = logits[seen]
        return logits.scatter(0, seen, torch.where(score < 0, score * value, score / value))

    save("11_generation/logits", logits)
    for name, processed in {"temperature": temperature(logits, 0.7), "top_k": top_k(logits, 7), "top_p": top_p(logits, 0.8),
                            "min_p": min_p(logits, 0.1), "penalty": penalty(logits, 1.3)}.items():
        save(f"11_generation/{name}", processed)
    kept = top_k(temperature(penalty(logits, 1.3), 1.5), 12)
    combined = min_p(top_p(kept, 0.9), 0.35)
    assert (combined.isinf() != top_p(min_p(kept, 0.35), 0.9).isinf()).any()  # the order matters
    save("11_generation/combined", combined.softmax(0))

    folder = FOLDER / "09_full_model" / "qwen3"
    config, weights = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    ids = torch.tensor([[3, 16, 0, 5]])
    for _ in range(40):
        best, second = decoder(config, weights, ids)[1][0, -1].topk(2)[0]
        assert best - second > 1e-3  # otherwise rounding would decide
        ids = torch.cat([ids, decoder(config, weights, ids)[1][:, -1:].argmax(-1)], 1)
    save("11_generation/greedy", ids)


def gradients():
    """Chapter 12. Autograd's gradients of a Qwen3 model with biases. The sizes of all its parts differ."""
    config = {"hidden_size": 12, "intermediate_size": 5, "num_hidden_layers": 2, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 7, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    shapes = {"model.embed_tokens.weight": (7, 12)}
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        shapes[name + "input_layernorm.weight"] = (12,)
        for part, out, into in [("q", 24, 12), ("k", 8, 12), ("v", 8, 12), ("o", 12, 24)]:
            shapes[f"{name}self_attn.{part}_proj.weight"], shapes[f"{name}self_attn.{part}_proj.bias"] = (out, into), (out,)
        shapes |= {name + "self_attn.q_norm.weight": (4,), name + "self_attn.k_norm.weight": (4,),
                   name + "post_attention_layernorm.weight": (12,), name + "mlp.gate_proj.weight": (5, 12),
                   name + "mlp.up_proj.weight": (5, 12), name + "mlp.down_proj.weight": (12, 5)}
    shapes |= {"model.norm.weight": (12,), "lm_head.weight": (7, 12)}
    torch.manual_seed(12)
    weights = {name: (0.5 * torch.randn(shape)).requires_grad_() for name, shape in shapes.items()}
    ids = torch.randint(0, config["vocab_size"], (3, 6))
    logits = decoder(config, weights, ids[:, :-1])[1]
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    save("12_gradients/ids", ids)
    save("12_gradients/loss", loss[None])
    save("12_gradients/weights", torch.cat([tensor.detach().flatten() for tensor in weights.values()]))
    save("12_gradients/gradients", torch.cat([tensor.grad.flatten() for tensor in weights.values()]))


def training():
    """Chapter 13. Ten steps of AdamW with gradient clipping, warmup and cosine decay, from a checkpoint of chapter 09."""
    folder = FOLDER / "09_full_model" / "mistral"
    config, weights = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    order = ["model.embed_tokens.weight"]
    for n in range(config["num_hidden_layers"]):
        parts = ["input_layernorm", *(f"self_attn.{part}_proj" for part in "qkvo"), "post_attention_layernorm",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
        order += [f"model.layers.{n}.{part}.weight" for part in parts]
    order += ["model.norm.weight", "lm_head.weight"]
    parameters = [weights[name].requires_grad_() for name in order]
    flat = lambda tensors: torch.cat([tensor.detach().flatten() for tensor in tensors])

    torch.manual_seed(11)
    batches = torch.randint(0, config["vocab_size"], (10, 3, 8))
    save("13_training/batches", batches)
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0}],
                                  lr=0, betas=(0.9, 0.95), eps=1e-8)
    losses, norms, rates = [], [], []
    for step, batch in enumerate(batches):
        rate = 0.02 * (step + 1) / 3 if step < 3 else 0.002 + 0.018 * (1 + math.cos(math.pi * (step - 3) / 7)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        logits = decoder(config, weights, batch[:, :-1])[1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        if step == 0:
            save("13_training/first_gradients", flat([p.grad for p in parameters]))
        norms.append(nn.utils.clip_grad_norm_(parameters, 1.0))
        optimizer.step()
        losses.append(loss.detach())
        rates.append(torch.tensor(rate))
    save("13_training/losses", torch.stack(losses))
    save("13_training/norms", torch.stack(norms))
    save("13_training/rates", torch.stack(rates))
    save("13_training/last_weights", flat(parameters))

    # The model of assets/, as PyTorch reads it: a greedy continuation, and the last logits.
    folder = FOLDER.parent.parent / "assets" / "king_james"
    config, weights = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    ids = torch.tensor([[103, 194, 195]])  # And God said
    with torch.no_grad():
        for _ in range(24):
            logits = decoder(config, weights, ids)[1]
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    save("13_training/king_james_ids", ids)
    save("13_training/king_james_logits", logits[:, -1])


def documents():
    """Chapter 13. Packed documents of 4, 1, 5 and 3 tokens: token 10, then others. The first row begins inside a document."""
    folder = FOLDER / "09_full_model" / "mistral"
    config, weights = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    torch.manual_seed(13)
    lengths = (4, 1, 5, 3)
    ids = torch.randint(0, 10, (1, sum(lengths)))
    starts = [sum(lengths[:n]) for n in range(1, len(lengths))]
    ids[0, starts] = 10
    targets = torch.randint(0, config["vocab_size"], ids.shape)
    lower = [torch.tril(torch.ones(length, length)) for length in lengths]
    mask = torch.block_diag(*lower).log()  # 0 or -inf
    positions = torch.cat([torch.arange(length) for length in lengths])
    parameters = [tensor.requires_grad_() for name, tensor in sorted(weights.items())]
    logits = decoder(config, weights, ids, positions, mask)[1]
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    for name, tensor in [("ids", ids), ("targets", targets), ("mask", mask), ("positions", positions), ("logits", logits[0]),
                         ("loss", loss[None]), ("gradients", torch.cat([p.grad.flatten() for p in parameters]))]:
        save(f"13_training/packed_{name}", tensor)


def muon():
    """Muon as in torch.optim.Muon (2.9) with adjust_lr_fn="match_rms_adamw", in float32 instead of bfloat16."""
    def newton_schulz(matrix):
        x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
        return x.T if matrix.shape[0] > matrix.shape[1] else x

    torch.manual_seed(13)
    shapes = {"wide": (3, 7), "tall": (8, 5), "square": (4, 4)}
    for name, shape in shapes.items():
        matrix, buffer = torch.randn(shape), torch.zeros(shape)
        gradients = torch.randn(3, *shape) * torch.tensor([1.0, 2.0, 0.5])[:, None, None]
        save(f"13_training/muon_{name}_before", matrix)
        save(f"13_training/muon_{name}_gradients", gradients)
        save(f"13_training/muon_{name}_orthogonalized", newton_schulz(gradients[0]))
        for gradient, rate in zip(gradients, (0.02, 0.05, 0.01)):
            buffer.lerp_(gradient, 1 - 0.95)
            update = newton_schulz(gradient.lerp(buffer, 0.95))
            matrix = matrix * (1 - rate * 0.1) - rate * 0.2 * max(shape) ** 0.5 * update
        save(f"13_training/muon_{name}_after", matrix)


def policy_gradient():
    """Chapter 14. The expected reward of a policy of five actions, and its gradient."""
    torch.manual_seed(15)
    logits, rewards = torch.randn(5, requires_grad=True), torch.randn(5)
    expected = (torch.softmax(logits, 0) * rewards).sum()
    for name, tensor in [("logits", logits), ("rewards", rewards), ("expected_reward", expected[None]),
                         ("gradient", torch.autograd.grad(expected, logits)[0])]:
        save(f"14_fine_tuning/policy_{name}", tensor)


def fine_tuning():
    """Chapter 14. Losses of log-probabilities and their gradients; a whole step through a model with LoRA."""
    torch.manual_seed(14)
    logits, targets = (3 * torch.randn(4, 5, 7)).requires_grad_(), torch.randint(0, 7, (4, 5))
    mask = torch.tensor([[0, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 1, 0]]).float()
    upstream = torch.randn(4, 5)
    log_probs = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    for name, tensor in [("logits", logits), ("targets", targets), ("mask", mask), ("upstream", upstream),
                         ("log_probs", log_probs), ("sequence_log_probs", (log_probs * mask).sum(1)),
                         ("logits_gradient", torch.autograd.grad(log_probs, logits, upstream, retain_graph=True)[0])]:
        save(f"14_fine_tuning/{name}", tensor)
    labels = targets.masked_fill(mask == 0, -100)
    sft = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    save("14_fine_tuning/sft_loss", sft[None])
    save("14_fine_tuning/sft_gradient", torch.autograd.grad(sft, logits)[0])

    # DPO of two pairs: rows 0 and 1 are chosen, 2 and 3 rejected.
    values = log_probs.detach().requires_grad_()
    policy = (values * mask).sum(1)
    reference = policy.detach() + torch.tensor([1.5, -4.0, 0.5, 2.0])
    margins = 0.3 * ((policy - reference)[:2] - (policy - reference)[2:])
    dpo = -nn.functional.logsigmoid(margins).mean()
    save("14_fine_tuning/dpo_reference", reference)
    save("14_fine_tuning/dpo_loss", dpo[None])
    save("14_fine_tuning/dpo_gradient", torch.autograd.grad(dpo, values, retain_graph=True)[0])
    # TRL's rpo_alpha: the mean negative log-probability of the tokens of the chosen responses is added.
    with_sft = dpo - 0.6 * (values * mask)[:2].sum() / mask[:2].sum()
    save("14_fine_tuning/dpo_with_sft_loss", with_sft[None])
    save("14_fine_tuning/dpo_with_sft_gradient", torch.autograd.grad(with_sft, values)[0])

    # GRPO of two groups of two. Ratios on both sides of the clipping range, with both signs of the advantage.
    rewards = torch.tensor([1.0, 0.0, 0.25, 0.75])
    groups = rewards.reshape(2, 2)
    advantages = ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-6)).flatten()
    old = values.detach() + 0.4 * torch.randn(4, 5)
    reference = values.detach() + torch.randn(4, 5)
    ratio = torch.exp(values - old)
    objective = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    kl = torch.exp(reference - values) - (reference - values) - 1
    loss = (-objective + 0.1 * kl) * mask
    for name, total in [("sequence_mean", (loss.sum(1) / mask.sum(1)).mean()), ("token_mean", loss.sum() / mask.sum())]:
        save(f"14_fine_tuning/grpo_{name}_loss", total[None])
        save(f"14_fine_tuning/grpo_{name}_gradient", torch.autograd.grad(total, values, retain_graph=True)[0])
    # Dr. GRPO: unscaled advantages, and every sequence divided by the same length of 6.
    unscaled = (groups - groups.mean(1, True)).flatten()
    objective = torch.minimum(ratio * unscaled[:, None], ratio.clamp(0.8, 1.2) * unscaled[:, None])
    total = ((-objective + 0.1 * kl) * mask).sum() / (4 * 6)
    save("14_fine_tuning/dr_grpo_advantages", unscaled)
    save("14_fine_tuning/dr_grpo_loss", total[None])
    save("14_fine_tuning/dr_grpo_gradient", torch.autograd.grad(total, values, retain_graph=True)[0])
    for name, tensor in [("rewards", rewards), ("advantages", advantages), ("grpo_old", old),
                         ("grpo_reference", reference), ("grpo_kl", ((kl * mask).sum() / mask.sum())[None])]:
        save(f"14_fine_tuning/{name}", tensor)

    # SFT through the model of chapter 09's fixture with LoRA on q_proj and down_proj: r 3, alpha 6.
    folder = FOLDER / "09_full_model" / "mistral"
    config, weights = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    lora = []
    for n in range(config["num_hidden_layers"]):
        for part in ["self_attn.q_proj", "mlp.down_proj"]:
            name = f"model.layers.{n}.{part}.weight"
            out_features, in_features = weights[name].shape
            pair = [(0.3 * torch.randn(shape)).requires_grad_() for shape in [(3, in_features), (out_features, 3)]]
            weights[name] = weights[name] + 2 * pair[1] @ pair[0]
            lora += pair
    ids = torch.randint(0, config["vocab_size"], (3, 6))
    prompt_mask = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 0]]).bool()
    logits = decoder(config, weights, ids[:, :-1])[1]
    loss = nn.functional.cross_entropy(logits[prompt_mask], ids[:, 1:][prompt_mask])
    loss.backward()
    flat = lambda tensors: torch.cat([tensor.detach().flatten() for tensor in tensors])
    for name, tensor in [("lora_ids", ids), ("lora_mask", prompt_mask.float()), ("lora_values", flat(lora)),
                         ("lora_loss", loss[None]), ("lora_gradients", flat([x.grad for x in lora]))]:
        save(f"14_fine_tuning/{name}", tensor)


def fast():
    """Chapter 15. Weights in bfloat16: rows of different magnitudes, and zeros."""
    torch.manual_seed(12)
    weights = torch.randn(6, 150) * torch.tensor([1.0, 0.02, 1e3, 1e-5, 1.0, 1.0])[:, None]
    weights[4, 64:128] = 0
    weights[5, :64] *= 100
    save("15_fast/weights", weights)
    save("15_fast/bfloat16", weights.bfloat16().float())


def seen_keys(kind, query_positions, key_positions, size=0, sinks=0):
    """Which keys a query sees, as the overlays of Hugging Face's masking_utils.py: (..., T, S)."""
    q, k = query_positions[..., :, None], key_positions[..., None, :]
    local = {"full": torch.ones_like(q - k, dtype=torch.bool), "sliding": k > q - size if size else None,
             "chunked": q.div(size, rounding_mode="floor") == k.div(size, rounding_mode="floor") if size else None}
    return (k <= q) & (local[kind] | (k < sinks))


def scored_attention(queries, keys, values, seen, scale, softcap, sinks):
    """As eager_attention_forward of Hugging Face's Gemma 2 (softcap) and gpt-oss (sinks)."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)
    scores = queries @ keys.transpose(2, 3) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(queries.shape[0], -1, queries.shape[2], 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = torch.softmax(scores, dim=-1)
    weights = weights[..., :-1] if sinks is not None else weights.nan_to_num(0.0)
    return weights, weights @ values


def yarn_frequencies(dim, base, factor, original, beta_fast, beta_slow, truncate):
    """As Hugging Face's _compute_yarn_parameters, in double."""
    def correction(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))
    low, high = correction(beta_fast), correction(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 if low == high else 0
    pos_freqs = base ** (torch.arange(0, dim, 2).double() / dim)
    extrapolation = 1 - ((torch.arange(dim // 2).double() - low) / (high - low)).clamp(0, 1)
    return ((1 / (factor * pos_freqs)) * (1 - extrapolation) + 1 / pos_freqs * extrapolation).float()


def long_context():
    """Chapter 17. More tokens than a window and than a chunk; a sequence with padding on the left."""
    torch.manual_seed(17)
    query_len, kv_len, window, chunk, sinks = 9, 11, 4, 3, 2
    keys = torch.arange(kv_len)
    for kind, size, first in [("full", 0, 0), ("sliding", window, 0), ("chunked", chunk, 0), ("sliding", window, sinks)]:
        seen = seen_keys(kind, keys[-query_len:], keys, size, first)
        name = "sinks_and_window" if first else kind
        save(f"17_long_context/{name}_mask", torch.zeros(query_len, kv_len).masked_fill(~seen, -torch.inf))

    # Sequences of 11 and 8 tokens, T = S = 11: positions of padding are 1, its columns are masked.
    padding = torch.tensor([[1] * 11, [0] * 3 + [1] * 8])
    positions = (padding.cumsum(-1) - 1).masked_fill(padding == 0, 1)
    save("17_long_context/padding_mask", padding)
    heads = {name: (2 * torch.randn(B, count, kv_len, D)).requires_grad_()
             for name, count in [("queries", H), ("keys", HKV), ("values", HKV)]}
    learned = torch.randn(H).requires_grad_()
    output_gradient = torch.randn(B, H, kv_len, D)
    for name, tensor in {**heads, "sinks": learned, "context_gradient": output_gradient}.items():
        save(f"17_long_context/{name}", tensor)
    scale, softcap = 0.4, 1.5
    variants = {"plain": (None, None), "softcap": (softcap, None), "sink": (None, learned), "both": (softcap, learned)}
    for name, (cap, sink) in variants.items():
        kind, size = ("chunked", chunk) if name == "softcap" else ("sliding", window)
        seen = seen_keys(kind, positions, positions, size)[:, None] & (padding[:, None, None, :] == 1)
        weights, context = scored_attention(*heads.values(), seen, scale, cap, sink)
        save(f"17_long_context/{name}_weights", weights)
        save(f"17_long_context/{name}_context", context)
        if sink is not None:  # without a sink, a fully masked row has no gradient in PyTorch
            wanted = list(heads.values()) + [learned]
            for key, gradient in zip(["queries", "keys", "values", "sinks"],
                                     torch.autograd.grad((context * output_gradient).sum(), wanted)):
                save(f"17_long_context/{name}_{key}_gradient", gradient)
    all_keys = seen_keys("chunked", keys, keys, chunk).expand(B, 1, -1, -1)
    context = scored_attention(*heads.values(), all_keys, scale, softcap, None)[1]
    for key, gradient in zip(heads, torch.autograd.grad((context * output_gradient).sum(), list(heads.values()))):
        save(f"17_long_context/softcap_{key}_gradient", gradient)

    # Llama 4's temperature, with steps at 5, 10, ...
    tuned = torch.log(torch.floor((positions.float() + 1.0) / 5) + 1.0) * 0.3 + 1.0
    save("17_long_context/tuned_queries", heads["queries"] * tuned[:, None, :, None])

    save("17_long_context/yarn_8", yarn_frequencies(24, 10000.0, 8.0, 256, 32, 1, True))
    save("17_long_context/yarn_gpt_oss", yarn_frequencies(64, 150000.0, 32.0, 4096, 32, 1, False))
    save("17_long_context/yarn_narrow", yarn_frequencies(10, 500.0, 4.0, 16, 8, 1e-5, True))
    factor = 0.1 * math.log(8.0) + 1
    angles = torch.arange(13).float()[:, None] * yarn_frequencies(24, 10000.0, 8.0, 256, 32, 1, True)
    save("17_long_context/yarn_cos", angles.cos() * factor)
    save("17_long_context/yarn_sin", angles.sin() * factor)

def windowed_decoder(config, weights, ids):
    """Logits of a mistral, gemma2 or gemma3_text model from tensors and settings with Hugging Face's names; all fields given."""
    gemma, head_dim = config["model_type"] != "mistral", config["head_dim"]
    heads, kv_heads, seq_len = config["num_attention_heads"], config["num_key_value_heads"], ids.shape[1]

    def norm(x, name):
        weight = weights[f"{name}.weight"]
        return rms_normalize(x, config["rms_norm_eps"]) * (1 + weight if gemma else weight)

    def capped(x, key):
        cap = config.get(key)
        return x if cap is None else cap * torch.tanh(x / cap)

    linear = lambda x, name: x @ weights[f"{name}.weight"].T
    positions = torch.arange(seq_len)
    x = weights["model.embed_tokens.weight"][ids]
    if gemma:
        x = x * config["hidden_size"] ** 0.5
    for n, layer_type in enumerate(config["layer_types"]):
        name, slides = f"model.layers.{n}.", layer_type == "sliding_attention"
        theta = config["rope_local_base_freq"] if slides and "rope_local_base_freq" in config else config["rope_theta"]
        angles = rotary_angles(head_dim, theta, positions.float())[1]
        if not slides and config.get("rope_scaling"):
            angles = angles / config["rope_scaling"]["factor"]
        angles = torch.cat((angles, angles), dim=-1)
        rotate = lambda y: y * angles.cos() + rotate_half(y) * angles.sin()
        split = lambda y, count: y.view(*ids.shape, count, head_dim).transpose(1, 2)
        h = norm(x, name + "input_layernorm")
        queries, keys, values = (split(linear(h, f"{name}self_attn.{part}_proj"), count)
                                 for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        if config["model_type"] == "gemma3_text":
            queries, keys = norm(queries, name + "self_attn.q_norm"), norm(keys, name + "self_attn.k_norm")
        keys, values = (y.repeat_interleave(heads // kv_heads, 1) for y in (rotate(keys), values))
        scores = rotate(queries) @ keys.mT * config.get("query_pre_attn_scalar", head_dim) ** -0.5
        distance = positions[:, None] - positions
        seen = (distance >= 0) & (distance < (config["sliding_window"] if slides else seq_len))
        weighted = capped(scores, "attn_logit_softcapping").masked_fill(~seen, -torch.inf).softmax(-1) @ values
        attended = linear(weighted.transpose(1, 2).reshape(*ids.shape, -1), name + "self_attn.o_proj")
        x = x + (norm(attended, name + "post_attention_layernorm") if gemma else attended)
        h = norm(x, name + ("pre_feedforward_layernorm" if gemma else "post_attention_layernorm"))
        gate = linear(h, name + "mlp.gate_proj")
        gate = nn.functional.gelu(gate, approximate="tanh") if gemma else nn.functional.silu(gate)
        activated = linear(gate * linear(h, name + "mlp.up_proj"), name + "mlp.down_proj")
        x = x + (norm(activated, name + "post_feedforward_layernorm") if gemma else activated)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return capped(norm(x, "model.norm") @ head.T, "final_logit_softcapping")


def long_context_models():
    """Chapter 17. A checkpoint of each model type, its logits for more tokens than the window, and greedy text."""
    base = {"hidden_size": 20, "intermediate_size": 14, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
            "vocab_size": 31, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "sliding_window": 5}
    gemma = {**base, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 9.0}
    window, full = "sliding_attention", "full_attention"
    configs = {
        "mistral": {**base, "num_hidden_layers": 3, "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False,
                    "layer_types": [window] * 3},
        "gemma2": {**gemma, "num_hidden_layers": 4, "rope_theta": 500.0, "attn_logit_softcapping": 2.0,
                   "final_logit_softcapping": 10.0, "layer_types": [window, full] * 2},
        "gemma3_text": {**gemma, "num_hidden_layers": 7, "rope_theta": 5000.0, "rope_local_base_freq": 100.0,
                        "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "layer_types": [window] * 5 + [full, window]}}
    torch.manual_seed(171)
    ids = torch.randint(0, 31, (2, 19))
    save("17_long_context/ids", ids)
    for name, config in configs.items():
        config["model_type"] = name
        draw = lambda *shape: torch.randn(*shape) * shape[-1] ** -0.5
        weights = {"model.embed_tokens.weight": draw(31, 20), "model.norm.weight": torch.rand(20) * 2}
        norms = ["input_layernorm", "post_attention_layernorm"]
        if name != "mistral":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for n in range(config["num_hidden_layers"]):
            layer = f"model.layers.{n}."
            for part, out, into in [("self_attn.q_proj", 24, 20), ("self_attn.k_proj", 12, 20), ("self_attn.v_proj", 12, 20),
                                    ("self_attn.o_proj", 20, 24), ("mlp.gate_proj", 14, 20), ("mlp.up_proj", 14, 20),
                                    ("mlp.down_proj", 20, 14)]:
                weights[f"{layer}{part}.weight"] = 2 * draw(out, into)
            weights |= {f"{layer}{norm}.weight": torch.rand(20) for norm in norms}
            if name == "gemma3_text":
                weights |= {f"{layer}self_attn.{norm}.weight": torch.rand(6) for norm in ("q_norm", "k_norm")}
        if name == "mistral":
            weights["lm_head.weight"] = 2 * draw(31, 20)
        weights = {key: value.bfloat16() for key, value in weights.items()}
        folder = FOLDER / "17_long_context" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / "model.safetensors", weights)
        written = {key: value for key, value in config.items() if key != "layer_types"}  # the rules of each type give them
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
        weights = {key: value.float() for key, value in weights.items()}
        save(f"17_long_context/{name}_logits", windowed_decoder(config, weights, ids))
        greedy = ids[:1, :9]
        for _ in range(30):
            logits = windowed_decoder(config, weights, greedy)[:, -1]
            best, second = logits[0].topk(2)[0]
            assert best - second > 1e-3  # otherwise rounding would decide
            greedy = torch.cat([greedy, logits.argmax(-1, keepdim=True)], 1)
        save(f"17_long_context/{name}_greedy", greedy)

def dense_decoder(config, weights, ids):
    """Logits of a gemma, smollm3, granite, olmo2, phi3 or cohere2 model from tensors and settings with Hugging Face's names; all fields given."""
    gemma, head_dim, kind = config["model_type"] == "gemma", config["head_dim"], config["model_type"]
    heads, kv_heads, seq_len = config["num_attention_heads"], config["num_key_value_heads"], ids.shape[1]
    scale = config.get("attention_multiplier", head_dim ** -0.5)
    residual = config.get("residual_multiplier", 1.0)

    def norm(x, name):
        weight = weights[f"{name}.weight"]
        if kind == "cohere2":
            return nn.functional.layer_norm(x, x.shape[-1:], weight, None, config["layer_norm_eps"])
        return rms_normalize(x, config["rms_norm_eps"]) * (1 + weight if gemma else weight)

    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)
    activation = (lambda x: nn.functional.gelu(x, approximate="tanh")) if gemma else getattr(nn.functional, config.get("hidden_act", "silu"))
    split = lambda y, count: y.view(*ids.shape, count, head_dim).transpose(1, 2)
    x = weights["model.embed_tokens.weight"][ids]
    x = x * (config["hidden_size"] ** 0.5 if gemma else config.get("embedding_multiplier", 1.0))
    rotary_dim, attention_factor = int(head_dim * config.get("partial_rotary_factor", 1.0)), 1.0
    frequencies = rotary_angles(rotary_dim, config["rope_theta"], torch.arange(seq_len).float())[0]
    scaling = config.get("rope_scaling") or {"rope_type": "default"}
    if scaling["rope_type"] == "linear":
        frequencies = frequencies / scaling["factor"]
    if scaling["rope_type"] == "yarn":
        frequencies = yarn_frequencies(rotary_dim, config["rope_theta"], scaling["factor"], scaling["original_max_position_embeddings"], 32, 1, True)
        attention_factor = 0.1 * math.log(scaling["factor"]) + 1
    if scaling["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        frequencies = frequencies / torch.tensor(scaling["long_factor" if seq_len > original else "short_factor"])
        attention_factor = (1 + math.log(config["max_position_embeddings"] / original) / math.log(original)) ** 0.5
    angles = torch.arange(seq_len).float()[:, None] * frequencies
    angles = angles.repeat_interleave(2, -1) if kind == "cohere2" else torch.cat((angles, angles), dim=-1)

    def rotate(y):
        y, rest = y[..., :rotary_dim], y[..., rotary_dim:]
        turned = torch.stack((-y[..., 1::2], y[..., ::2]), -1).flatten(-2) if kind == "cohere2" else rotate_half(y)
        return torch.cat((attention_factor * (y * angles.cos() + turned * angles.sin()), rest), -1)

    distance = torch.arange(seq_len)[:, None] - torch.arange(seq_len)
    causal = distance < 0
    windowed = causal | (distance >= config.get("sliding_window", seq_len))
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        h = x if kind == "olmo2" else norm(x, name + "input_layernorm")
        if kind == "phi3":
            projected = list(linear(h, name + "self_attn.qkv_proj").split([n * head_dim for n in (heads, kv_heads, kv_heads)], -1))
        else:
            projected = [linear(h, f"{name}self_attn.{part}_proj") for part in "qkv"]
        if kind == "olmo2":
            projected[:2] = (norm(y, f"{name}self_attn.{part}_norm") for part, y in zip("qk", projected))
        queries, keys, values = (split(y, count) for y, count in zip(projected, (heads, kv_heads, kv_heads)))
        full = kind == "cohere2" and config["layer_types"][n] == "full_attention"
        if not full and (kind != "smollm3" or config["no_rope_layers"][n]):
            queries, keys = rotate(queries), rotate(keys)
        keys, values = (y.repeat_interleave(heads // kv_heads, 1) for y in (keys, values))
        full = full or n < config.get("max_window_layers", 0)
        scores = (queries @ keys.mT * scale).masked_fill(causal if full else windowed, -torch.inf)
        attended = (scores.softmax(-1) @ values).transpose(1, 2).reshape(*ids.shape, -1)
        attended = linear(attended, name + "self_attn.o_proj")
        if kind == "cohere2":
            hidden = activation(linear(h, name + "mlp.gate_proj")) * linear(h, name + "mlp.up_proj")
            x = x + attended + linear(hidden, name + "mlp.down_proj")
            continue
        x = x + (norm(attended, name + "post_attention_layernorm") if kind == "olmo2" else residual * attended)
        h = x if kind == "olmo2" else norm(x, name + "post_attention_layernorm")
        gate, up = (linear(h, name + "mlp.gate_up_proj").chunk(2, -1) if kind == "phi3" else
                    (linear(h, name + "mlp.gate_proj"), linear(h, name + "mlp.up_proj")))
        hidden = activation(gate) * up
        hidden = linear(hidden, name + "mlp.down_proj")
        x = x + (norm(hidden, name + "post_feedforward_layernorm") if kind == "olmo2" else residual * hidden)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.T / config.get("logits_scaling", 1.0) * config.get("logit_scale", 1.0)


def gpt2_decoder(config, weights, ids):
    """Logits of a GPT-2 from tensors and settings with Hugging Face's names, as modeling_gpt2.py computes them."""
    heads, seq_len = config["n_head"], ids.shape[1]

    def norm(x, name):
        return nn.functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], config["layer_norm_epsilon"])

    conv1d = lambda x, name: x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
    x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][:seq_len]
    for n in range(config["n_layer"]):
        name = f"transformer.h.{n}."
        qkv = conv1d(norm(x, name + "ln_1"), name + "attn.c_attn").chunk(3, -1)
        queries, keys, values = (y.view(*ids.shape, heads, -1).transpose(1, 2) for y in qkv)
        scores = queries @ keys.mT * keys.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(seq_len, seq_len).triu(1).bool(), -torch.inf)
        attended = (scores.softmax(-1) @ values).transpose(1, 2).reshape(*ids.shape, -1)
        x = x + conv1d(attended, name + "attn.c_proj")
        hidden = nn.functional.gelu(conv1d(norm(x, name + "ln_2"), name + "mlp.c_fc"), approximate="tanh")
        x = x + conv1d(hidden, name + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].T


def save_dense_model(name, config, weights, ids, decoder):
    """Saves the weights in bfloat16, the logits, and 30 greedy tokens after the first nine."""
    weights = {key: value.bfloat16() for key, value in weights.items()}
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {key: value.float() for key, value in weights.items()}
    save(f"models/{name}_logits", decoder(config, weights, ids))
    greedy = ids[:1, :9]
    for _ in range(30):
        logits = decoder(config, weights, greedy)[:, -1]
        best, second = logits[0].topk(2)[0]
        assert best - second > 1e-3  # otherwise rounding would decide
        greedy = torch.cat([greedy, logits.argmax(-1, keepdim=True)], 1)
    save(f"models/{name}_greedy", greedy)


def dense_models():
    """chapters/models. A checkpoint of each dense family, its logits and its greedy text."""
    base = {"hidden_size": 20, "intermediate_size": 14, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
            "vocab_size": 31, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "rope_theta": 500.0}
    configs = {
        "gemma": {**base, "num_hidden_layers": 3, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
        "smollm3": {**base, "num_hidden_layers": 5, "hidden_act": "silu", "tie_word_embeddings": True,
                    "no_rope_layers": [1, 0, 1, 1, 0]},
        "granite": {**base, "num_hidden_layers": 3, "hidden_act": "silu", "tie_word_embeddings": False,
                    "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4, "logits_scaling": 2.5},
        "olmo2": {**base, "num_hidden_layers": 3, "hidden_act": "silu", "tie_word_embeddings": False},
        "phi3": {**base, "num_hidden_layers": 3, "hidden_act": "silu", "tie_word_embeddings": False, "sliding_window": 6},
        "cohere2": {**base, "hidden_size": 24, "num_hidden_layers": 5, "hidden_act": "silu", "tie_word_embeddings": True, "sliding_window": 6,
                    "layer_types": [f"{'full' if n in (1, 4) else 'sliding'}_attention" for n in range(5)], "logit_scale": 0.3}}
    configs["cohere2"]["layer_norm_eps"] = configs["cohere2"].pop("rms_norm_eps")
    # The same weights on both sides of the original length: at most 39 tokens of 48, and at least 9 of 8.
    for name, original in [("phi3_longrope", 48), ("phi3_longrope_long", 8)]:
        configs[name] = {**base, "head_dim": 12, "num_hidden_layers": 3, "hidden_act": "silu", "tie_word_embeddings": True,
                         "partial_rotary_factor": 0.67, "original_max_position_embeddings": original,
                         "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, 1.3, 2.0, 1.6], "long_factor": [1.5, 4.0, 9.0, 30.0]}}
    torch.manual_seed(172)
    ids = torch.randint(0, 31, (2, 19))
    save("models/ids", ids)
    draw = lambda *shape: torch.randn(*shape) * shape[-1] ** -0.5
    for name, config in configs.items():
        config["model_type"] = kind = name.split("_")[0]
        if "longrope" in name:
            torch.manual_seed(173)
        C, D = config["hidden_size"], config["head_dim"]
        weights = {"model.embed_tokens.weight": draw(31, C), "model.norm.weight": torch.rand(C) * 2}
        for n in range(config["num_hidden_layers"]):
            layer = f"model.layers.{n}."
            parts = [("self_attn.q_proj", 4 * D, C), ("self_attn.k_proj", 2 * D, C), ("self_attn.v_proj", 2 * D, C),
                     ("self_attn.o_proj", C, 4 * D), ("mlp.gate_proj", 14, C), ("mlp.up_proj", 14, C), ("mlp.down_proj", C, 14)]
            if kind == "phi3":
                parts = [("self_attn.qkv_proj", 8 * D, C), parts[3], ("mlp.gate_up_proj", 28, C), parts[6]]
            for part, out, into in parts:
                weights[f"{layer}{part}.weight"] = 2 * draw(out, into)
            norms = ("input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm")
            norms = {"olmo2": norms[1:], "cohere2": norms[:1]}.get(kind, norms[:2])
            weights |= {f"{layer}{norm}.weight": torch.rand(C) for norm in norms}
            if kind == "olmo2":
                weights |= {f"{layer}self_attn.q_norm.weight": torch.rand(24), f"{layer}self_attn.k_norm.weight": torch.rand(12)}
        if not config["tie_word_embeddings"]:
            weights["lm_head.weight"] = 2 * draw(31, C)
        save_dense_model(name, config, weights, ids, dense_decoder)

    config = {"model_type": "gpt2", "n_embd": 24, "n_inner": 36, "n_head": 4, "n_layer": 3, "n_positions": 64, "vocab_size": 31,
              "layer_norm_epsilon": 1e-3, "activation_function": "gelu_new"}
    weights = {"transformer.wte.weight": draw(31, 24), "transformer.wpe.weight": draw(64, 24)}
    for n in range(3):
        for part, into, out in [("attn.c_attn", 24, 72), ("attn.c_proj", 24, 24), ("mlp.c_fc", 24, 36), ("mlp.c_proj", 36, 24)]:
            weights[f"transformer.h.{n}.{part}.weight"] = 2 * draw(out, into).T.contiguous()
            weights[f"transformer.h.{n}.{part}.bias"] = torch.randn(out)
    for name in ["ln_f"] + [f"h.{n}.ln_{i}" for n in range(3) for i in (1, 2)]:
        weights |= {f"transformer.{name}.weight": torch.rand(24) * 2, f"transformer.{name}.bias": torch.randn(24)}
    weights |= {"transformer.h.0.attn.bias": torch.ones(64, 64).tril()[None, None], "transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_dense_model("gpt2", config, weights, ids, gpt2_decoder)
    pebble(base, ids)
    odd_settings(base, ids)


def odd_settings(base, ids):
    """Settings that the classes of Llama and Qwen2 have and hardly a published file uses: other activations, biases everywhere,
    linear scaling and YaRN, windows from the second layer on."""
    base = {**base, "num_hidden_layers": 3, "tie_word_embeddings": False}
    configs = {
        "llama_odd": {**base, "model_type": "llama", "hidden_act": "gelu", "attention_bias": True, "mlp_bias": True,
                      "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "qwen2_odd": {**base, "model_type": "qwen2", "hidden_act": "relu", "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
                      "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 200}}}
    torch.manual_seed(174)
    draw = lambda *shape: 2 * torch.randn(*shape) * shape[-1] ** -0.5
    C, D, F = base["hidden_size"], base["head_dim"], base["intermediate_size"]
    for name, config in configs.items():
        weights = {"model.embed_tokens.weight": draw(31, C) / 2, "model.norm.weight": torch.rand(C) * 2, "lm_head.weight": draw(31, C)}
        parts = [("self_attn.q_proj", 4 * D, C), ("self_attn.k_proj", 2 * D, C), ("self_attn.v_proj", 2 * D, C), ("self_attn.o_proj", C, 4 * D),
                 ("mlp.gate_proj", F, C), ("mlp.up_proj", F, C), ("mlp.down_proj", C, F)]
        for n in range(3):
            layer = f"model.layers.{n}."
            for i, (part, out, into) in enumerate(parts):
                weights[f"{layer}{part}.weight"] = draw(out, into)
                if i < 3 or name == "llama_odd":
                    weights[f"{layer}{part}.bias"] = torch.randn(out)
            weights |= {f"{layer}{norm}.weight": torch.rand(C) for norm in ("input_layernorm", "post_attention_layernorm")}
        save_dense_model(name, config, weights, ids, dense_decoder)


def pebble(base, ids):
    """The model of exercise M.4: a Gemma with other names, and with interleaved pairs in q_proj and k_proj."""
    torch.manual_seed(174)
    C, D, draw = 20, 6, lambda *shape: torch.randn(*shape) * shape[-1] ** -0.5
    names = {"input_layernorm": "norm_a", "self_attn.q_proj": "wq", "self_attn.k_proj": "wk", "self_attn.v_proj": "wv", "self_attn.o_proj": "wo",
             "post_attention_layernorm": "norm_f", "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}
    shapes = {"self_attn.q_proj": (4 * D, C), "self_attn.k_proj": (2 * D, C), "self_attn.v_proj": (2 * D, C), "self_attn.o_proj": (C, 4 * D),
              "mlp.gate_proj": (14, C), "mlp.up_proj": (14, C), "mlp.down_proj": (C, 14)}
    weights = {"model.embed_tokens.weight": draw(31, C), "model.norm.weight": torch.randn(C)}
    stored = {"tokens.weight": weights["model.embed_tokens.weight"], "final_norm.weight": weights["model.norm.weight"]}
    for n in range(2):
        for name, new_name in names.items():
            weight = 2 * draw(*shapes[name]) if name in shapes else torch.randn(C)
            weights[f"model.layers.{n}.{name}.weight"] = weight
            if name.endswith(("q_proj", "k_proj")):  # rows i and i + D/2 of each head become rows 2i and 2i + 1
                weight = weight.view(-1, 2, D // 2, C).transpose(1, 2).reshape(-1, C).contiguous()
            stored[f"stack.{n}.{new_name}.weight"] = weight
    folder = FOLDER / "models/pebble"
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", stored)
    config = {"model_type": "pebble", "dim": C, "ffn_dim": 14, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": D, "vocab_size": 31,
              "max_seq_len": 64, "norm_eps": 1e-3, "rope_theta": 500.0}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save("models/pebble_logits", dense_decoder({**base, "model_type": "gemma", "num_hidden_layers": 2}, weights, ids))


def experts():
    """Chapter 18. The experts of each token, their gates, and autograd's gradient, written from the published modeling files."""
    torch.manual_seed(18)
    tokens, num_experts, groups, kept_groups = 7, 12, 4, 2
    logits = (2 * torch.randn(tokens, num_experts)).requires_grad_()
    bias = torch.randn(num_experts)
    in_groups = lambda scores: scores.view(tokens, groups, -1)

    def limited(scores, group_scores, masked):
        kept = group_scores.topk(kept_groups, dim=-1).indices
        mask = torch.zeros_like(group_scores).scatter(1, kept, 1).bool()
        return scores.masked_fill(~mask.repeat_interleave(num_experts // groups, 1), masked)

    def mixtral(count):
        weights, chosen = logits.softmax(-1).topk(count, dim=-1)
        return chosen, weights / weights.sum(-1, keepdim=True)

    def qwen3_without_norm(count):
        weights, chosen = logits.softmax(-1).topk(count, dim=-1)
        return chosen, weights

    def gpt_oss(count):
        values, chosen = logits.topk(count, dim=-1)
        return chosen, values.softmax(-1)

    def deepseek_v2(count):
        scores = logits.softmax(-1)
        chosen = limited(scores, in_groups(scores).max(-1).values, 0.0).topk(count, dim=-1).indices
        return chosen, scores.gather(1, chosen) * 16.0

    def deepseek_v3(count):
        scores = logits.sigmoid()
        biased = scores + bias
        chosen = limited(biased, in_groups(biased).topk(2, dim=-1).values.sum(-1), -torch.inf).topk(count, dim=-1).indices
        weights = scores.gather(1, chosen)
        return chosen, weights / weights.sum(-1, keepdim=True) * 2.5

    def llama4(count):
        values, chosen = logits.topk(count, dim=-1)
        return chosen, values.sigmoid()

    save("18_experts/router_logits", logits)
    save("18_experts/correction_bias", bias)
    for function, count in [(mixtral, 3), (qwen3_without_norm, 4), (gpt_oss, 3), (deepseek_v2, 3), (deepseek_v3, 4), (llama4, 1)]:
        chosen, gates = function(count)
        output_gradient = torch.randn(tokens, count)
        name = f"18_experts/{function.__name__}"
        save(f"{name}_experts", chosen)
        save(f"{name}_gates", gates)
        save(f"{name}_gate_gradient", output_gradient)
        save(f"{name}_logits_gradient", torch.autograd.grad((gates * output_gradient).sum(), logits)[0])
    balance(logits.detach())
    gpt_oss_expert()


def balance(logits):
    """The losses of a router, as in modeling_mixtral.py (load_balancing_loss_func for one layer) and in ST-MoE."""
    num_experts, count = logits.shape[1], 3
    logits = logits.clone().requires_grad_()
    chosen = logits.softmax(-1).topk(count, dim=-1).indices
    tokens_per_expert = torch.nn.functional.one_hot(chosen, num_experts).float().mean(0)  # (K, E)
    aux_loss = num_experts * (tokens_per_expert * logits.softmax(-1).mean(0)).sum()
    z_loss = logits.logsumexp(-1).square().mean()
    for name, loss in [("aux_loss", aux_loss), ("z_loss", z_loss)]:
        save(f"18_experts/{name}", loss.reshape(1))
        save(f"18_experts/{name}_logits_gradient", torch.autograd.grad(loss, logits, retain_graph=True)[0])


def gpt_oss_expert():
    """One expert of GptOssExperts: weights large enough that gate and up are clamped on both sides."""
    torch.manual_seed(181)
    hidden, width = 6, 5
    shapes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    weights = {name: (4 * torch.randn(shape)).requires_grad_() for name, shape in shapes.items()}
    biases = {name: torch.randn(shape[0], requires_grad=True) for name, shape in shapes.items()}
    states = torch.randn(2, 4, hidden, requires_grad=True)
    linear = lambda name, x: x @ weights[name].T + biases[name]
    gate = linear("gate", states).clamp(max=7.0)
    up = linear("up", states).clamp(min=-7.0, max=7.0)
    output = linear("down", (up + 1) * gate * torch.sigmoid(gate * 1.702))
    output_gradient = torch.randn_like(output)
    inputs = {"input": states, **{f"{n}_weight": w for n, w in weights.items()}, **{f"{n}_bias": b for n, b in biases.items()}}
    gradients = torch.autograd.grad((output * output_gradient).sum(), list(inputs.values()))
    save("18_experts/clamped_output", output)
    save("18_experts/clamped_output_gradient", output_gradient)
    for (name, tensor), gradient in zip(inputs.items(), gradients):
        save(f"18_experts/clamped_{name}", tensor)
        save(f"18_experts/clamped_{name}_gradient", gradient)


def moe_decoder(config, weights, ids):
    """Logits of a mixtral, qwen3_moe, gpt_oss or llama4_text model, from tensors and settings with Hugging Face's names."""
    kind, head_dim, eps = config["model_type"], config["head_dim"], config["rms_norm_eps"]
    heads, kv_heads, seq_len = config["num_attention_heads"], config["num_key_value_heads"], ids.shape[1]
    positions = torch.arange(seq_len)
    distance = positions[:, None] - positions
    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))
    norm = lambda x, name: rms_normalize(x, eps) * weights[f"{name}.weight"]
    split = lambda y, count: y.view(*ids.shape, count, head_dim).transpose(1, 2)

    factor = 1.0
    frequencies, _ = rotary_angles(head_dim, config["rope_theta"], positions.float())
    if kind == "gpt_oss":
        scaling = config["rope_scaling"]
        frequencies = yarn_frequencies(head_dim, config["rope_theta"], scaling["factor"], scaling["original_max_position_embeddings"],
                                       scaling["beta_fast"], scaling["beta_slow"], scaling["truncate"])
        factor = 0.1 * math.log(scaling["factor"]) + 1
    if kind == "llama4_text":  # low_freq_factor = high_freq_factor: nothing lies between
        scaling = config["rope_scaling"]
        long = 2 * torch.pi / frequencies > scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
        frequencies = torch.where(long, frequencies / scaling["factor"], frequencies)
    angles = positions[:, None].float() * frequencies

    def rotate(y):
        if kind == "llama4_text":  # interleaved pairs as complex numbers
            pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        both = torch.cat((angles, angles), dim=-1)
        return y * both.cos() * factor + rotate_half(y) * both.sin() * factor

    def attend(x, n):
        name = f"model.layers.{n}.self_attn."
        queries, keys, values = (split(linear(x, f"{name}{part}_proj"), count)
                                 for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        seen = distance >= 0
        if kind == "qwen3_moe":
            queries, keys = norm(queries, name + "q_norm"), norm(keys, name + "k_norm")
        if kind == "llama4_text" and not config["no_rope_layers"][n]:
            scale = torch.log1p(torch.floor((positions.float() + 1) / config["floor_scale"])) * config["attn_scale"] + 1
            queries = queries * scale[:, None]
        else:
            queries, keys = rotate(queries), rotate(keys)
            if kind == "llama4_text":
                if config.get("use_qk_norm", True):
                    queries, keys = rms_normalize(queries, eps), rms_normalize(keys, eps)
                chunk = positions // config["attention_chunk_size"]
                seen = seen & (chunk[:, None] == chunk)
        if kind == "mixtral" or kind == "gpt_oss" and n % 2 == 0:
            seen = seen & (distance < config["sliding_window"])
        keys, values = (y.repeat_interleave(heads // kv_heads, 1) for y in (keys, values))
        scores = (queries @ keys.mT * head_dim ** -0.5).masked_fill(~seen, -torch.inf)
        if kind == "gpt_oss":
            sinks = weights[name + "sinks"].view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            probabilities = torch.cat((scores, sinks), dim=-1).softmax(-1)[..., :-1]
        else:
            probabilities = scores.softmax(-1)
        return linear((probabilities @ values).transpose(1, 2).reshape(*ids.shape, -1), name + "o_proj")

    def mlp(x, name, gate="gate_proj", up="up_proj", down="down_proj"):
        return linear(nn.functional.silu(linear(x, name + gate)) * linear(x, name + up), name + down)

    def expert(x, name, e):
        if kind == "mixtral":
            return mlp(x, f"{name}experts.{e}.", "w1", "w3", "w2")
        if kind == "qwen3_moe":
            return mlp(x, f"{name}experts.{e}.")
        gate_up, down = x @ weights[name + "experts.gate_up_proj"][e], weights[name + "experts.down_proj"][e]
        if kind == "llama4_text":
            gate, up = gate_up.chunk(2, dim=-1)
            return (nn.functional.silu(gate) * up) @ down
        gate_up = gate_up + weights[name + "experts.gate_up_proj_bias"][e]
        gate, up = gate_up[..., ::2].clamp(max=config["swiglu_limit"]), gate_up[..., 1::2].clamp(-config["swiglu_limit"], config["swiglu_limit"])
        return ((up + 1) * gate * torch.sigmoid(gate * 1.702)) @ down + weights[name + "experts.down_proj_bias"][e]

    def mixture(x, name):
        rows, count = x.reshape(-1, x.shape[-1]), config["num_experts_per_tok"]
        logits = linear(rows, name + ("router" if kind in ("gpt_oss", "llama4_text") else "gate"))
        if kind == "gpt_oss":
            values, chosen = logits.topk(count, dim=-1)
            gates = values.softmax(-1)
        elif kind == "llama4_text":
            values, chosen = logits.topk(count, dim=-1)
            gates = values.sigmoid()
        else:
            gates, chosen = logits.softmax(-1).topk(count, dim=-1)
            if kind == "mixtral" or config["norm_topk_prob"]:
                gates = gates / gates.sum(-1, keepdim=True)
        output = torch.zeros_like(rows)
        for n in range(rows.shape[0]):
            for k in range(count):
                e, gate = int(chosen[n, k]), gates[n, k]
                output[n] += expert(gate * rows[n], name, e) if kind == "llama4_text" else gate * expert(rows[n], name, e)
        if kind == "llama4_text":
            output = output + mlp(rows, name + "shared_expert.")
        return output.view_as(x)

    place = {"mixtral": "block_sparse_moe.", "llama4_text": "feed_forward."}.get(kind, "mlp.")
    x = weights["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        x = x + attend(norm(x, name + "input_layernorm"), n)
        layer = mixture if n not in config["dense_layers"] else mlp
        x = x + layer(norm(x, name + "post_attention_layernorm"), name + place)
    return norm(x, "model.norm") @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T


def mxfp4(weights):
    """Random MXFP4 blocks of the shape (E, out, in), and the float32 weights that they mean."""
    experts, out, into = weights
    blocks = torch.randint(0, 256, (experts, out, into // 32, 16), dtype=torch.uint8)
    scales = torch.randint(122, 126, (experts, out, into // 32), dtype=torch.uint8)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat((values, -values))
    pairs = torch.stack((values[(blocks & 15).long()], values[(blocks >> 4).long()]), dim=-1).flatten(-2)
    return blocks, scales, (pairs * 2.0 ** (scales.float() - 127)[..., None]).flatten(-2)


def mixture_models():
    """Chapter 18. A checkpoint of each model type, its logits for more tokens than window and chunk, and greedy text."""
    base = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
            "vocab_size": 31, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "hidden_act": "silu",
            "tie_word_embeddings": False, "dense_layers": []}
    llama4 = {"rope_theta": 500.0, "intermediate_size": 10, "intermediate_size_mlp": 14, "num_local_experts": 5, "num_experts_per_tok": 1,
              "num_hidden_layers": 4, "moe_layers": [1, 2, 3], "no_rope_layers": [1, 0, 1, 1], "attention_chunk_size": 5,
              "floor_scale": 4.0, "attn_scale": 0.5, "dense_layers": [0],
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                               "original_max_position_embeddings": 40}}
    gpt_oss = {"rope_theta": 500.0, "intermediate_size": 32, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5,
               "swiglu_limit": 1.5, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                                     "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False}}
    configs = {
        "mixtral": {"rope_theta": 500.0, "intermediate_size": 10, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 6},
        "qwen3_moe": {"rope_theta": 5000.0, "intermediate_size": 14, "moe_intermediate_size": 10, "num_experts": 7, "num_experts_per_tok": 3,
                      "norm_topk_prob": True, "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3], "dense_layers": [0, 2, 3]},
        "gpt_oss": gpt_oss,
        "gpt_oss_mxfp4": {**gpt_oss, "quantization_config": {"quant_method": "mxfp4"}},
        "llama4_text": llama4}
    torch.manual_seed(182)
    ids = torch.randint(0, 31, (2, 17))
    save("18_experts/ids", ids)
    for name, sizes in configs.items():
        kind = name.removesuffix("_mxfp4")
        config = {**base, **sizes, "model_type": kind}
        draw = lambda *shape: 2 * torch.randn(*shape) * shape[-1] ** -0.5
        size, heads, kv_heads = config["hidden_size"], config["num_attention_heads"] * 6, config["num_key_value_heads"] * 6
        experts = config.get("num_experts") or config["num_local_experts"]
        width = config.get("moe_intermediate_size") or config["intermediate_size"]
        weights = {"model.embed_tokens.weight": draw(31, size), "model.norm.weight": torch.rand(size) * 2, "lm_head.weight": draw(31, size)}
        mlp = lambda prefix, width, names=("gate_proj", "up_proj", "down_proj"): {
            f"{prefix}{names[0]}.weight": draw(width, size), f"{prefix}{names[1]}.weight": draw(width, size), f"{prefix}{names[2]}.weight": draw(size, width)}
        stored = {}
        for n in range(config["num_hidden_layers"]):
            layer = f"model.layers.{n}."
            for part, out, into in [("q", heads, size), ("k", kv_heads, size), ("v", kv_heads, size), ("o", size, heads)]:
                weights[f"{layer}self_attn.{part}_proj.weight"] = draw(out, into)
                if kind == "gpt_oss":
                    weights[f"{layer}self_attn.{part}_proj.bias"] = torch.randn(out)
            weights |= {f"{layer}{norm}.weight": torch.rand(size) for norm in ("input_layernorm", "post_attention_layernorm")}
            place = layer + {"mixtral": "block_sparse_moe.", "llama4_text": "feed_forward."}.get(kind, "mlp.")
            if n in config["dense_layers"]:
                weights |= mlp(place, config.get("intermediate_size_mlp", config["intermediate_size"]))
            elif kind in ("mixtral", "qwen3_moe"):
                weights[place + "gate.weight"] = draw(experts, size)
                names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
                for e in range(experts):
                    weights |= mlp(f"{place}experts.{e}.", width, names)
            else:
                weights[place + "router.weight"] = draw(experts, size)
                weights |= {place + "experts.gate_up_proj": 2 * torch.randn(experts, size, 2 * width) * size ** -0.5,
                            place + "experts.down_proj": 2 * torch.randn(experts, width, size) * width ** -0.5}
                if kind == "llama4_text":
                    weights |= mlp(place + "shared_expert.", width)
                else:
                    weights |= {place + "router.bias": torch.randn(experts), place + "experts.gate_up_proj_bias": torch.randn(experts, 2 * width),
                                place + "experts.down_proj_bias": torch.randn(experts, size), f"{layer}self_attn.sinks": torch.randn(heads // 6)}
                if name == "gpt_oss_mxfp4":
                    for tensor, shape in [("gate_up_proj", (experts, 2 * width, size)), ("down_proj", (experts, size, width))]:
                        blocks, scales, values = mxfp4(shape)
                        stored |= {f"{place}experts.{tensor}_blocks": blocks, f"{place}experts.{tensor}_scales": scales}
                        weights[f"{place}experts.{tensor}"] = values.mT
            if kind == "qwen3_moe":
                weights |= {f"{layer}self_attn.{norm}.weight": torch.rand(6) for norm in ("q_norm", "k_norm")}
        weights = {key: value.bfloat16() for key, value in weights.items()}
        quantized = {key.rsplit("_", 1)[0] for key in stored}
        folder = FOLDER / "18_experts" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / "model.safetensors", {**{k: v for k, v in weights.items() if k not in quantized}, **stored})
        written = {key: value for key, value in config.items() if key != "dense_layers"}
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
        weights = {key: value.float() for key, value in weights.items()}
        save(f"18_experts/{name}_logits", moe_decoder(config, weights, ids))
        if kind == "llama4_text":  # Maverick
            save(f"18_experts/{name}_without_qk_norm_logits", moe_decoder({**config, "use_qk_norm": False}, weights, ids))
        greedy = ids[:1, :9]
        for _ in range(20):
            logits = moe_decoder(config, weights, greedy)[:, -1]
            best, second = logits[0].topk(2)[0]
            assert best - second > 1e-3  # otherwise rounding would decide
            greedy = torch.cat([greedy, logits.argmax(-1, keepdim=True)], 1)
        save(f"18_experts/{name}_greedy", greedy)


def latent_attend(x, weight, sizes, rotate, scale):
    """Multi-head latent attention with a causal mask, expanded: DeepSeek-V2 and V3. weight(name) is a parameter; without q_a_proj there is
    one query projection. rotate is applied to (..., T, Dr)."""
    heads, nope, rope, value_dim, rank = sizes
    seq_len = x.shape[1]
    norm = lambda y, name: rms_normalize(y, 1e-6) * weight(name)
    split = lambda y: y.view(*x.shape[:2], heads, -1).transpose(1, 2)
    q_a, compressed = weight("q_a_proj"), x @ weight("kv_a_proj_with_mqa").T
    queries = x @ weight("q_proj").T if q_a is None else norm(x @ q_a.T, "q_a_layernorm") @ weight("q_b_proj").T
    q_nope, q_rope = split(queries).split([nope, rope], dim=-1)
    latent, k_rope = compressed.split([rank, rope], dim=-1)
    k_nope, values = split(norm(latent, "kv_a_layernorm") @ weight("kv_b_proj").T).split([nope, value_dim], dim=-1)
    k_rope = rotate(k_rope[:, None]).expand(-1, heads, -1, -1)
    queries, keys = torch.cat((q_nope, rotate(q_rope)), -1), torch.cat((k_nope, k_rope), -1)
    hidden = torch.ones(seq_len, seq_len).triu(1).bool()
    probabilities = (queries @ keys.mT * scale).masked_fill(hidden, -torch.inf).softmax(-1)
    return (probabilities @ values).transpose(1, 2).flatten(2) @ weight("o_proj").T


def latent_attention():
    """Chapter 19. A layer with split halves, without and with low-rank queries: output and gradients."""
    torch.manual_seed(19)
    heads, nope, rope, value_dim, rank, q_rank = sizes = 3, 4, 6, 5, 8, 7
    angles = torch.arange(T)[:, None].float() * rotary_angles(rope, 100.0, torch.arange(T).float())[0]
    both = torch.cat((angles, angles), dim=-1)
    rotate = lambda y: y * both.cos() + rotate_half(y) * both.sin()
    for name in ("plain", "low_rank"):
        shapes = {"kv_a_proj_with_mqa": (rank + rope, C), "kv_a_layernorm": (rank,), "kv_b_proj": (heads * (nope + value_dim), rank),
                  "o_proj": (C, heads * value_dim)}
        shapes |= {"q_proj": (heads * (nope + rope), C)} if name == "plain" else {
            "q_a_proj": (q_rank, C), "q_a_layernorm": (q_rank,), "q_b_proj": (heads * (nope + rope), q_rank)}
        weights = {key: torch.randn(*shape).mul(0.5).requires_grad_() for key, shape in shapes.items()}
        x, upstream = torch.randn(B, T, C, requires_grad=True), torch.randn(B, T, C)
        output = latent_attend(x, weights.get, sizes[:-1], rotate, 0.4)  # another scale than 1/sqrt(10)
        (output * upstream).sum().backward()
        for key, tensor in {**weights, "input": x}.items():
            save(f"19_latent_attention/{name}_{key}", tensor)
            save(f"19_latent_attention/{name}_{key}_gradient", tensor.grad)
        save(f"19_latent_attention/{name}_output", output)
        save(f"19_latent_attention/{name}_upstream", upstream)


def deepseek_decoder(config, weights, ids):
    """Logits of a deepseek_v2 or deepseek_v3 model. The scale has YaRN's factor, as in DeepSeek's own code."""
    nope, rope, value_dim, rank = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
    norm = lambda x, name: rms_normalize(x, config["rms_norm_eps"]) * weights[f"{name}.weight"]
    yarn = config["rope_scaling"]
    frequencies = yarn_frequencies(rope, config["rope_theta"], yarn["factor"], yarn["original_max_position_embeddings"], yarn["beta_fast"],
                                   yarn["beta_slow"], True)
    mscale = lambda coefficient: 0.1 * coefficient * math.log(yarn["factor"]) + 1
    all_dim = mscale(yarn.get("mscale_all_dim", 0))
    angles = torch.arange(ids.shape[1])[:, None].float() * frequencies
    turn = torch.polar(torch.full_like(angles, mscale(yarn["mscale"]) / all_dim), angles)

    def rotate(y):  # interleaved pairs as complex numbers
        pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2)

    def attend(x, name):
        sizes = config["num_attention_heads"], nope, rope, value_dim, rank
        return latent_attend(x, lambda part: weights.get(f"{name}{part}.weight"), sizes, rotate, (nope + rope) ** -0.5 * all_dim**2)

    def mlp(x, name):
        gate, up, down = (weights[f"{name}{part}_proj.weight"] for part in ("gate", "up", "down"))
        return (nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def mixture(x, name):
        rows, count, groups = x.reshape(-1, x.shape[-1]), config["num_experts_per_tok"], config["n_group"]
        logits = rows @ weights[name + "gate.weight"].T
        is_v3 = config["model_type"] == "deepseek_v3"
        scores = logits.sigmoid() if is_v3 else logits.softmax(-1)
        choice = scores + weights[name + "gate.e_score_correction_bias"] if is_v3 else scores
        if is_v3 or config["topk_method"] == "group_limited_greedy":
            grouped = choice.view(len(rows), groups, -1)
            of_group = grouped.topk(2, -1)[0].sum(-1) if is_v3 else grouped.amax(-1)
            allowed = torch.zeros_like(of_group).scatter_(1, of_group.topk(config["topk_group"], -1)[1], 1).bool()
            choice = grouped.masked_fill(~allowed[..., None], -torch.inf).flatten(1)
        chosen = choice.topk(count, -1)[1]
        gates = scores.gather(1, chosen)
        if config["norm_topk_prob"]:
            gates = gates / (gates.sum(-1, keepdim=True) + 1e-20)
        gates = gates * config["routed_scaling_factor"]
        output = torch.stack([sum(gates[n, k] * mlp(rows[n], f"{name}experts.{int(chosen[n, k])}.") for k in range(count)) for n in range(len(rows))])
        return (output + mlp(rows, name + "shared_experts.")).view_as(x)

    x = weights["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}."
        x = x + attend(norm(x, name + "input_layernorm"), name + "self_attn.")
        layer = mlp if n < config["first_k_dense_replace"] else mixture
        x = x + layer(norm(x, name + "post_attention_layernorm"), name + "mlp.")
    return norm(x, "model.norm") @ weights["lm_head.weight"].T


def deepseek_models():
    """Chapter 19. A checkpoint of each model type, its logits beyond YaRN's original context, and greedy text."""
    C, V, heads, nope, rope, value_dim, rank, experts, width = 32, 31, 3, 6, 4, 5, 12, 6, 10
    base = {"hidden_size": C, "num_hidden_layers": 3, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": V,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
            "intermediate_size": 14, "moe_intermediate_size": width, "n_routed_experts": experts, "num_experts_per_tok": 3, "n_shared_experts": 2,
            "kv_lora_rank": rank, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": value_dim, "rope_theta": 500.0,
            "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1}
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 4.0, "beta_slow": 0.5, "mscale": 0.7,
            "mscale_all_dim": 0.9}
    configs = {"deepseek_v2": {"q_lora_rank": None, "topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": False,
                               "routed_scaling_factor": 1.5, "rope_scaling": yarn},
               "deepseek_v3": {"q_lora_rank": 9, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
                               "routed_scaling_factor": 2.5, "rope_scaling": {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0},
                               "num_nextn_predict_layers": 1}}
    torch.manual_seed(195)
    ids = torch.randint(0, V, (2, 17))
    save("19_latent_attention/ids", ids)
    draw = lambda *shape: 2 * torch.randn(*shape) * shape[-1] ** -0.5
    for name, settings in configs.items():
        config = {**base, **settings, "model_type": name}
        weights = {"model.embed_tokens.weight": draw(V, C), "model.norm.weight": torch.rand(C) * 2, "lm_head.weight": draw(V, C)}
        mlp = lambda prefix, width: {f"{prefix}gate_proj.weight": draw(width, C), f"{prefix}up_proj.weight": draw(width, C),
                                     f"{prefix}down_proj.weight": draw(C, width)}
        for n in range(4 if name == "deepseek_v3" else 3):  # the fourth is for multi-token prediction
            layer, attention = f"model.layers.{n}.", f"model.layers.{n}.self_attn."
            weights |= {f"{layer}{norm}.weight": torch.rand(C) for norm in ("input_layernorm", "post_attention_layernorm")}
            weights |= {attention + "kv_a_proj_with_mqa.weight": draw(rank + rope, C), attention + "kv_a_layernorm.weight": torch.rand(rank),
                        attention + "kv_b_proj.weight": draw(heads * (nope + value_dim), rank), attention + "o_proj.weight": draw(C, heads * value_dim)}
            if config["q_lora_rank"]:
                weights |= {attention + "q_a_proj.weight": draw(9, C), attention + "q_a_layernorm.weight": torch.rand(9),
                            attention + "q_b_proj.weight": draw(heads * (nope + rope), 9)}
            else:
                weights[attention + "q_proj.weight"] = draw(heads * (nope + rope), C)
            if n < config["first_k_dense_replace"]:
                weights |= mlp(layer + "mlp.", config["intermediate_size"])
                continue
            weights |= {layer + "mlp.gate.weight": draw(experts, C), **mlp(layer + "mlp.shared_experts.", 2 * width)}
            if name == "deepseek_v3":
                weights[layer + "mlp.gate.e_score_correction_bias"] = torch.randn(experts) - 1
            for e in range(experts):
                weights |= mlp(f"{layer}mlp.experts.{e}.", width)
        weights |= {f"model.layers.3.{key}.weight": torch.rand(C) for key in ("enorm", "hnorm")} if name == "deepseek_v3" else {}
        weights = {key: value.bfloat16() for key, value in weights.items()}
        folder = FOLDER / "19_latent_attention" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / "model.safetensors", weights)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        weights = {key: value.float() for key, value in weights.items()}
        save(f"19_latent_attention/{name}_logits", deepseek_decoder(config, weights, ids))
        greedy = ids[:1, :9]
        for _ in range(20):
            logits = deepseek_decoder(config, weights, greedy)[:, -1]
            best, second = logits[0].topk(2)[0]
            assert best - second > 1e-3  # otherwise rounding would decide
            greedy = torch.cat([greedy, logits.argmax(-1, keepdim=True)], 1)
        save(f"19_latent_attention/{name}_greedy", greedy)


def delta_layer(mixed, z, b, a, weight, sizes, eps):
    """Gated DeltaNet after its input projections, token by token: Qwen3-Next. mixed is (B, T, W): queries, keys and values of all heads.
    weight(name) is a parameter."""
    key_heads, value_heads, key_dim, value_dim = sizes
    size, seq_len, width = mixed.shape
    kernel = weight("conv1d")
    padded = nn.functional.pad(mixed.transpose(1, 2), (kernel.shape[-1] - 1, 0))
    convolved = nn.functional.silu(nn.functional.conv1d(padded, kernel.view(width, 1, -1), groups=width)).transpose(1, 2)
    parts = convolved.split([key_heads * key_dim, key_heads * key_dim, value_heads * value_dim], dim=-1)
    queries, keys, values = (part.view(size, seq_len, -1, dim) for part, dim in zip(parts, (key_dim, key_dim, value_dim)))
    unit = lambda y: (y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).repeat_interleave(value_heads // key_heads, 2)
    queries, keys = unit(queries) * key_dim**-0.5, unit(keys)
    decay = (-weight("A_log").exp() * nn.functional.softplus(a + weight("dt_bias"))).exp()
    beta, state, outputs = b.sigmoid(), torch.zeros(size, value_heads, key_dim, value_dim, dtype=mixed.dtype), []
    for t in range(seq_len):
        state = state * decay[:, t, :, None, None]
        missing = values[:, t] - torch.einsum("bhkv,bhk->bhv", state, keys[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", keys[:, t], missing * beta[:, t, :, None])
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, queries[:, t]))
    output = rms_normalize(torch.stack(outputs, 1), eps) * weight("norm") * nn.functional.silu(z.reshape(size, seq_len, value_heads, value_dim))
    return output.flatten(2) @ weight("out_proj").T


def linear_attention():
    """Chapter 20. A layer of Gated DeltaNet, in float64: output and gradients. 70 tokens are more than a chunk of 64."""
    torch.manual_seed(29)  # with seed 20, float32 gradients, also PyTorch's, have an error of 2.3e-5 without FMA
    key_heads, value_heads, key_dim, value_dim, kernel, seq_len = 2, 6, 3, 5, 4, 70
    width, value_width = 2 * key_heads * key_dim + value_heads * value_dim, value_heads * value_dim
    shapes = {"in_proj_qkv": (width, C), "in_proj_z": (value_width, C), "in_proj_b": (value_heads, C), "in_proj_a": (value_heads, C),
              "A_log": (value_heads,), "dt_bias": (value_heads,), "conv1d": (width, kernel), "norm": (value_dim,), "out_proj": (C, value_width)}
    weights = {key: torch.randn(*shape).mul(0.5).double().requires_grad_() for key, shape in shapes.items()}
    x, upstream = torch.randn(B, seq_len, C).double().requires_grad_(), torch.randn(B, seq_len, C).double()
    projected = (x @ weights[f"in_proj_{part}"].T for part in ("qkv", "z", "b", "a"))
    output = delta_layer(*projected, weights.get, (key_heads, value_heads, key_dim, value_dim), 1e-3)
    (output * upstream).sum().backward()
    for key, tensor in {**weights, "input": x}.items():
        save(f"20_linear_attention/{key}", tensor.float())
        save(f"20_linear_attention/{key}_gradient", tensor.grad.float())
    save("20_linear_attention/output", output.float())
    save("20_linear_attention/upstream", upstream.float())


def gated_convolution():
    """Chapter 20. LFM2's short convolution with biases, as PyTorch initializes it, then in float64: output and gradients."""
    torch.manual_seed(21)
    kernel, seq_len = 3, 9
    conv = nn.Conv1d(C, C, kernel, groups=C, padding=kernel - 1)
    in_proj, out_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
    weights = [tensor for layer in (in_proj, conv, out_proj) for tensor in layer.double().parameters()]
    x, upstream = torch.randn(B, seq_len, C).double().requires_grad_(), torch.randn(B, seq_len, C).double()
    input_gate, output_gate, value = in_proj(x).transpose(1, 2).chunk(3, dim=1)
    output = out_proj((output_gate * conv(input_gate * value)[..., :seq_len]).transpose(1, 2))
    (output * upstream).sum().backward()
    tensors = {"parameters": torch.cat([tensor.flatten() for tensor in weights]), "input": x, "output": output, "upstream": upstream,
               "gradients": torch.cat([tensor.grad.flatten() for tensor in weights]), "input_gradient": x.grad}
    for key, tensor in tensors.items():
        save(f"20_linear_attention/convolution_{key}", tensor.float())


def qwen3_next_decoder(config, weights, ids):
    """Logits of a qwen3_next model, in the precision of the weights, written from modeling_qwen3_next.py."""
    heads, kv_heads, head_dim, eps = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"))
    key_heads, value_heads, key_dim, value_dim = sizes = [config[f"linear_{key}"] for key in (
        "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")]
    size, seq_len = ids.shape
    norm = lambda x, name: rms_normalize(x, eps) * (1 + weights[f"{name}.weight"])
    linear = lambda x, name: x @ weights[f"{name}.weight"].T
    rotary = int(head_dim * config["partial_rotary_factor"])
    angles = torch.arange(seq_len)[:, None].float() * rotary_angles(rotary, config["rope_theta"], torch.arange(seq_len).float())[0]
    both = torch.cat((angles, angles), dim=-1).to(weights["lm_head.weight"].dtype)
    rotate = lambda y: torch.cat((y[..., :rotary] * both.cos() + rotate_half(y[..., :rotary]) * both.sin(), y[..., rotary:]), -1)
    hidden = torch.ones(seq_len, seq_len).triu(1).bool()

    def full_attention(x, name):
        queries, gate = linear(x, name + "q_proj").view(size, seq_len, heads, 2 * head_dim).chunk(2, dim=-1)
        keys, values = (linear(x, f"{name}{part}_proj").view(size, seq_len, kv_heads, head_dim) for part in "kv")
        queries, keys = rotate(norm(queries, name + "q_norm").transpose(1, 2)), rotate(norm(keys, name + "k_norm").transpose(1, 2))
        keys, values = (y.repeat_interleave(heads // kv_heads, 1) for y in (keys, values.transpose(1, 2)))
        probabilities = (queries @ keys.mT * head_dim**-0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        context = (probabilities @ values).transpose(1, 2).flatten(2)
        return linear(context * gate.flatten(2).sigmoid(), name + "o_proj")

    def linear_layer(x, name):
        ratio = value_heads // key_heads
        qkvz = linear(x, name + "in_proj_qkvz").view(size, seq_len, key_heads, -1)  # of each key head in turn
        queries, keys, values, z = qkvz.split([key_dim, key_dim, ratio * value_dim, ratio * value_dim], dim=-1)
        b, a = linear(x, name + "in_proj_ba").view(size, seq_len, key_heads, 2 * ratio).chunk(2, dim=-1)
        mixed = torch.cat([part.flatten(2) for part in (queries, keys, values)], -1)
        weight = lambda part: weights[f"{name}{part}" if part in ("A_log", "dt_bias") else f"{name}{part}.weight"]
        return delta_layer(mixed, z, b.flatten(2), a.flatten(2), weight, sizes, eps)

    def mlp(x, name):
        return linear(nn.functional.silu(linear(x, name + "gate_proj")) * linear(x, name + "up_proj"), name + "down_proj")

    def mixture(x, name):
        rows = x.reshape(-1, x.shape[-1])
        gates, chosen = linear(rows, name + "gate").softmax(-1).topk(config["num_experts_per_tok"], dim=-1)
        if config["norm_topk_prob"]:
            gates = gates / gates.sum(-1, keepdim=True)
        output = torch.stack([sum(gates[n, k] * mlp(rows[n], f"{name}experts.{int(chosen[n, k])}.") for k in range(gates.shape[1]))
                              for n in range(len(rows))])
        return (output + linear(rows, name + "shared_expert_gate").sigmoid() * mlp(rows, name + "shared_expert.")).view_as(x)

    x = weights["model.embed_tokens.weight"][ids]
    for n, kind in enumerate(config["layer_types"]):
        name = f"model.layers.{n}."
        normalized = norm(x, name + "input_layernorm")
        x = x + (linear_layer(normalized, name + "linear_attn.") if kind == "linear_attention" else full_attention(normalized, name + "self_attn."))
        layer = mlp if n in config["mlp_only_layers"] else mixture
        x = x + layer(norm(x, name + "post_attention_layernorm"), name + "mlp.")
    return norm(x, "model.norm") @ weights["lm_head.weight"].T


def qwen3_next_model():
    """Chapter 20. A checkpoint, its logits for 70 tokens, in float64, and greedy text."""
    C, V, heads, kv_heads, head_dim, key_heads, value_heads, key_dim, value_dim, experts, width = 24, 29, 4, 2, 8, 2, 4, 4, 6, 5, 7
    config = {"model_type": "qwen3_next", "hidden_size": C, "num_hidden_layers": 4, "num_attention_heads": heads, "vocab_size": V,
              "num_key_value_heads": kv_heads, "head_dim": head_dim, "max_position_embeddings": 128, "rms_norm_eps": 1e-3, "hidden_act": "silu",
              "tie_word_embeddings": False, "attention_bias": False, "intermediate_size": 11, "rope_theta": 300.0, "rope_scaling": None,
              "partial_rotary_factor": 0.5, "linear_conv_kernel_dim": 4, "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads,
              "linear_key_head_dim": key_dim, "linear_value_head_dim": value_dim, "decoder_sparse_step": 1, "mlp_only_layers": [1],
              "moe_intermediate_size": width, "shared_expert_intermediate_size": 9, "num_experts": experts, "num_experts_per_tok": 2,
              "norm_topk_prob": True, "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"]}
    # Most seeds give models whose logits move by more than 1e-5 of the largest if each weight is changed by half a unit in its last place.
    torch.manual_seed(208)
    ids = torch.randint(0, V, (2, 70))
    save("20_linear_attention/ids", ids)
    draw = lambda *shape: 2 * torch.randn(*shape) * shape[-1] ** -0.5
    mlp = lambda prefix, width: {f"{prefix}gate_proj.weight": draw(width, C), f"{prefix}up_proj.weight": draw(width, C),
                                 f"{prefix}down_proj.weight": draw(C, width)}
    weights = {"model.embed_tokens.weight": draw(V, C), "model.norm.weight": torch.rand(C) - 0.5, "lm_head.weight": draw(V, C)}
    key_width, value_width = key_heads * key_dim, value_heads * value_dim
    for n, kind in enumerate(config["layer_types"]):
        layer, full, state = (f"model.layers.{n}.{part}" for part in ("", "self_attn.", "linear_attn."))
        weights |= {f"{layer}{norm}.weight": torch.rand(C) - 0.5 for norm in ("input_layernorm", "post_attention_layernorm")}
        if kind == "full_attention":
            weights |= {full + "q_proj.weight": draw(2 * heads * head_dim, C), full + "k_proj.weight": draw(kv_heads * head_dim, C),
                        full + "v_proj.weight": draw(kv_heads * head_dim, C), full + "o_proj.weight": draw(C, heads * head_dim),
                        full + "q_norm.weight": torch.rand(head_dim) - 0.5, full + "k_norm.weight": torch.rand(head_dim) - 0.5}
        else:
            weights |= {state + "in_proj_qkvz.weight": draw(2 * key_width + 2 * value_width, C), state + "in_proj_ba.weight": draw(2 * value_heads, C),
                        state + "conv1d.weight": draw(2 * key_width + value_width, 1, 4), state + "A_log": torch.randn(value_heads) - 1,
                        state + "dt_bias": torch.randn(value_heads), state + "norm.weight": torch.rand(value_dim) + 0.5,
                        state + "out_proj.weight": draw(C, value_width)}
        if n in config["mlp_only_layers"]:
            weights |= mlp(layer + "mlp.", config["intermediate_size"])
            continue
        weights |= {layer + "mlp.gate.weight": draw(experts, C), layer + "mlp.shared_expert_gate.weight": draw(1, C),
                    **mlp(layer + "mlp.shared_expert.", config["shared_expert_intermediate_size"])}
        for e in range(experts):
            weights |= mlp(f"{layer}mlp.experts.{e}.", width)
    weights |= {"mtp.fc.weight": draw(C, 2 * C), "mtp.layers.0.input_layernorm.weight": torch.rand(C)}  # for multi-token prediction
    weights = {key: value.bfloat16() for key, value in weights.items()}
    folder = FOLDER / "20_linear_attention" / "qwen3_next"
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {key: value.double() for key, value in weights.items()}
    save("20_linear_attention/qwen3_next_logits", qwen3_next_decoder(config, weights, ids).float())
    greedy = ids[:1, :9]
    for _ in range(20):
        logits = qwen3_next_decoder(config, weights, greedy)[:, -1]
        best, second = logits[0].topk(2)[0]
        assert best - second > 1e-3  # otherwise rounding would decide
        greedy = torch.cat([greedy, logits.argmax(-1, keepdim=True)], 1)
    save("20_linear_attention/qwen3_next_greedy", greedy)


def multi_token_prediction():
    """Chapter 22. A module for a checkpoint of chapter 09: its logits of x_{t+2}, the loss, and autograd's gradients."""
    folder = FOLDER / "09_full_model" / "mistral"
    config, target = json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    C, F, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
    queries, keys = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    layer = "mtp.layers.0."
    shapes = {"mtp.pre_fc_norm_embedding.weight": (C,), "mtp.pre_fc_norm_hidden.weight": (C,), "mtp.fc.weight": (C, 2 * C),
              layer + "input_layernorm.weight": (C,), layer + "self_attn.q_proj.weight": (queries, C),
              layer + "self_attn.k_proj.weight": (keys, C), layer + "self_attn.v_proj.weight": (keys, C),
              layer + "self_attn.o_proj.weight": (C, queries), layer + "post_attention_layernorm.weight": (C,),
              layer + "mlp.gate_proj.weight": (F, C), layer + "mlp.up_proj.weight": (F, C), layer + "mlp.down_proj.weight": (C, F),
              "mtp.norm.weight": (C,)}
    torch.manual_seed(21)
    draw = lambda shape: torch.rand(shape) + 0.5 if len(shape) == 1 else torch.randn(shape) * shape[1] ** -0.5
    module = {name: draw(shape).requires_grad_() for name, shape in shapes.items()}
    ids = torch.randint(0, config["vocab_size"], (3, 7))

    # At position t: the target's hidden state after its final norm, of x_0 to x_t, and the embedding of x_{t+1}.
    normalize = lambda x, weight: rms_normalize(x, eps) * weight
    hidden = normalize(decoder(config, target, ids[:, :-2])[0][-1], target["model.norm.weight"])
    embedded = target["model.embed_tokens.weight"][ids[:, 1:-1]]
    joined = torch.cat([normalize(embedded, module["mtp.pre_fc_norm_embedding.weight"]),
                        normalize(hidden, module["mtp.pre_fc_norm_hidden.weight"])], -1)
    rows = (joined @ module["mtp.fc.weight"].T).flatten(0, 1)
    # The layer and the norm as a decoder of one layer, whose "embedding" of token n is row n.
    weights = {name.replace("mtp.", "model."): tensor for name, tensor in module.items()}
    weights |= {"model.embed_tokens.weight": rows, "lm_head.weight": target["lm_head.weight"]}
    logits = decoder({**config, "num_hidden_layers": 1}, weights, torch.arange(len(rows)).view(hidden.shape[:2]))[1]
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 2:].flatten())
    loss.backward()
    save("22_speculation/mtp_ids", ids)
    save("22_speculation/mtp_logits", logits)
    save("22_speculation/mtp_loss", loss[None])
    save("22_speculation/mtp_gradients", torch.cat([tensor.grad.flatten() for tensor in module.values()]))
    write_safetensors(FOLDER / "22_speculation/mtp.safetensors", {name: tensor.detach() for name, tensor in module.items()})


if __name__ == "__main__":
    random_numbers()
    masking()
    projections()
    head_splitting()
    rope()
    gqa()
    swiglu()
    rmsnorm_vs_layernorm()
    pre_vs_post_norm()
    full_model()
    generation()
    gradients()
    training()
    documents()
    muon()
    policy_gradient()
    fine_tuning()
    fast()
    long_context()
    long_context_models()
    dense_models()
    experts()
    mixture_models()
    latent_attention()
    deepseek_models()
    linear_attention()
    gated_convolution()
    qwen3_next_model()
    multi_token_prediction()
