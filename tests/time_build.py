#!/usr/bin/env python3
"""The edit loop, the start of each chapter, and with --cold a build of everything in a new folder: seconds, and the
memory of the largest compiler. For maintainers. Usage: time_build.py BUILD_FOLDER [--cold]"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLUGS = re.findall(r"^chapter\((\w+).*\)$", (ROOT / "CMakeLists.txt").read_text(), re.M)
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
    """Seconds from saving a file to the program's first output: the fastest of some."""

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
    run("ninja", "-C", build)
    print(f"{'chapter':26}{'main.cpp':>10}{'lesson':>10}{'start, ms':>12}")
    for slug in SLUGS:
        folder = ROOT / "chapters" / slug
        times = [edited(build, slug, folder / name) for name in ("main.cpp", f"{slug[3:]}.cpp")]
        start = min(seconds(lambda: first_output(build / slug)) for _ in range(5))
        print(f"{slug:26}{times[0]:10.1f}{times[1]:10.1f}{1000 * start:12.0f}", flush=True)
    if "--cold" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja")
            cold = seconds(lambda: run("ninja", "-C", folder, "all", "tests", "exercises"))
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"everything from nothing, seconds: {cold:.0f}; largest compiler, MB: {largest / 1024:.0f}")
    everything = sum(seconds(lambda: run(build / slug, "--plots", "none")) for slug in SLUGS if slug != "13_training")
    print(f"all chapters but 11, seconds: {everything:.1f}")


if __name__ == "__main__":
    main()
