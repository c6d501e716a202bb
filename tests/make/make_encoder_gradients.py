#!/usr/bin/python3
"""Writes the gradients of the classifiers among the encoders of make_encoder_fixtures.py, of the cross-entropy of three labels, computed by
PyTorch's autograd from the checkpoints in tests/fixtures/models. A tool for maintainers."""

import json
import struct

import numpy
import torch
from torch.nn import functional

import make_encoder_fixtures as encoders
from make_fixtures import FOLDER, save, write_safetensors

LABELS = torch.tensor([2, 0, 1])


def read_safetensors(file):
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.float32)
            tensors[name] = values.reshape(entry["shape"]).clone().requires_grad_()
    return tensors


def fixture(name):
    return torch.from_numpy(numpy.load(FOLDER / "25_encoders" / f"{name}.npy"))


def bert_layer_gradients(encoder):
    """torch.nn.TransformerEncoder has copies of BERT's tensors: their gradients under BERT's names."""
    gradients = {}
    for n, layer in enumerate(encoder.layers):
        parts = {"attention.output.dense": layer.self_attn.out_proj, "attention.output.LayerNorm": layer.norm1, "output.LayerNorm": layer.norm2,
                 "intermediate.dense": layer.linear1, "output.dense": layer.linear2}
        for end in ("weight", "bias"):
            projections = getattr(layer.self_attn, f"in_proj_{end}").grad.chunk(3)
            gradients |= {f"bert.encoder.layer.{n}.attention.self.{part}.{end}": gradient
                          for part, gradient in zip(("query", "key", "value"), projections)}
            gradients |= {f"bert.encoder.layer.{n}.{part}.{end}": getattr(module, end).grad for part, module in parts.items()}
    return gradients


if __name__ == "__main__":
    made = []
    original = encoders.bert_encoder
    encoders.bert_encoder = lambda *arguments: made.append(original(*arguments)) or made[-1]
    ids, mask, types = fixture("input_ids").long(), fixture("padding_mask").bool(), fixture("token_type_ids").long()
    for name in ("bert_classifier", "modernbert_mean", "modernbert_cls"):
        folder = FOLDER / "models" / name
        weights, config = read_safetensors(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
        outputs = encoders.bert_outputs if name.startswith("bert") else encoders.modernbert_outputs
        loss = functional.cross_entropy(outputs(weights, ids, mask, types, config)["logits"], LABELS)
        loss.backward()
        gradients = {key: tensor.grad for key, tensor in weights.items() if tensor.grad is not None}
        if name.startswith("bert"):
            gradients |= bert_layer_gradients(made[-1])
        assert gradients.keys() == weights.keys()
        write_safetensors(FOLDER / "models" / f"{name}_gradient.safetensors", gradients)
        save(f"models/{name}_loss", loss.detach()[None])
