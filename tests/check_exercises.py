#!/usr/bin/env python3
"""Checks that each exercise of a chapter fails unsolved, for the right reason, and passes solved: a function to write
fails with NotImplemented, a bug to find with an assertion. Usage: check_exercises.py BUILD_FOLDER SLUG"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def report(program):
    """The state of each exercise by title, and the lines that say what was expected."""
    output = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    states, title = {}, None
    for line in output.split("\n"):
        if match := re.match(r"(\d.*): (solved|not yet|to write)$", line):
            title = match[1]
            states[title] = (match[2], [])
        elif title and line.startswith("    "):
            states[title][1].append(line.strip())
    return states


def main():
    build, slug = Path(sys.argv[1]), sys.argv[2]
    unsolved, solved = report(build / f"exercise_{slug}"), report(build / f"solution_{slug}")
    numbers = re.findall(r"^// Exercise (\d+\.\d+) — (find the bug|write)",
                         (ROOT / "chapters" / slug / "exercise.cpp").read_text(), re.M)
    tested = [tuple(re.match(r"(\d+\.\d+) (find the bug|write)", title).groups()) for title in unsolved]

    problems = []
    if numbers != tested:
        problems.append(f"exercise.cpp has {numbers}, the tests have {tested}")
    if len(numbers) < 3 or "find the bug" not in dict(numbers).values() or "write" not in dict(numbers).values():
        problems.append("a chapter needs three exercises, at least one bug and one function to write")
    for title, (state, messages) in unsolved.items():
        expected = "not yet" if "find the bug" in title else "to write"
        if state != expected:
            problems.append(f"unsolved, {title} is '{state}' instead of '{expected}'")
        if state == "not yet" and (len(messages) < 2 or any("it threw" in text for text in messages)):
            problems.append(f"{title} does not say what was expected: {messages}")
    for title, (state, messages) in solved.items():
        if state != "solved":
            problems.append(f"solved, {title} is '{state}': {messages}")
    if solved.keys() != unsolved.keys():
        problems.append("solutions and stubs do not have the same test cases")
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
