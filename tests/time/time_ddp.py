#!/usr/bin/python3
"""Prints the milliseconds of a training step of PyTorch's DistributedDataParallel on 2 processes (gloo), at the default
sizes of ./learn train. For maintainers; needs Debian's python3-torch. Usage: time_ddp.py NUM_RANKS NUM_THREADS"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from time_training import SIZES, decoder, init_decoder

STEPS = 15


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        weights = init_decoder(config, lambda out, into, embedding=False: torch.randn(out, into) * 0.02)
        self.names = list(weights)
        self.weights = nn.ParameterList(nn.Parameter(weights[name]) for name in self.names)

    def forward(self, ids):
        return decoder(self.config, dict(zip(self.names, self.weights)), ids)[1]


def train(rank, num_ranks, num_threads):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.set_num_threads(num_threads)
    dist.init_process_group("gloo", rank=rank, world_size=num_ranks)
    torch.manual_seed(0)
    config, batch_size, seq_len = SIZES["king_james"]
    model = nn.parallel.DistributedDataParallel(Decoder(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seconds = []
    for step in range(STEPS + 1):
        dist.barrier()
        begin = time.perf_counter()
        ids = torch.randint(0, config["vocab_size"], (batch_size // num_ranks, seq_len + 1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        dist.barrier()
        if step > 0:
            seconds.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"milliseconds of a step: {1000 * statistics.median(seconds):.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, threads = int(sys.argv[1]), int(sys.argv[2])
    mp.spawn(train, args=(ranks, threads), nprocs=ranks)
