#!/usr/bin/env python3
"""Do the tests notice when a lesson breaks? Changes one operator, constant, index, sign or function of a chapter's
lesson at a time, builds that chapter's tests and runs them. Prints the changes that no test noticed.
Usage: mutate.py SLUG [COUNT [SEED]]: a sample of so many changes, 100 unless given; 0 for all of them."""

import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
NOT_LESSONS = re.compile(r"(main|exercise|solution|bench|.*_walk)\.cpp")

# What stands in the code, and what it becomes.
CHANGES = [
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" / "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" < ", [" <= ", " > "]), (r" <= ", [" < "]), (r" > ", [" >= ", " < "]), (r" >= ", [" > "]),
    (r" == ", [" != "]), (r" != ", [" == "]), (r" && ", [" || "]), (r" \|\| ", [" && "]),
    (r" \+= ", [" -= ", " = "]), (r" -= ", [" += "]), (r" \*= ", [" /= "]), (r" /= ", [" *= "]),
    (r"(?<=[(,=] )-(?=\w)|(?<=[(\[])-(?=\w)|(?<=return )-(?=\w)", [""]),  # a sign
    (r"(?<=[(! ])!(?=\w)", [""]),
    (r"(?<![\w.\"])\d+(?![\w.\"])", [lambda text: str(int(text) + 1), lambda text: str(max(int(text) - 1, 0))]),
    (r"(?<![\w.])\d+\.\d+f?(?![\w.])", [lambda text: text[:-1] + "9" if text[-1] != "f" else text[:-2] + "9f"]),
    *((rf"\b{a}\b(?=[(<])", [b]) for pair in (
        ("cos", "sin"), ("max", "min"), ("amax", "amin"), ("triu", "tril"), ("repeat", "tile"), ("floor", "ceil"),
        ("max_element", "min_element"), ("first", "last"), ("lower_bound", "upper_bound")) for a, b in (pair, pair[::-1])),
    (r"\bstd::(sqrt|exp|log|abs|round)(?=\()", [""]),
    (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]),
    (r"(?<=\w\()(\w+), (\w+)(?=[,)])", [lambda text: ", ".join(reversed(text.split(", ")))]),  # an index, swapped
    (r"^ +[\w.\[\](), ]+ [-+*/]?= [^{}]*;$", ["// gone"]),  # an assignment, left out
]


def without_text(line):
    """The line with comments and quoted text blanked out, at the same places."""
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda match: '"' + "\0" * (len(match[0]) - 2) + '"', line)
    return re.sub(r"//.*", lambda match: "\0" * len(match[0]), line)


def mutants(file):
    """Every change of a file: its line number, and that line before and after."""
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
    """0 if it succeeds; it must not run longer than so many seconds."""
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return 1


def copy_of_the_tree(folder):
    """Every file that git knows or might, and a build of its own."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for name in names.stdout.split("\n"):
        target = folder / name
        if not (ROOT / name).is_file() or (target.exists() and target.read_bytes() == (ROOT / name).read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    if not (folder / "build/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "default"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


class Workplace:
    """A copy of the tree in which one change at a time is tried."""

    def __init__(self, folder, slug):
        copy_of_the_tree(folder)
        self.folder, self.tests = folder, [f"test_{slug}"]
        if slug == "13_training":
            self.tests.insert(0, "test_12_gradients")
        if not all(self.passes(test) for test in self.tests):
            sys.exit(f"the tests of {slug} fail without any change")

    def builds(self, test):
        return run(["ninja", "-C", self.folder / "build", "-j", "1", test], 600) == 0

    def passes(self, test):
        return self.builds(test) and run([self.folder / "build" / test], 120) == 0

    def outcome(self, file, number, changed):
        """'killed', 'survived', or 'no C++'."""
        original = file.read_text()
        lines = original.split("\n")
        lines[number] = changed
        file.write_text("\n".join(lines))
        try:
            for test in self.tests:
                if not self.builds(test):
                    return "no C++"
                if run([self.folder / "build" / test], 120) != 0:
                    return "killed"
            return "survived"
        finally:
            file.write_text(original)


def main():
    slug, count, seed = sys.argv[1:] + ["100", "1"][len(sys.argv) - 2:]
    chapter = ROOT / "chapters" / slug
    files = [file for file in sorted(chapter.glob("*.cpp")) if not NOT_LESSONS.fullmatch(file.name)]
    candidates = [(file.name, *mutant) for file in files for mutant in mutants(file)]
    random.Random(int(seed)).shuffle(candidates)
    sample = candidates[:int(count) or None]
    print(f"{slug}: {len(sample)} of {len(candidates)} changes", flush=True)

    workplaces = Queue()
    for i in range(os.cpu_count()):
        workplaces.put(Workplace(ROOT / "build/mutants" / str(i), slug))

    def attempt(candidate):
        name, number, line, changed = candidate
        workplace = workplaces.get()
        outcome = workplace.outcome(workplace.folder / "chapters" / slug / name, number, changed)
        workplaces.put(workplace)
        if outcome == "survived":
            print(f"survived: {name}:{number + 1}\n  - {line.strip()}\n  + {changed.strip()}", flush=True)
        return outcome

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(attempt, sample))
    killed, survived = outcomes.count("killed"), outcomes.count("survived")
    print(f"{slug}: {killed} killed, {survived} survived, {outcomes.count('no C++')} were no C++: "
          f"{100 * killed / max(killed + survived, 1):.1f} % noticed")


if __name__ == "__main__":
    main()
