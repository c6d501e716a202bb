"""What the references of tests/make/families share: norms, rotations, attention, and random weights. Written from the papers and the
published modeling files; no code of this project is used."""

import math

import torch
from torch.nn import functional


def draw(*shape):
    """Random weights of a matrix (out, in), twice as large as usual: small models would echo their input."""
    return 2 * torch.randn(*shape) * shape[-1] ** -0.5


def rms_norm(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def linear(weights, x, name):
    """y = x Wᵀ, plus the bias if there is one."""
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)


def inverse_frequencies(rotary_dim, theta):
    return theta ** (-torch.arange(0, rotary_dim, 2).float() / rotary_dim)


def yarn(rotary_dim, theta, factor, original, beta_fast=32, beta_slow=1, truncate=True):
    """Frequencies and the factor of cosine and sine: "YaRN" (Peng et al., 2023)."""
    find = lambda rotations: rotary_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
    low, high = find(beta_fast), find(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    ramp = ((torch.arange(rotary_dim // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = inverse_frequencies(rotary_dim, theta)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1


def rotate(x, frequencies, interleaved=False, factor=1.0):
    """RoPE of the first 2 · len(frequencies) features of each head; x: (B, H, T, D), positions 0 to T - 1."""
    count = 2 * len(frequencies)
    x, rest = x[..., :count], x[..., count:]
    angles = torch.arange(x.shape[-2]).float()[:, None] * frequencies
    cos, sin = factor * angles.cos(), factor * angles.sin()
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    pair = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat([turned, rest], -1)


def split_heads(x, count):
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def attend(queries, keys, values, scale, window=None, sinks=None):
    """Causal attention of (B, H, T, D) queries and (B, Hkv, T, D) keys and values: (B, T, H * D). window: keys that a query sees, its own
    included. sinks: one logit a head, which takes part in the softmax and has no value."""
    groups, seq_len = queries.shape[1] // keys.shape[1], queries.shape[2]
    keys, values = (x.repeat_interleave(groups, 1) for x in (keys, values))
    distance = torch.arange(seq_len)[:, None] - torch.arange(seq_len)
    hidden = (distance < 0) | (distance >= (window or seq_len))
    scores = (queries @ keys.mT * scale).masked_fill(hidden, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    context = scores.softmax(-1)[..., :seq_len] @ values
    return context.transpose(1, 2).flatten(2)


def gated_mlp(weights, x, name, activation=functional.silu):
    return linear(weights, activation(linear(weights, x, f"{name}.gate_proj")) * linear(weights, x, f"{name}.up_proj"), f"{name}.down_proj")
