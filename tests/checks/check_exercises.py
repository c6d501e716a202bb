#!/usr/bin/env python3
"""Checks that each exercise of a chapter fails unsolved, for the right reason, and passes solved: a function to write
or a prediction fails with NotImplemented, a bug to find with an assertion. No message may contain a pointer or a value
that doctest cannot print. With "broken" instead of a slug: checks the reports of answers that crash, do not end or are
wrong. Usage: check_exercises.py BUILD_FOLDER SLUG|broken"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"find the bug": "not yet", "write": "to write", "predict": "to predict"}  # the state of unsolved exercises
UNREADABLE = re.compile(r"0x[0-9a-f]{6,}|\{\?\}|(CHECK|REQUIRE|INFO|doctest)\b|\b184467440737095\d{5}\b")
problems = []

# What tests/exercises/broken.cpp must report.
BROKEN = """\
0.1 write a null pointer: did not finish: crashed (segmentation fault)
    common causes: an index out of range, a null pointer, endless recursion
0.2 write an endless loop: did not finish: ran for more than 10 seconds
0.3 write an abort: did not finish: crashed (aborted)
0.4 write the end of the program: did not finish: the program ended with exit code 0
0.5 write a wrong shape: not yet
    a layer with bias
    counting({2, 3})
    shape (2, 3), expected (3, 2)
0.6 write a negative size: not yet
    an offset of -10
    it threw: reshape: (0,) does not fit into (-9 as an unsigned number, 1)
0.7 write too many values: not yet
    it threw: std::bad_alloc
0.8 write a wrong value: not yet
    ids
    got {1, 2}, expected {1, 3}
0.9 predict a value: not yet
    prediction
    got 7
0.10 predict a tensor: not yet
    Vector{7}
    worst element 0 of 1, 1 wrong: got 7
0.11 predict too few numbers: not yet
    Vector{7}
    shape (1,), expected (2,)
0.12 write nothing: to write
0.13 write the right answer: solved

1 of 13 exercises solved
"""


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout


def report(program):
    """The state of each exercise by title, and the lines that say what was expected."""
    states, title = {}, None
    for line in run(program).split("\n"):
        if match := re.match(r"([\dM].*): (solved|not yet|to write|to predict|did not finish: .*)$", line):
            title = match[1]
            states[title] = (match[2], [])
        elif title and line.startswith("      "):  # a continued line
            states[title][1][-1] += " " + line.strip()
        elif title and line.startswith("    "):
            states[title][1].append(line.strip())
    return states


def check_messages(build, slug, unsolved):
    """Reads the messages of the unsolved exercises, and of all assertions of the solutions."""
    reported = [line for _, messages in unsolved.values() for line in messages]
    for line in dict.fromkeys(reported + run(build / f"solution_{slug}", "--success").split("\n")):
        if UNREADABLE.search(line):
            problems.append(f"a message of {slug} that cannot be read: {line.strip()}")


def check_hints(slug, numbers):
    """./learn prints the first folded block of an exercise on its page, and with --more the second, if there is one."""
    page = (ROOT / "docs" / ("anatomy.md" if slug == "models" else f"{slug}.md")).read_text()
    for number in numbers:
        section = re.search(rf"^### Exercise {re.escape(number)} — .*?(?=^##|\Z)", page, re.M | re.S)
        blocks = re.findall(r"<details>.*?\n(.*?)</details>", section[0] if section else "", re.S)
        for option, block in zip(([], ["--more"]), [*blocks, "", ""]):
            text = run(ROOT / "learn", "exercise", slug, "--hint", number, *option).split("\n\n./learn")[0]
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", block)  # without the targets of links
            if re.sub(r"\W", "", text) != re.sub(r"\W", "", words):
                problems.append(f"--hint {number} {' '.join(option)} prints {text!r}, the page has {block!r}")


def check_chapter(build, slug):
    unsolved, solved = report(build / f"exercise_{slug}"), report(build / f"solution_{slug}")
    numbers = re.findall(rf"^// Exercise ([\dM]+\.\d+) — ({'|'.join(KINDS)})",
                         (ROOT / "chapters" / slug / "exercise.cpp").read_text(), re.M)
    tested = [tuple(re.match(rf"([\dM]+\.\d+) ({'|'.join(KINDS)})", title).groups()) for title in unsolved]
    if numbers != tested:
        problems.append(f"exercise.cpp has {numbers}, the tests have {tested}")
    if len(numbers) < 3 or "find the bug" not in dict(numbers).values() or "write" not in dict(numbers).values():
        problems.append("a chapter needs three exercises, at least one bug and one function to write")
    if 3 * [kind for _, kind in numbers].count("predict") < len(numbers):
        problems.append("at least a third of the exercises are predictions")
    for (title, (state, messages)), (_, kind) in zip(unsolved.items(), tested):
        if state != KINDS[kind]:
            problems.append(f"unsolved, {title} is '{state}' instead of '{KINDS[kind]}'")
        if state == "not yet" and (len(messages) < 2 or any("it threw" in text for text in messages)):
            problems.append(f"{title} does not say what was expected: {messages}")
    for title, (state, messages) in solved.items():
        if state != "solved":
            problems.append(f"solved, {title} is '{state}': {messages}")
    if solved.keys() != unsolved.keys():
        problems.append("solutions and stubs do not have the same test cases")
    check_messages(build, slug, unsolved)
    check_hints(slug, dict(numbers))


def main():
    build, slug = Path(sys.argv[1]), sys.argv[2]
    if slug != "broken":
        check_chapter(build, slug)
    elif (output := run(build / "broken_exercises")) != BROKEN:
        problems.append(f"broken exercises are reported like this:\n{output}instead of this:\n{BROKEN}")
    for problem in problems:
        print(problem)
    print(f"processor seconds: {sum(os.times()[:4]):.1f}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
