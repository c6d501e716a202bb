#!/usr/bin/env python3
"""The lowest and highest losses of several runs with different seeds, by step. A tool for maintainers. To run it:

    python3 tests/make/make_run_bands.py RUN... > assets/is_my_run_normal/NAME.csv

A RUN is the log.jsonl of ./learn train (its training loss becomes the mean of the last 20 steps, at step 20 and every
50 steps), or a file with the output of ./learn fine_tune. Steps that not all runs have are left out."""
import json
import re
import sys
from pathlib import Path


def of_log(lines):
    """{step: {name: value}} of a log.jsonl."""
    records = [json.loads(line) for line in lines]
    losses = {record["step"]: record["loss"] for record in records if "loss" in record}
    values = {}
    for step in losses:
        if step == 20 or step % 50 == 0:
            values[step] = {"training": sum(losses[i] for i in range(step - 19, step + 1)) / 20}
    for record in records:
        if "validation_loss" in record and record["step"] in values:
            values[record["step"]]["validation"] = record["validation_loss"]
    return values


def of_output(lines):
    """{step: {name: value}} of lines such as "step 125: loss 0.737, gradient norm 0.544, 424 s left"."""
    values = {}
    for line in lines:
        if found := re.match(r"step (\d+): (.*), \d+ s left", line):
            parts = [part.rsplit(" ", 1) for part in found[2].split(", ")]
            values[int(found[1])] = {name: float(value) for name, value in parts}
    return values


def main():
    runs = []
    for file in sys.argv[1:]:
        lines = Path(file).read_text().splitlines()
        runs.append(of_log(lines) if file.endswith(".jsonl") else of_output(lines))
    steps = [step for step in runs[0] if all(step in run for run in runs)]
    names = list(dict.fromkeys(name for step in steps for name in runs[0][step]))
    print(",".join(["step", *(f"{name} {end}" for name in names for end in ("low", "high"))]))
    for step in steps:
        fields = [str(step)]
        for name in names:
            values = [run[step][name] for run in runs if name in run[step]]
            fields += [f"{min(values):.3f}", f"{max(values):.3f}"] if len(values) == len(runs) else ["", ""]
        print(",".join(fields))


if __name__ == "__main__":
    main()
