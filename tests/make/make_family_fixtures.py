#!/usr/bin/python3
"""Writes tests/fixtures/models/NAME of the families in tests/make/families: a small checkpoint, its logits and its greedy text, computed with
PyTorch from the published behavior. A tool for maintainers, as make_fixtures.py: make_family_fixtures.py [FILE ...].

Each file there has `seed`, `models()`, a dict of name -> (config, weights), and `logits(config, weights, ids)`. Weights have the names of
Hugging Face's files and are stored in bfloat16. All sizes differ; texts are longer than every window, chunk and convolution."""

import importlib
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_fixtures import FOLDER, load_ids, save, write_safetensors  # noqa: E402


def save_model(name, config, weights, logits):
    """The greedy text has 30 tokens after the first nine."""
    weights = {key: value.bfloat16() for key, value in weights.items()}
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {key: value.float() for key, value in weights.items()}
    ids = load_ids()
    save(f"models/{name}_logits", logits(config, weights, ids))
    greedy = ids[:1, :9]
    for _ in range(30):
        last = logits(config, weights, greedy)[:, -1]
        best, second = last[0].topk(2)[0]
        assert best - second > 1e-3, f"{name}: rounding would decide; choose another seed"
        greedy = torch.cat([greedy, last.argmax(-1, keepdim=True)], 1)
    save(f"models/{name}_greedy", greedy)


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent / "families"
    for file in sys.argv[1:] or sorted(path.stem for path in folder.glob("*.py") if path.stem != "common"):
        family = importlib.import_module(f"families.{file}")
        torch.manual_seed(family.seed)
        for name, (config, weights) in family.models().items():
            save_model(name, config, weights, family.logits)
