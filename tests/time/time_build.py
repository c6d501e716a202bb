#!/usr/bin/env python3
"""Measures, in seconds, the edit loop of each chapter (from saving main.cpp or a lesson file to the first output), the
start of each program, and with --cold a build of everything in a new folder with the memory of the largest compiler
process. For maintainers. Usage: time_build.py BUILD_FOLDER [--cold]"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLUGS = re.findall(r"^(\d\w+) \|", (ROOT / "chapters/contents.txt").read_text(), re.M)
REPETITIONS = 3


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def first_output(program):
    with subprocess.Popen([program, "--plots", "none"], stdout=subprocess.PIPE, cwd=program.parent) as process:
        os.read(process.stdout.fileno(), 1)
        process.kill()


def edited(build, slug, file):
    """Seconds from saving a file to the program's first output: the minimum of some repetitions."""

    def loop():
        run("ninja", "-C", build, slug)
        first_output(build / slug)

    times = []
    for _ in range(REPETITIONS):
        file.touch()
        times.append(seconds(loop))
    return min(times)


def main():
    build = Path(sys.argv[1]).resolve()
    files = (file for slug in SLUGS for file in sorted((ROOT / "chapters" / slug).rglob("*.cpp")))
    (build / "edited_files").write_text("".join(f"{file.relative_to(ROOT)}\n" for file in files))  # as after a first edit
    run("cmake", build)
    run("ninja", "-C", build)
    print(f"{'chapter':26}{'main.cpp':>10}{'slowest lesson file':>32}{'start, ms':>12}")
    for slug in SLUGS:
        folder = ROOT / "chapters" / slug
        main_time = edited(build, slug, folder / "main.cpp")
        names = [file.stem for file in folder.glob("*.cpp") if file.stem not in ("main", "exercise", "solution")]
        slowest, name = max((edited(build, slug, folder / f"{name}.cpp"), name) for name in names)
        start = min(seconds(lambda: first_output(build / slug)) for _ in range(5))
        print(f"{slug:26}{main_time:10.1f}{name:>26}{slowest:6.1f}{1000 * start:12.0f}", flush=True)
    if "--cold" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja")
            cold = seconds(lambda: run("ninja", "-C", folder, "all", "tests", "exercises"))
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"cold build of everything, seconds: {cold:.0f}; largest compiler process, MB: {largest / 1024:.0f}")
    everything = sum(seconds(lambda: run(build / slug, "--plots", "none")) for slug in SLUGS if slug != "13_training")
    print(f"all programs but 13_training, seconds: {everything:.1f}")


if __name__ == "__main__":
    main()
