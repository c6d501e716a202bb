#!/usr/bin/python3
"""Measures training steps of PyTorch at the default sizes of chapter 13. For maintainers; needs Debian's python3-torch.

time_training.py            prints, for ./learn bench, lines of seconds per step, number of threads, and name of the sizes
time_training.py TEXT_FILE  prints tokens per second of PyTorch and of chapter 13's program, which trains on that file"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "make"))
from make_fixtures import decoder, init_decoder

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6,
          "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": True}
NAMES_CONFIG = {**CONFIG, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 3,
                "num_attention_heads": 4, "head_dim": 16, "vocab_size": 27}
# A step's configuration, sequences (all in one batch) and tokens of each.
SIZES = {"king_james": (CONFIG, 8, 256), "names": (NAMES_CONFIG, 32, 32)}
STEPS = 6


def pytorch(threads, name="king_james"):
    """Trains a decoder of PyTorch's basic operations; returns the seconds of each step but the first."""
    config, batch_size, seq_len = SIZES[name]
    torch.set_num_threads(threads)
    seconds = []
    weights = init_decoder(config, lambda out, into, embedding=False: torch.randn(out, into) * 0.02)
    weights = {name: tensor.requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-3)
    for step in range(STEPS + 1):
        begin = time.perf_counter()
        ids = torch.randint(0, config["vocab_size"], (batch_size, seq_len + 1))
        optimizer.zero_grad()
        logits = decoder(config, weights, ids[:, :-1])[1]
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        if step > 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def ours(text):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "build/train", "--text", text, "--steps", "12", "--plots", "none", "--folder", folder]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"speed: ([\d,]+) tokens", output)[1].replace(",", ""))


if __name__ == "__main__":
    thread_counts = sorted({1, os.cpu_count()})
    if len(sys.argv) == 1:
        for name in SIZES:
            for threads in thread_counts:
                for seconds in pytorch(threads, name):
                    print(seconds, f"threads: {threads}", name, sep="\t")
        sys.exit()
    tokens = STEPS * SIZES["king_james"][1] * SIZES["king_james"][2]
    theirs = {threads: tokens / sum(pytorch(threads)) for threads in thread_counts}
    own = ours(sys.argv[1])
    for threads, speed in theirs.items():
        print(f"PyTorch {torch.__version__}, threads: {threads}: {speed:.0f} tokens per second")
    print(f"chapter 13: {own:.0f} tokens per second, {own / max(theirs.values()):.2f} times as fast")
