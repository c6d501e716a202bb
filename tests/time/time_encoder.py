#!/usr/bin/python3
"""Times PyTorch for ./learn bench, which calls this: the vectors of a text of 512 tokens by a ModernBERT. Reads weights
and expected vectors from a folder. Prints a line for each call: seconds, a tab, the options, a tab, the name of the
benchmark. Needs python3-torch."""

import json
import os
import sys
from pathlib import Path

import torch
from torch.nn import functional as F
from time_inference import measure

sys.path.append(str(Path(__file__).resolve().parents[1] / "make"))
from make_fixtures import read_safetensors, rotary_angles, rotate_half


class ModernBert:
    """A ModernBERT, written with PyTorch's basic operations like Hugging Face's eager attention."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        tensors = read_safetensors(folder / "model.safetensors")
        self.weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
        self.width = self.config["hidden_size"] // self.config["num_attention_heads"]

    def linear(self, x, name):
        return F.linear(x, self.weights[f"{name}.weight"])

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], eps=self.config["norm_eps"])

    def rotation(self, theta, length):
        angles = rotary_angles(self.width, theta, torch.arange(length))[1]
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()

    def attention(self, x, name, rotation, mask):
        length, (cos, sin) = x.shape[1], rotation
        q, k, v = self.linear(x, f"{name}.Wqkv").view(1, length, 3, -1, self.width).permute(2, 0, 3, 1, 4)
        q, k = (y * cos + rotate_half(y) * sin for y in (q, k))
        weights = torch.softmax(q @ k.transpose(-1, -2) * self.width**-0.5 + mask, -1)
        return self.linear((weights @ v).transpose(1, 2).reshape(x.shape), f"{name}.Wo")

    def __call__(self, ids):
        config, position = self.config, torch.arange(ids.shape[1])
        distances = (position[:, None] - position).abs()
        full = self.rotation(config["global_rope_theta"], len(position)), torch.zeros(len(position), len(position))
        windowed = (self.rotation(config["local_rope_theta"], len(position)),
                    torch.zeros_like(full[1]).masked_fill(distances > config["local_attention"] // 2, -torch.inf))
        x = self.norm(F.embedding(ids, self.weights["embeddings.tok_embeddings.weight"]), "embeddings.norm")
        for n in range(config["num_hidden_layers"]):
            name = f"layers.{n}"
            inputs = full if n % config["global_attn_every_n_layers"] == 0 else windowed
            x = x + self.attention(self.norm(x, f"{name}.attn_norm") if n else x, f"{name}.attn", *inputs)
            gated, factors = self.linear(self.norm(x, f"{name}.mlp_norm"), f"{name}.mlp.Wi").chunk(2, -1)
            x = x + self.linear(F.gelu(gated) * factors, f"{name}.mlp.Wo")
        return self.norm(x, "final_norm")


def measure_all(folder):
    model, expected = ModernBert(folder), read_safetensors(folder / "vectors")["vectors"]
    ids = torch.arange(len(expected))[None] * 7919 % model.config["vocab_size"]
    print((model(ids)[0] - expected).abs().max().item(), "", "largest difference", sep="\t")
    for threads in sorted({1, os.cpu_count()}):
        torch.set_num_threads(threads)
        options = f"{threads} threads, OpenBLAS: {os.environ.get('OPENBLAS_NUM_THREADS', '')}"
        measure("encoder 512", options, lambda: model(ids))


if __name__ == "__main__":
    with torch.no_grad():
        measure_all(Path(sys.argv[1]))
