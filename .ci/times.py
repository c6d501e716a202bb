#!/usr/bin/env python3
"""What a run of .ci/run cost: seconds of its stages, of the slowest tests, and of all that belongs to a chapter.
Usage: times.py STAGES BUILD_FOLDER... STAGES has a line "wall processor name" a stage. The processor seconds of a step of a build
are estimated: those that run at the same time share the cores equally. Those of a test are what it says ("processor
seconds: 12.3"), or its wall-clock time."""

import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

CHAPTER = "20_linear_attention"  # one of average size, near the end of the list


def ninja_runs(build):
    """The steps of each run of Ninja in a folder: (start, end, output), in seconds. The times begin at 0 in each run."""
    runs, last = [], float("inf")
    log = build / ".ninja_log"
    lines = log.read_text().split("\n")[1:-1] if log.exists() else []
    for start, end, _, output, _ in (line.split("\t") for line in lines):
        start, end = int(start) / 1000, int(end) / 1000
        if end < last:
            runs.append([])
        last = end
        if not runs[-1] or runs[-1][-1][:2] != (start, end):  # a step with several outputs has several lines
            runs[-1].append((start, end, output))
    return runs


def processor_seconds(steps):
    """The share of the cores of each step, by its output."""
    times = sorted({time for start, end, _ in steps for time in (start, end)})
    seconds = {output: 0.0 for _, _, output in steps}
    for begin, end in zip(times, times[1:]):
        running = [output for start, stop, output in steps if start <= begin and end <= stop]
        for output in running:
            seconds[output] += (end - begin) * min(1, os.cpu_count() / len(running))
    return seconds


def tests(build):
    """The wall-clock and processor seconds of each test by name: of the run that wrote checks.xml, or of CTest's last run."""
    seconds, name, said = {}, "", None
    if (build / "checks.xml").exists():
        for case in ElementTree.parse(build / "checks.xml").iter("testcase"):
            match = re.search(r"^processor seconds: ([\d.]+)", case.findtext("system-out") or "", re.M)
            seconds[case.get("name")] = (float(case.get("time")), float(match[1] if match else case.get("time")))
        return seconds
    log = build / "Testing/Temporary/LastTest.log"
    for line in log.read_text(errors="replace").split("\n") if log.exists() else []:
        if match := re.match(r"\d+/\d+ Test: (.*)", line):
            name, said = match[1], None
        elif match := re.match(r"processor seconds: ([\d.]+)", line):
            said = float(match[1])
        elif match := re.match(r"Test time = +([\d.]+) sec", line):
            seconds[name] = (float(match[1]), float(match[1]) if said is None else said)
    return seconds


def main():
    stages, builds = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    print(f"\n{'stage':58}{'wall, s':>10}{'processor, s':>14}")
    total = [0, 0]
    for line in stages.read_text().split("\n")[:-1]:
        wall, processor, name = line.split(" ", 2)
        total = [total[0] + int(wall), total[1] + int(processor)]
        print(f"{name:58}{wall:>10}{processor:>14}")
    print(f"{'sum':58}{total[0]:10}{total[1]:14}")

    steps = [(build, output, seconds) for build in builds for run in ninja_runs(build)
             for output, seconds in processor_seconds(run).items()]
    all_tests = [(build, name, *seconds) for build in builds for name, seconds in tests(build).items()]
    print("\nslowest tests, s")
    for build, name, wall, _ in sorted(all_tests, key=lambda test: -test[2])[:15]:
        print(f"{wall:8.1f}  {name}{'' if build.name == 'build' else f' ({build.name})'}")
    print("\nslowest steps of a build, estimated processor s")
    for build, output, seconds in sorted(steps, key=lambda step: -step[2])[:15]:
        print(f"{seconds:8.1f}  {build.name}/{output}")

    number = CHAPTER[:2]
    belongs = re.compile(rf"{CHAPTER}|test_{number}_")
    parts = [("build, " + build.name, sum(s for b, output, s in steps if b == build and belongs.search(output))) for build in builds]
    parts.append(("tests", sum(test[3] for test in all_tests if re.match(CHAPTER, test[1]))))
    parts += [(test[1], test[3]) for test in all_tests if CHAPTER in test[1] and not re.match(CHAPTER, test[1])]
    print(f"\nprocessor seconds of chapter {CHAPTER}")
    for name, seconds in parts:
        print(f"{seconds:8.1f}  {name}")
    print(f"{sum(seconds for _, seconds in parts):8.1f}  sum")


if __name__ == "__main__":
    main()
