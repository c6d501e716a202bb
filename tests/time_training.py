#!/usr/bin/python3
"""Measures the training speed, in tokens per second, of PyTorch and of chapter 13's program with the same sizes. For
maintainers; needs Debian's python3-torch. Usage: time_training.py TEXT_FILE"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from make_fixtures import decoder, init_decoder

ROOT = Path(__file__).resolve().parent.parent
CONFIG = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6,
          "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": True}
BATCH_SIZE, SEQ_LEN, STEPS = 8, 256, 6


def pytorch(threads):
    """Trains a decoder of PyTorch's basic operations. The first step is not measured."""
    torch.set_num_threads(threads)
    weights = init_decoder(CONFIG, lambda out, into, embedding=False: torch.randn(out, into) * 0.02)
    weights = {name: tensor.requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3)
    for step in range(STEPS + 1):
        if step == 1:
            begin = time.perf_counter()
        ids = torch.randint(0, CONFIG["vocab_size"], (BATCH_SIZE, SEQ_LEN + 1))
        optimizer.zero_grad()
        logits = decoder(CONFIG, weights, ids[:, :-1])[1]
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
    return STEPS * BATCH_SIZE * SEQ_LEN / (time.perf_counter() - begin)


def ours(text):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "build/13_training", "--text", text, "--steps", "12", "--plots", "none", "--folder", folder]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"speed: ([\d,]+) tokens", output)[1].replace(",", ""))


if __name__ == "__main__":
    theirs = {threads: pytorch(threads) for threads in sorted({1, os.cpu_count()})}
    own = ours(sys.argv[1])
    for threads, speed in theirs.items():
        print(f"PyTorch {torch.__version__}, threads: {threads}: {speed:.0f} tokens per second")
    print(f"chapter 13: {own:.0f} tokens per second, {own / max(theirs.values()):.2f} times as fast")
