#!/usr/bin/env python3
"""Which checks a change can have touched. .ci/proved names a commit at which .ci/run full passed; a check whose inputs
have not changed since then runs in one of three runs only, by the number of commits.

Usage: affected.py BUILD_FOLDER [FILE...]
BUILD_FOLDER is a finished build of Clang, whose Ninja knows the inputs. With files, these are taken as those that have changed,
and no check is in rotation. Writes BUILD_FOLDER/left_out, a check a line: a name of CTest, sanitized.NAME for a test of the
build with sanitizers, or fuzzing. Prints how many are left out, and why.

A file that no rule below knows touches everything: scripts, settings of the build, data, checks."""

import functools
import itertools
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What touches only checks that always run: the website and texts beside the pages.
HARMLESS = re.compile(r"docs/\.vitepress/.*|findings/.*|\.ci/proved|assets/[^/]*\.svg")
PAGE = re.compile(r"README\.md|docs/\w+\.md")
SOURCE = re.compile(r"(chapters|common|tests)/.*\.[ch]pp")
# The other programs that a check of a program runs.
WITH_WORDS = dict.fromkeys(("01_masking", "02_projections", "03_head_splitting", "05_gqa"), {"11_generation"})
READERS = {"09_full_model", "11_generation"}
ALSO_RUNS = {**WITH_WORDS, "11_generation": {"09_full_model"}, "13_training": {"train", *READERS}, "train": READERS,
             "chat": {"16_quantization", "17_long_context"}, "fine_tune": {"train", "model", "chat", *READERS},
             "experiment": {"model"}}
# Checks that read all pages.
READ_PAGES = {"maintainer.program.ask", "maintainer.program.chat", "maintainer.program.train", "sanitized.ask"}


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def changed_files():
    """The files that differ from the commit that is proved, and that commit; (None, why) if all checks must run."""
    record = ROOT / ".ci/proved"
    commit = record.read_text().split()[0] if record.exists() else ""
    known = commit and subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT,
                                      stderr=subprocess.DEVNULL).returncode == 0
    if not known:
        return None, "no commit before this one is proved"
    files = output_of("git", "diff", "--name-only", commit) + output_of("git", "ls-files", "-o", "--exclude-standard")
    return set(files.split("\n")) - {""}, commit


class Inputs:
    """The files of the tree that a target of a build is made from: those that Ninja's rules name, and those that the
    compiler has read."""

    def __init__(self, build):
        self.build, self.read = build, {}
        output = ""
        for line in output_of("ninja", "-C", str(build), "-t", "deps").split("\n"):
            if line.startswith("    "):
                self.read[output].add(self.in_tree(line.strip()))
            elif line:
                output = line.split(":")[0]
                self.read[output] = set()
        targets = output_of("ninja", "-C", str(build), "-t", "targets", "all")
        self.executables = set(re.findall(r"^(\w+): CXX_EXECUTABLE", targets, re.M))

    @functools.cache
    def in_tree(self, path):
        """The path in the tree, or an empty one of a file elsewhere."""
        path = os.path.relpath(self.build / path, ROOT)
        return "" if path.startswith("..") else path

    @functools.cache
    def of(self, target):
        names = output_of("ninja", "-C", str(self.build), "-t", "inputs", target).split("\n")
        for name in names:
            if name.endswith(".cpp.o") and name not in self.read:
                sys.exit(f"affected.py: {name} is not built, so that its inputs are not known")
        return {self.in_tree(name) for name in names}.union(*(self.read.get(name, ()) for name in names)) - {""}

    def of_object(self, stem):
        """What was read for the objects of a file of this name."""
        return set().union(*(files for name, files in self.read.items() if name.endswith(f"/{stem}.cpp.o")))


def targets_of_page(page, executables):
    """What the commands of a page build, or None if one of them can need anything."""
    targets, inside = set(), False
    slugs = {name[:2]: name for name in executables if re.match(r"\d\d_", name)}
    for line in page.read_text().split("\n"):
        inside ^= line.startswith("```")
        for command in re.findall(r"\./learn\b([^|#`>;&]*)", line) if inside or "<!--" in line else []:
            words = re.sub(r"--\S+ [\d.]+", "", command).split()  # without values of options
            numbers = {slugs.get(f"{int(word):02}") for word in words if word.isdigit()} - {None}
            if not numbers and (not words or words[0] not in {*executables, "read", "map"}):
                return None
            for slug in numbers:
                targets |= {slug, f"exercise_{slug}", f"test_{slug}", f"test_{slug}_in_double"} & executables
            targets |= {word for word in words[:1] if word in executables}
        if inside and re.match(r"(\$ )?(cmake|ctest|build/|python3|\.ci|tests/)", line):
            return None
    return targets


def touched(check, files, inputs):
    """Can the change have touched the check?"""
    sources = {file for file in files if SOURCE.fullmatch(file)}
    pages = {file for file in files if PAGE.fullmatch(file)}
    rest = {file for file in files - sources - pages if not HARMLESS.fullmatch(file)}
    kind, _, name = check.removeprefix("maintainer.").partition(".")
    page = "README.md" if name == "README" else "docs/anatomy.md" if name == "models" else f"docs/{name}.md"
    if rest or (kind != "sanitized" and page in pages) or (pages and check in READ_PAGES):
        return True
    if kind == "sanitized":
        targets = {name if name in {"model", "fine_tune"} else f"test_{name}"}
    elif kind == "fuzzing":
        targets = {"model"}
    elif kind == "program" and name != "learn":
        targets = {name} | ALSO_RUNS.get(name, set())
    elif kind == "exercises" and f"exercise_{name}" in inputs.executables:
        targets = {f"exercise_{name}", f"solution_{name}"}
    elif kind == "page":
        targets = targets_of_page(ROOT / page, inputs.executables)
        if targets is None or (pages and "ask" in targets):  # it searches the pages
            return True
    elif read := inputs.of_object(kind):  # compiled for one processor
        return bool(sources & read)
    else:
        return True
    return bool(sources & set().union(*map(inputs.of, targets)))


def untouched(checks, files, inputs):
    """The checks that a change of these files cannot have touched."""
    known = set().union(*inputs.read.values())
    files = {"a source that is not known" if SOURCE.fullmatch(file) and file not in known else file for file in files}
    return [check for check in checks if not touched(check, files, inputs)]


def all_checks(build, inputs):
    listed = output_of("ctest", "--test-dir", str(build), "-N", "-L", "maintainer|browser")
    checks = re.findall(r"Test +#\d+: (\S+)", listed)
    tests = sorted(name for name in inputs.executables if re.match("test_(?!mpi$)(?!.*_in_double$)", name))
    return [*checks, *(f"sanitized.{name.removeprefix('test_')}" for name in tests),
            "sanitized.model", "sanitized.fine_tune", "fuzzing"]


def main():
    build, given = Path(sys.argv[1]).resolve(), set(sys.argv[2:])
    files, commit = (given, None) if given else changed_files()
    left_out = []
    if files is None:
        print(f"every check runs: {commit}")
    else:
        inputs = Inputs(build)
        checks = all_checks(build, inputs)
        left_out = untouched(checks, files, inputs)
        if not given:
            count = int(output_of("git", "rev-list", "--count", "HEAD"))
            left_out = [check for check in left_out if (checks.index(check) + count) % 3]
        since = "" if given else f" in the {output_of('git', 'rev-list', '--count', f'{commit}..HEAD').strip()} commits since {commit[:8]}"
        print(f"{len(left_out)} of {len(checks)} checks are left out, whose inputs have not changed{since}")
        kind_of = lambda check: re.match(r"(maintainer\.)?\w+", check)[0]
        for kind, group in itertools.groupby(sorted(left_out, key=kind_of), kind_of):
            names = " ".join(check.removeprefix(kind).lstrip(".") for check in group)
            print(textwrap.fill(f"{kind}: {names}", 100, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False))
    (build / "left_out").write_text("".join(f"{check}\n" for check in left_out))


if __name__ == "__main__":
    main()
