#!/usr/bin/env python3
"""Checks that the pages and the programs agree.

- Code in a ```cpp block stands in the tree, line by line.
- A ```console block holds a command after "$ " and what it prints. "..." stands for anything left
  out, at the start or the end of a line too. Numbers may differ by one unit of the last printed digit
  or by a relative tolerance, because processors add in different orders. Whole numbers have no digits
  to round, so for them only the relative tolerance counts. A block after <!-- volatile --> is run, not
  compared.
- A command that names stories260K.bin is run only if it lies here, or where the variable STORIES260K says.
- Every line of a block without a language is a command that must succeed. (Not run are conda's, and those that .ci/run has
  run in the copy already, which build/has_run lists.)
- A ```diff block is applied to a copy of the tree; the console block after it shows the effect there.
- Numbers in sentences have a source, which page_numbers.py checks.
- Images and links to files exist; every chapter has a page with hints for all its exercises.

Usage: check_docs.py static | check_docs.py PAGE WORK_FOLDER"""

import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

from page_numbers import check_numbers

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLUGS = re.findall(r"^(\d\w+) \|", (ROOT / "chapters/contents.txt").read_text(), re.M)
NUMBER = re.compile(r"[-−]?\d+\.?\d*(?:e[-+]?\d+)?")
TOLERANCE = Decimal("2e-4")
FOLDERS_OF_TESTS = ("chapters", "models", "experiments", "apps", "common")
STORIES260K = ROOT / (os.environ.get("STORIES260K") or "stories260K.bin")
problems = []


def complain(page, line, text):
    problems.append(f"{page.relative_to(ROOT)}:{line}: {text}")


def blocks(page):
    """Yields (line number, language, lines, the line before) of every fenced block."""
    lines = page.read_text().split("\n")
    start = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            before = next((text for text in reversed(lines[:start]) if text.strip()), "")
            yield start + 1, lines[start][3:].strip(), lines[start + 1:number], before
            start = None


def stripped(lines):
    return [line.strip() for line in lines if line.strip()]


def contains(haystack, needle):
    return any(haystack[i:i + len(needle)] == needle for i in range(len(haystack) - len(needle) + 1))


def check_code(page):
    sources = [stripped(file.read_text().split("\n"))
               for folder in ("chapters", "common", "tests") for file in sorted((ROOT / folder).rglob("*.[ch]pp"))]
    for line, language, code, _ in blocks(page):
        if language == "cpp" and not any(contains(source, stripped(code)) for source in sources):
            complain(page, line, f"this code does not stand in the tree: {stripped(code)[0]}")
        elif language == "diff":
            edited(page, line, code)


def check_sentences(page, output_of):
    for line, trouble in check_numbers(page.read_text(), output_of):
        complain(page, line, trouble)


def anchors(page):
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_reading_order(page):
    """The headers of a lesson say "file 2 of 5"; the table of its page lists the files in this order. Those in a folder of
    the lesson say its name instead, and the page has a link to each."""
    slug = page.stem
    if page.parent.name != "docs" or slug not in SLUGS:
        return
    numbered = {}
    headers = [file for file in sorted((ROOT / "chapters" / slug).glob("*.hpp")) if file.name != "exercise.hpp"]
    for file in headers:
        first = re.match(r"// Chapter (\d\d), file (\d+) of (\d+)", file.read_text())
        if not first or first[1] != slug[:2] or int(first[3]) != len(headers):
            complain(file, 1, f"the first line must begin with: // Chapter {slug[:2]}, file N of {len(headers)}")
        else:
            numbered[int(first[2])] = file.stem
    for file in sorted((ROOT / "chapters" / slug).glob("*/*.hpp")):
        folder = file.parent.name
        if folder != "demo" and not file.read_text().startswith(f"// Chapter {slug[:2]}, {folder}: "):
            complain(file, 1, f"the first line must begin with: // Chapter {slug[:2]}, {folder}:")
        if folder != "demo" and not re.search(rf"chapters/{slug}/{folder}/{file.stem}\.[ch]pp\)", page.read_text()):
            complain(page, 1, f"has no link to {folder}/{file.stem}")
    table = re.search(r"\| file, in the order of reading \| content \|\n\|---\|---\|\n((?:\|.*\n)*)", page.read_text())
    listed = re.findall(rf"\]\(\.\./chapters/{slug}/(\w+)\.[ch]pp\)", table[1] if table else "")
    listed = [name for name in dict.fromkeys(listed) if name in numbered.values()]
    if listed != [numbered[n] for n in sorted(numbered)] or sorted(numbered) != list(range(1, len(headers) + 1)):
        complain(page, 1, f"the table of the files lists {listed}, their first lines say {[numbered[n] for n in sorted(numbered)]}")


def check_links(page):
    for number, line in enumerate(page.read_text().split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if target.startswith("http"):
                continue
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            if not file.exists():
                complain(page, number, f"there is no {target}")
            elif os.path.relpath(file, ROOT).startswith("."):
                complain(page, number, f"the site has no page for {target}")
            elif anchor and anchor not in anchors(file):
                complain(page, number, f"{path or page.name} has no heading for #{anchor}")
        for alt in re.findall(r"!\[([^\]]*)\]", line):
            if len(alt) < 20:
                complain(page, number, "an image needs a description of what it shows")


def check_terms(page):
    """A bold term of a page is in the glossary: bold text in lower case. (Bold sentences and labels begin
    with a capital letter; at the start of a list item a project may be named.)"""
    terms = {heading.lower() for heading in re.findall(r"^### (.*)$", (ROOT / "docs/notation.md").read_text(), re.M)}
    fenced = False
    for number, line in enumerate(page.read_text().split("\n"), 1):
        fenced ^= line.startswith("```")
        line = re.sub(r"^\s*- \*\*[^*]+\*\*", "", line)
        for bold in [] if fenced else re.findall(r"(?<!\*)\*\*([^*]+)\*\*", line):
            term = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", bold)
            if re.match(r"[a-z]", term) and len(term.split()) < 5 and not {term.lower(), term.lower().removesuffix("s")} & terms:
                complain(page, number, f"the bold term \"{term}\" is not in the glossary of notation.md")


def model_map():
    """The model, with the numbers of the chapters, and the chapters that are not drawn in it."""
    lines = [" tokens → embed → ( norm → attention → + → norm → MLP → + ) × L → norm → logits",
             " 10       09        07     01 02 03 04 05  07     06     08       07     09", ""]
    for slug in SLUGS:
        if slug[:2] not in lines[1]:
            entry = f" {slug[:2]} {slug[3:].replace('_', ' ')}"
            if lines[-1] and len(lines[-1] + entry) + 3 > 80:
                lines.append("")
            lines[-1] += ("   " if lines[-1] else "") + entry
    return lines


def check_map():
    """Each chapter's page has the map of the model, in which its own number is marked."""
    for slug in SLUGS:
        page, number = ROOT / "docs" / f"{slug}.md", slug[:2]
        marked = [line.replace(f" {number}", f"▸{number}") for line in model_map()]
        if not any(language == "text" and content == marked for _, language, content, _ in blocks(page)):
            complain(page, 1, "the map of the model is missing, or does not mark this chapter")


def check_exercises():
    for slug in [*SLUGS, "models"]:
        page = ROOT / "docs" / ("anatomy.md" if slug == "models" else f"{slug}.md")
        text = page.read_text() if page.exists() else ""
        exercises, solutions = (
            re.findall(r"^// Exercise ([\dM]+\.\d+) — ", (ROOT / "chapters" / slug / f"{answers}.cpp").read_text(), re.M)
            for answers in ("exercise", "solution"))
        if f"chapters/{slug}/exercise.hpp)" not in text:
            complain(page, 1, "has no link to exercise.hpp, which says what each function takes and returns")
        if exercises != solutions:
            complain(page, 1, f"exercise.cpp has the exercises {exercises}, solution.cpp explains {solutions}")
        for number in exercises:
            section = re.search(rf"^### Exercise {re.escape(number)} — .*?(?=^##|\Z)", text, re.M | re.S)
            if not section or section[0].count("<details>") != 2:
                complain(page, 1, f"no section with two hints for exercise {number}")


def tests_shown_to_fail():
    """What the pages print of the names of tests that fail after a change on the page."""
    for page in PAGES:
        after_a_change = False
        for _, language, content, before in blocks(page):
            after_a_change = language == "diff" or (after_a_change and language == "console" and before == "```")
            if after_a_change and "The following tests FAILED:" in content:
                for line in content[content.index("The following tests FAILED:") + 1:]:
                    yield re.sub(r"^(\d\d_\w+|models)\.", "", line.strip(". "))


def check_names_of_tests():
    """The tests and exercises that mistakes.md and questions.md name exist; mistakes.md names every
    bug of the exercises, and each test that it names is shown to fail on some page."""
    mistakes = ROOT / "docs/mistakes.md"
    exercises = dict(found for slug in [*SLUGS, "models"]
                     for found in re.findall(r"^// Exercise ([\dM]+\.\d+) — (\w+)", (ROOT / "chapters" / slug / "exercise.cpp").read_text(), re.M))
    for exercise, what in exercises.items():
        if what == "find" and not re.search(rf"\b{re.escape(exercise)}\b", mistakes.read_text()):
            complain(mistakes, 1, f"the bug of exercise {exercise} is missing")
    shown = set(filter(None, tests_shown_to_fail()))
    titles = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace("\\\"", "\"")
              for folder in FOLDERS_OF_TESTS for file in sorted((ROOT / "tests" / folder).rglob("*.cpp"))
              for literals in re.findall(r'TEST_CASE\(((?:\s*"(?:[^"\\]|\\.)*")+)\)', file.read_text())]
    for name in ("mistakes", "questions"):
        page = ROOT / "docs" / f"{name}.md"
        for number, line in enumerate(page.read_text().split("\n"), 1):
            named = line.rsplit("|", 2)[-2] if line.startswith("|") else line.rpartition("Test: ")[2] if "Test: " in line else ""
            for title in re.findall(r'"(.*?)"', named):
                if title not in titles:
                    complain(page, number, f'there is no test "{title}"')
                if name == "mistakes" and not any(title.startswith(start) for start in shown):
                    complain(page, number, f'no page shows a change that fails "{title}"')
            for exercise in re.findall(r"\b[\dM]+\.\d+\b", re.sub(r'".*?"', "", named)):
                if exercise not in exercises:
                    complain(page, number, f"there is no exercise {exercise}")
                elif exercises[exercise] == "predict":
                    complain(page, number, f"exercise {exercise} asks for a prediction, which detects nothing")


def same_line(expected, actual):
    """Equal text with numbers within the tolerance; ... matches anything."""
    pieces = [(NUMBER.split(part), NUMBER.findall(part)) for part in expected.split("...")]
    if len(pieces) == 1:
        return same_piece(pieces[0], actual)
    if expected.strip().startswith("...,") or ", ...," in expected:  # xtensor's own dots
        return same_piece((NUMBER.split(expected), NUMBER.findall(expected)), actual)
    return all(part in actual for part in expected.split("...") if part)


def same_piece(piece, actual):
    texts, numbers = piece
    squeeze = lambda parts: [re.sub(r"\s+", " ", part) for part in parts]
    if squeeze(texts) != squeeze(NUMBER.split(actual)):
        return False
    return all(same_number(*pair) for pair in zip(numbers, NUMBER.findall(actual)))


def same_number(expected, actual):
    a, b = (Decimal(text.replace("−", "-")) for text in (expected, actual))
    last_digit = Decimal(1).scaleb(a.as_tuple().exponent) if re.search(r"\.\d", expected) else 0
    return abs(a - b) <= max(last_digit, TOLERANCE * max(1, abs(b)))


def matches(expected, actual):
    """Do the expected lines occur in order, with gaps only where a line of ... allows them?"""
    position, gap = 0, False
    for index, line in enumerate(expected):
        if line == "...":
            gap = True
            continue
        while position < len(actual) and not same_line(line, actual[position]):
            if not gap:
                return f"expected: {line}\n    got:      {actual[position]}"
            position += 1
        if position == len(actual):
            return f"not found in the output: {line}"
        position, gap = position + 1, False
    if expected and expected[-1] != "..." and position != len(actual) and not expected[-1].endswith("..."):
        return f"the output goes on: {actual[position]}"
    return None


def other_kernels():
    """Kernels of OpenBLAS that are not those of this processor."""
    return "Haswell" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "Sandybridge"


def run(command, tree):
    environment = {**os.environ, "NO_COLOR": "1", "HOME": str(tree)}
    if command.startswith("ctest"):  # ./learn test has run the same tests
        environment["OPENBLAS_CORETYPE"] = other_kernels()
    result = subprocess.run(["bash", "-c", command], cwd=tree, env=environment, timeout=1200,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    lines = (result.stdout + result.stderr).rstrip().split("\n")
    return result.returncode, [line for line in lines if not line.startswith("building ")]


def run_once(command, outputs, tree):
    """The exit code and the lines of a command that the page may have run already. After the first --only has run, another one
    takes its step from a run without the option."""
    only = re.fullmatch(r"(\./learn \d+) --only ([1-9]\d*)", command)
    if only and command not in outputs and any(" --only " in other for other in outputs):
        status, lines = run_once(only[1], outputs, tree)
        begins = [number for number, line in enumerate([*lines, "Figures:"]) if re.match(r"── \d+\. |Figures:", line)]
        for begin, end in zip(begins, begins[1:]):
            if lines[begin].startswith(f"── {only[2]}. "):
                return status, "\n".join(["", *lines[begin:end]]).rstrip().split("\n")
    if command not in outputs:
        outputs[command] = run(command, tree)
    return outputs[command]


def check_console(page, tree):
    """Runs every command of a page in a copy of the tree."""
    outputs, changed = {}, None
    has_run = (tree / "build/has_run").read_text().split("\n") if (tree / "build/has_run").exists() else []
    check_written(page, tree)

    def output_of(command):
        return "\n".join(run_once(command, outputs, tree)[1])

    check_sentences(page, output_of)

    def take_back():
        nonlocal changed
        if changed:
            check_compiled_alone(page, changed, tree)
            shutil.copy(ROOT / changed, tree / changed)
            changed = None
            outputs.clear()

    for line, language, content, before in blocks(page):
        if not (language == "console" and before == "```"):  # an edit lasts for the blocks right after it
            take_back()
        if language == "diff":
            changed, text = edited(page, line, content)
            (tree / changed).write_text(text)
            outputs.clear()
        elif language == "console":
            compare(page, line, content, before, outputs, tree)
        elif not language:
            for command in content:
                skipped = command.startswith("conda ") or needs_what_is_not_here(command) or command in has_run
                status, output = (0, []) if skipped else run_once(command, outputs, tree)
                if status != 0:
                    complain(page, line, f"{command}: exit {status}: {output[-1]}")
    take_back()


def check_compiled_alone(page, name, tree):
    """After an edit, ./learn compiles a .cpp file alone: no generated file in build/together includes it."""
    joined = [file.name for file in (tree / "build/together").glob("*.cpp") if f'"{name}"' in file.read_text()]
    if joined:
        complain(page, 1, f"the edit of {name} compiles all of {joined}")


def check_written(page, tree):
    """What stands between <!-- written by COMMAND --> and <!-- end --> is the output of the command."""
    for command, written in re.findall(r"<!-- written by (.*?) -->\n(.*?)<!-- end -->", page.read_text(), re.S):
        if "\n".join(run(command, tree)[1]).rstrip() != written.rstrip():
            complain(page, 1, f"is not what it writes: {command}")


def needs_what_is_not_here(command):
    return "stories260K.bin" in command and not STORIES260K.exists()


def compare(page, line, content, before, outputs, tree):
    command = content[0].removeprefix("$ ")
    if needs_what_is_not_here(command):
        print(f"{page.relative_to(ROOT)}:{line}: not run without STORIES260K: {command}")
        return
    if before == "<!-- volatile -->" and re.match(r"\./learn (experiment|bench)", command):
        return  # they take minutes; tests/checks/programs and .ci/run make a few steps of them
    output = run_once(command, outputs, tree)[1]
    check_names_step(page, line, content, output)
    if before != "<!-- volatile -->":
        expected = [re.sub(r"\s+<- .*", "", text).rstrip() for text in content[1:]]  # without remarks
        trouble = matches(expected, [text.rstrip() for text in output])
        if trouble:
            complain(page, line, f"{command}\n    {trouble}")


def check_names_step(page, line, content, output):
    """An excerpt begins with the heading of its step, whose number --only takes."""
    shown = [text for text in content[1:] if text != "..."]
    if shown and any(text.startswith("── ") for text in output) and not re.match(r"── \d+\. |\S+: ", shown[0]):
        complain(page, line, f"{content[0]}: the excerpt does not begin with the heading of a step")


def edited(page, line, content):
    """The file's path and its text with the diff's - lines replaced by its + lines."""
    name = content[0].removeprefix("--- ")
    old = "\n".join(text[1:] for text in content[1:] if text.startswith("-"))
    new = "\n".join(text[1:] for text in content[1:] if text.startswith("+"))
    source = (ROOT / name).read_text()
    if source.count(old) != 1:
        complain(page, line, f"the lines to change stand {source.count(old)} times in {name}")
    return name, source.replace(old, new)


def copy_tree(folder):
    """A copy of the tree that may be edited; its build folder survives from run to run."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split("\n")
    for top in ("chapters", "common", "tests"):
        for path in (folder / top).rglob("*.*"):
            if not (ROOT / path.relative_to(folder)).exists():
                path.unlink()
    for name in filter(None, files):
        source, target = ROOT / name, folder / name
        if source.exists() and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    listed = folder / "build/edited_files"
    if not listed.exists():  # these are compiled alone from the beginning
        listed.parent.mkdir(parents=True, exist_ok=True)
        names = {content[0].removeprefix("--- ") for page in PAGES for _, language, content, _ in blocks(page) if language == "diff"}
        listed.write_text("".join(f"{name}\n" for name in sorted(names) if name.endswith(".cpp")))
    for file in (STORIES260K, STORIES260K.with_name("tok512.bin")):
        if file.exists():
            shutil.copy(file, folder)


def main():
    if sys.argv[1:] == ["static"]:
        for page in PAGES:
            check_code(page)
            check_links(page)
            check_reading_order(page)
            check_terms(page)
            check_sentences(page, lambda command: None)
        check_map()
        check_exercises()
        check_names_of_tests()
    else:
        page, folder = ROOT / sys.argv[1], Path(sys.argv[2])
        copy_tree(folder)
        check_console(page, folder)
    for problem in problems:
        print(problem)
    print(f"processor seconds: {sum(os.times()[:4]):.1f}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
