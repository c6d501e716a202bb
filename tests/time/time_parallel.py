#!/usr/bin/python3
"""Compares a training step on 2 ranks of 1 thread with one process of 2 threads, and with PyTorch's
DistributedDataParallel, in turns. For maintainers; needs build/bench_parallel. Usage: time_parallel.py [ROUNDS]"""

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none"}
COMMANDS = {
    "one process, 2 threads": [ROOT / "build/bench_parallel"],
    "2 ranks, 1 thread each": ["mpirun", "-q", "-n", "2", ROOT / "build/bench_parallel"],
    "PyTorch DDP, 2 ranks": ["/usr/bin/python3", ROOT / "tests/time/time_ddp.py", "2", "1"],
}


def run(command):
    output = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output, float(re.search(r"milliseconds of a step: ([\d.]+)", output)[1])


if __name__ == "__main__":
    times = {name: [] for name in COMMANDS}
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for name, command in COMMANDS.items():
            output, milliseconds = run(command)
            times[name].append(milliseconds)
            if name.startswith("2 ranks"):
                print(output)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours = medians["2 ranks, 1 thread each"]
    for name, milliseconds in medians.items():
        print(f"{name}: {milliseconds:.1f} ms a step, {milliseconds / ours:.2f} of ours on 2 ranks  {times[name]}")
