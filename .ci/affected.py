#!/usr/bin/env python3
"""Selects the checks that a change can affect. .ci/proved names a commit at which .ci/run full passed. A check none of
whose input files has changed since then is left out, except that each run includes a third of these, selected by the number of
commits.

Usage: affected.py BUILD_FOLDER [FILE...]
BUILD_FOLDER is the finished build with Clang, whose Ninja knows the inputs. If files are given, they are the ones that have
changed, and all checks that they do not affect are left out. Writes BUILD_FOLDER/left_out, one check per line: the name of a
CTest test, sanitized.NAME for a test of the build with sanitizers, or fuzzing. Prints the same.

A change of any other file than those below affects everything: scripts, build settings, data, checks."""

import functools
import itertools
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# These affect only checks that always run.
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


def proved_commit():
    """The commit in .ci/proved, or None if it is not one before HEAD."""
    commit = (ROOT / ".ci/proved").read_text().strip()
    is_ancestor = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT, stderr=subprocess.DEVNULL)
    return commit if is_ancestor.returncode == 0 else None


def changed_files(commit):
    """The files of the working tree that differ from a commit; of a renamed file, both names."""
    files = (output_of("git", "diff", "--name-only", "--no-renames", commit) +
             output_of("git", "ls-files", "-o", "--exclude-standard"))
    return set(files.split("\n")) - {""}


class Inputs:
    """The input files of a build's targets in the tree: those in Ninja's rules, and those that the compiler has read."""

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
        """The files that the compiler has read for the source files of this name."""
        return set().union(*(files for name, files in self.read.items() if name.endswith(f"/{stem}.cpp.o")))


def targets_of_page(page, executables):
    """The targets that the commands of a page build, or None if one of them may build any target."""
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


def is_affected(check, files, inputs):
    """Can a change of these files affect the check?"""
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
    elif kind == "avx2":
        targets = {"test_common", "test_06_swiglu", "test_15_fast", "test_16_quantization", "test_models"}
    elif kind == "page":
        targets = targets_of_page(ROOT / page, inputs.executables)
        if targets is None or (pages and "ask" in targets):  # it searches the pages
            return True
    elif name and (read := inputs.of_object(kind)):  # KERNEL.ARCHITECTURE compiles a file
        return bool(sources & read)
    else:
        return True
    return bool(sources & set().union(*map(inputs.of, targets)))


def unaffected(checks, files, inputs):
    """The checks that a change of these files cannot affect. A source file that was not compiled affects all."""
    compiled = set().union(*inputs.read.values())
    if any(SOURCE.fullmatch(file) and file not in compiled for file in files):
        return []
    return [check for check in checks if not is_affected(check, files, inputs)]


def all_checks(build, inputs):
    listed = output_of("ctest", "--test-dir", str(build), "-N", "-L", "maintainer|browser")
    checks = re.findall(r"Test +#\d+: (\S+)", listed)
    tests = sorted(name for name in inputs.executables if re.match("test_(?!mpi$)(?!.*_in_double$)", name))
    return [*checks, *(f"sanitized.{name.removeprefix('test_')}" for name in tests),
            "sanitized.model", "sanitized.fine_tune", "fuzzing"]


def main():
    build, files = Path(sys.argv[1]).resolve(), set(sys.argv[2:])
    commit = None if files else proved_commit()
    left_out = []
    if not files and not commit:
        print("every check runs: .ci/proved names no commit before this one")
    else:
        inputs = Inputs(build)
        checks = all_checks(build, inputs)
        left_out = unaffected(checks, files or changed_files(commit), inputs)
        since = ""
        if commit:
            count = int(output_of("git", "rev-list", "--count", "HEAD"))
            left_out = [check for check in left_out if (checks.index(check) + count) % 3]
            num_commits = output_of("git", "rev-list", "--count", f"{commit}..HEAD").strip()
            since = f" in the {num_commits} commits since {commit[:8]}"
        print(f"{len(left_out)} of {len(checks)} checks are left out, whose inputs have not changed{since}")
        kind_of = lambda check: re.match(r"(maintainer\.)?\w+", check)[0]
        for kind, group in itertools.groupby(sorted(left_out, key=kind_of), kind_of):
            names = " ".join(check.removeprefix(kind).lstrip(".") for check in group)
            print(textwrap.fill(f"{kind}: {names}", 100, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False))
    (build / "left_out").write_text("".join(f"{check}\n" for check in left_out))


if __name__ == "__main__":
    main()
