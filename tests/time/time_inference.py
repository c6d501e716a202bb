#!/usr/bin/python3
"""Times PyTorch for ./learn bench, which calls this: a prefill of 512 tokens, and a decode step after 0, 256 and
1024 tokens. Reads weights and expected logits from a folder. Prints a line for each call: seconds, a tab, the
options, a tab, the name of the benchmark. Needs python3-torch."""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[1] / "make"))
from make_fixtures import read_safetensors, rotary_angles, rotate_half

REPETITIONS = 3


class Decoder:
    """A decoder with a KV cache, written with PyTorch's basic operations like Hugging Face's eager attention."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_safetensors(folder / "model.safetensors")

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.weights[f"{name}.weight"]

    def linear(self, x, name):
        return F.linear(x, self.weights[f"{name}.weight"])

    def __call__(self, ids, cache, logits_to_keep=1):
        """Returns the logits of the last tokens (0: of all) and the updated cache: keys and values of each layer."""
        width, heads = self.config["head_dim"], self.config["num_attention_heads"]
        length, start = ids.shape[1], cache[0][0].shape[2] if cache else 0
        angles = rotary_angles(width, self.config["rope_theta"], torch.arange(start, start + length))[1]
        angles = torch.cat((angles, angles), -1)
        rotate = lambda x, cos=angles.cos(), sin=angles.sin(): x * cos + rotate_half(x) * sin
        mask = torch.triu(torch.full((length, start + length), -torch.inf), diagonal=1 + start)
        x, new_cache = F.embedding(ids, self.weights["model.embed_tokens.weight"]), []
        for n in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{n}."
            h = self.norm(x, name + "input_layernorm")
            q, k, v = (self.linear(h, f"{name}self_attn.{c}_proj").view(1, length, heads, width).transpose(1, 2) for c in "qkv")
            q, k = rotate(q), rotate(k)
            if cache:
                k, v = torch.cat((cache[n][0], k), 2), torch.cat((cache[n][1], v), 2)
            new_cache.append((k, v))
            scores = q @ k.transpose(-1, -2) / width**0.5
            weights = torch.softmax(scores + mask if length > 1 else scores, -1)
            x = x + self.linear((weights @ v).transpose(1, 2).reshape(1, length, -1), name + "self_attn.o_proj")
            h = self.norm(x, name + "post_attention_layernorm")
            gated = F.silu(self.linear(h, name + "mlp.gate_proj")) * self.linear(h, name + "mlp.up_proj")
            x = x + self.linear(gated, name + "mlp.down_proj")
        last = self.norm(x[:, -logits_to_keep:], "model.norm")
        return F.linear(last, self.weights["model.embed_tokens.weight"]), new_cache


def measure(name, options, function):
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        function()
        print(time.perf_counter() - begin, options, name, sep="\t")


def measure_all(folder):
    decoder = Decoder(folder)
    ids = torch.arange(1025)[None] * 7919 % decoder.config["vocab_size"]
    expected = read_safetensors(folder / "logits")["logits"]
    difference = (decoder(ids[:, :512], [], 0)[0][0] - expected).abs().max().item()
    print(difference, "", "largest difference", sep="\t")
    caches = {position: decoder(ids[:, :position], [])[1] if position else [] for position in (0, 256, 1024)}
    for threads in sorted({1, os.cpu_count()}):
        torch.set_num_threads(threads)
        options = f"{threads} threads, OpenBLAS: {os.environ.get('OPENBLAS_NUM_THREADS', '')}"
        measure("prefill 512", options, lambda: decoder(ids[:, :512], []))
        for position, cache in caches.items():
            measure(f"decode at {position}", options, lambda: decoder(ids[:, position:position + 1], cache))


if __name__ == "__main__":
    with torch.no_grad():
        measure_all(Path(sys.argv[1]))
