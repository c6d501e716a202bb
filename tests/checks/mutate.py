#!/usr/bin/env python3
"""Mutation testing of a chapter: do its tests fail if a lesson file is wrong? Each mutant changes one operator, constant,
index, sign or function of a lesson file; the chapter's tests are built and run. Prints the mutants that survive.
Usage: mutate.py SLUG [COUNT [SEED]]: a random sample of COUNT mutants (default 100), or all of them for 0."""

import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
NOT_LESSONS = re.compile(r"main\.cpp|(exercise|solution)\.[ch]pp|demo/.*")

# Patterns in the code, and their replacements.
CHANGES = [
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" / "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" < ", [" <= ", " > "]), (r" <= ", [" < "]), (r" > ", [" >= ", " < "]), (r" >= ", [" > "]),
    (r" == ", [" != "]), (r" != ", [" == "]), (r" && ", [" || "]), (r" \|\| ", [" && "]),
    (r" \+= ", [" -= ", " = "]), (r" -= ", [" += "]), (r" \*= ", [" /= "]), (r" /= ", [" *= "]),
    (r"(?<=[(,=] )-(?=\w)|(?<=[(\[])-(?=\w)|(?<=return )-(?=\w)", [""]),  # remove a sign
    (r"(?<=[(! ])!(?=\w)", [""]),
    (r"(?<![\w.\"])\d+(?![\w.\"])", [lambda text: str(int(text) + 1), lambda text: str(max(int(text) - 1, 0))]),
    (r"(?<![\w.])\d+\.\d+f?(?![\w.])", [lambda text: text[:-1] + "9" if text[-1] != "f" else text[:-2] + "9f"]),
    *((rf"\b{a}\b(?=[(<])", [b]) for pair in (
        ("cos", "sin"), ("max", "min"), ("amax", "amin"), ("triu", "tril"), ("repeat", "tile"), ("floor", "ceil"),
        ("max_element", "min_element"), ("first", "last"), ("lower_bound", "upper_bound")) for a, b in (pair, pair[::-1])),
    (r"\bstd::(sqrt|exp|log|abs|round)(?=\()", [""]),
    (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]),
    (r"(?<=\w\()(\w+), (\w+)(?=[,)])", [lambda text: ", ".join(reversed(text.split(", ")))]),  # swap two arguments
    (r"^ +[\w.\[\](), ]+ [-+*/]?= [^{}]*;$", ["// removed"]),  # remove an assignment
]


def without_text(line):
    """The line with comments and string literals blanked out; positions do not change."""
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda match: '"' + "\0" * (len(match[0]) - 2) + '"', line)
    return re.sub(r"//.*", lambda match: "\0" * len(match[0]), line)


def mutants(file):
    """All mutants of a file: the line number, and the line before and after the change."""
    for number, line in enumerate(file.read_text().split("\n")):
        if line.startswith("#") or line.startswith("template") or "static_assert" in line:
            continue
        for pattern, replacements in CHANGES:
            for match in re.finditer(pattern, without_text(line)):
                for replacement in replacements:
                    new = replacement(match[0]) if callable(replacement) else replacement
                    changed = line[:match.start()] + new + line[match.end():]
                    if changed != line:
                        yield number, line, changed


def run(command, seconds):
    """The exit code of a command, or 1 after a timeout."""
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return 1


def copy_of_the_tree(folder, slug):
    """Copies all files that are tracked or not ignored, and configures a build folder."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for name in names.stdout.split("\n"):
        target = folder / name
        if not (ROOT / name).is_file() or (target.exists() and target.read_bytes() == (ROOT / name).read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    if not (folder / "build/build.ninja").exists():
        (folder / "build").mkdir(parents=True, exist_ok=True)
        files = (folder / "chapters" / slug).rglob("*.cpp")  # to be compiled one by one
        (folder / "build/edited_files").write_text("".join(f"{file.relative_to(folder)}\n" for file in files))
        subprocess.run(["cmake", "--preset", "default"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


class Worker:
    """A copy of the tree in which one mutant at a time is tested."""

    def __init__(self, folder, slug):
        copy_of_the_tree(folder, slug)
        self.folder = folder
        self.tests = [f"test_{slug}"]
        if [*(ROOT / "tests/chapters" / slug).glob("finite_differences*.cpp"), *(ROOT / "tests/chapters" / slug).glob("in_double*.cpp")]:
            self.tests.append(f"test_{slug}_in_double")
        if not all(self.passes(test) for test in self.tests):
            sys.exit(f"the tests of {slug} fail without a mutant")

    def builds(self, test):
        return run(["ninja", "-C", self.folder / "build", "-j", "1", test], 600) == 0

    def passes(self, test):
        return self.builds(test) and run([self.folder / "build" / test], 120) == 0

    def outcome(self, file, number, changed):
        """'killed', 'survived', or 'does not compile'."""
        original = file.read_text()
        lines = original.split("\n")
        lines[number] = changed
        file.write_text("\n".join(lines))
        try:
            for test in self.tests:
                if not self.builds(test):
                    return "does not compile"
                if run([self.folder / "build" / test], 120) != 0:
                    return "killed"
            return "survived"
        finally:
            file.write_text(original)


def main():
    slug, count, seed = sys.argv[1:] + ["100", "1"][len(sys.argv) - 2:]
    chapter = ROOT / "chapters" / slug
    headers = [file for file in chapter.rglob("*.hpp") if re.search(r"^ +(for|while|if) \(", file.read_text(), re.M)]
    files = [file for file in sorted([*chapter.rglob("*.cpp"), *headers]) if not NOT_LESSONS.fullmatch(str(file.relative_to(chapter)))]
    candidates = [(str(file.relative_to(chapter)), *mutant) for file in files for mutant in mutants(file)]
    random.Random(int(seed)).shuffle(candidates)
    sample = candidates[:int(count) or None]
    print(f"{slug}: {len(sample)} of {len(candidates)} mutants", flush=True)

    workers = Queue()
    for i in range(os.cpu_count()):
        workers.put(Worker(ROOT / "build/mutants" / str(i), slug))

    def attempt(candidate):
        name, number, line, changed = candidate
        worker = workers.get()
        outcome = worker.outcome(worker.folder / "chapters" / slug / name, number, changed)
        workers.put(worker)
        if outcome == "survived":
            print(f"survived: {name}:{number + 1}\n  - {line.strip()}\n  + {changed.strip()}", flush=True)
        return outcome

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(attempt, sample))
    killed, survived = outcomes.count("killed"), outcomes.count("survived")
    print(f"{slug}: {killed} killed, {survived} survived, {outcomes.count('does not compile')} do not compile: "
          f"{100 * killed / max(killed + survived, 1):.1f} % killed")


if __name__ == "__main__":
    main()
