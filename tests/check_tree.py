#!/usr/bin/env python3
"""Checks the rules of the tree that no compiler checks. Usage: check_tree.py BUILD_FOLDER"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLUGS = re.findall(r"^chapter\((\w+).*\)$", (ROOT / "CMakeLists.txt").read_text(), re.M)
problems = []


def files(*folders):
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.[ch]pp"))]


def complain(file, text):
    problems.append(f"{file.relative_to(ROOT)}: {text}")


def chapters_are_complete():
    for slug in SLUGS:
        topic = slug[3:]
        for name in (f"{topic}.hpp", f"{topic}.cpp", "main.cpp", "exercise.hpp", "exercise.cpp", "solution.cpp"):
            if not (ROOT / "chapters" / slug / name).exists():
                complain(ROOT / "chapters" / slug, f"lacks {name}")
        for name in (f"tests/test_{slug}.cpp", f"tests/exercise_{slug}.cpp", f"docs/{slug}.md"):
            if not (ROOT / name).exists():
                complain(ROOT, f"chapter {slug} lacks {name}")
        if not list((ROOT / "assets").glob(f"{slug}_*")):
            complain(ROOT / "assets", f"has no figure of {slug}")
    folders = sorted(folder.name for folder in (ROOT / "chapters").iterdir())
    if folders != sorted(SLUGS):
        complain(ROOT / "chapters", f"holds {folders}, CMakeLists.txt lists {SLUGS}")


def includes_point_backward():
    for file in files("chapters", "common"):
        own = file.relative_to(ROOT).parts[1] if file.relative_to(ROOT).parts[0] == "chapters" else ""
        for name in re.findall(r'^#include ["<](.*)[">]', file.read_text(), re.M):
            if name.startswith("chapters/") and name.split("/")[1] > own:
                complain(file, f"includes a later chapter: {name}")
            if own and re.match(r"(xtensor(-blas)?|xtl|fmt|CLI|nlohmann|doctest|tests)/|unistd|sys/|csignal|cstdio|future|mutex|filesystem|.*stream|thread", name):
                complain(file, f"includes {name}, which belongs into common/")
            if not own and file.suffix == ".hpp" and re.match(r"(fmt|CLI|nlohmann)/", name):
                complain(file, f"includes {name}, which belongs into a .cpp file")


def every_test_can_run(build):
    """doctest passes a title with ; or * to nobody, and CTest then calls it green."""
    titles = 0
    for file in sorted((ROOT / "tests").glob("test_*.cpp")):
        found = re.findall(r'TEST_CASE\(\s*"(.*)"\)', file.read_text())
        titles += len(found)
        for title in found:
            if re.search(r"[;*\[\]\\]", title):
                complain(file, f"a title CTest cannot run: {title}")
        count = subprocess.run([build / file.stem, "--count"], check=True, stdout=subprocess.PIPE, text=True).stdout
        if f"filters: {len(found)}\n" not in count:
            complain(file, f"has {len(found)} titles, doctest counts: {count.strip()}")
    listing = subprocess.run(["ctest", "-N", "-LE", "maintainer"], cwd=build, check=True, stdout=subprocess.PIPE, text=True)
    if not re.search(rf"^Total Tests: {titles}$", listing.stdout, re.M):
        complain(ROOT / "tests", f"there are {titles} titles, CTest knows {listing.stdout.split()[-1]} tests")


def nothing_names_a_machine():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    for name in filter(None, names):
        text = (ROOT / name).read_bytes()
        for pattern in (rb"/home/\w", rb"/root/", rb"/work/", rb"/Users/\w"):
            if name != "tests/check_tree.py" and re.search(pattern, text):
                complain(ROOT / name, f"holds a path of some machine: {pattern.decode()}")
        if name.endswith((".cpp", ".hpp", ".py")) and "exercise" not in name and re.search(rb"TODO|FIXME", text):
            if name != "tests/check_tree.py":
                complain(ROOT / name, "holds a TODO")


def main():
    build = Path(sys.argv[1])
    chapters_are_complete()
    includes_point_backward()
    every_test_can_run(build)
    nothing_names_a_machine()
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
