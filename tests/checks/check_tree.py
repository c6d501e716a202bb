#!/usr/bin/env python3
"""Checks the rules of the tree that no compiler checks. Usage: check_tree.py BUILD_FOLDER"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLUGS = re.findall(r"^(\d\w+) \|", (ROOT / "chapters/contents.txt").read_text(), re.M)
QUESTIONS = dict(re.findall(r"^(\d\w+) \| .* \| (.*)$", (ROOT / "chapters/contents.txt").read_text(), re.M))
problems = []


def files(*folders):
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.[ch]pp"))]


def complain(file, text):
    problems.append(f"{file.relative_to(ROOT)}: {text}")


def chapters_are_complete():
    for slug in SLUGS:
        for name in ("main.cpp", "exercise.hpp", "exercise.cpp", "solution.cpp"):
            if not (ROOT / "chapters" / slug / name).exists():
                complain(ROOT / "chapters" / slug, f"lacks {name}")
        first = (ROOT / "chapters" / slug / "main.cpp").read_text().split("\n")[0]
        if f" — {QUESTIONS[slug]}" not in first:
            complain(ROOT / "chapters/contents.txt", f"has another question of {slug} than its main.cpp")
        for name in (f"tests/chapters/{slug}", f"tests/exercises/{slug}.cpp", f"docs/{slug}.md"):
            if not (ROOT / name).exists():
                complain(ROOT, f"chapter {slug} lacks {name}")
        if not list((ROOT / "assets").glob(f"{slug}_*")):
            complain(ROOT / "assets", f"has no figure of {slug}")
    for file in files("chapters", "common"):
        lines = len(file.read_text().split("\n"))
        if lines > 301:
            complain(file, f"has {lines - 1} lines, a file at most 300")
    folders = sorted(folder.name for folder in (ROOT / "chapters").iterdir() if folder.is_dir())
    if folders != sorted([*SLUGS, "apps", "experiments", "models"]):
        complain(ROOT / "chapters", f"holds {folders}, contents.txt lists {SLUGS}")


def includes_point_backward():
    for file in files("chapters", "common"):
        top, own = file.relative_to(ROOT).parts[:2]
        if top == "common":
            own = ""
        lesson = own and own in SLUGS and file.name != "main.cpp" and file.parent.name != "demo"
        for name in re.findall(r'^#include ["<](.*)[">]', file.read_text(), re.M):
            other = name.split("/")[1] if name.startswith("chapters/") else ""
            if other in SLUGS and (own == "" or own in SLUGS) and other > own:
                complain(file, f"includes a later chapter: {name}")
            if (lesson or own == "") and re.match(r"chapters/.*/demo/|chapters/(apps|experiments|models)/", name):
                complain(file, f"includes {name}, which is no lesson")
            if own and not {"bench", "serve"} & set(file.parts) and re.match(r"(xtensor(-blas)?|xtl|fmt|CLI|nlohmann|doctest|tests)/|unistd|sys/|csignal|cstdio|future|mutex|filesystem|\w*stream$|thread", name):
                complain(file, f"includes {name}, which belongs into common/")
            if not own and file.suffix == ".hpp" and re.match(r"(fmt|CLI|nlohmann)/(?!json_fwd)", name):
                complain(file, f"includes {name}, which belongs into a .cpp file")


def defined_types(text):
    """(namespace, name) of each type that a file defines outside of unnamed namespaces."""
    spaces = []
    for line in text.split("\n"):
        if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
            spaces.append(opened[1])
        elif re.match(r"\}  // namespace", line):
            spaces.pop()
        elif spaces and "" not in spaces:
            if found := re.match(r"(?:struct|class|enum class|enum|union) (\w+)(?: final)?(?: :[^:].*)? \{|using (\w+) =", line):
                yield "::".join(spaces), found[1] or found[2]


def types_are_defined_once():
    """Two types of one name in one namespace, with different members, link into one program without an error, and one of
    them is then copied and destroyed as the other (the one-definition rule). Each app and models have their own namespace."""
    first = {}
    for file in files("chapters", "common"):
        if file.stem in ("exercise", "solution"):
            continue
        parts = file.relative_to(ROOT / "chapters").parts if file.is_relative_to(ROOT / "chapters") else ("common",)
        for place in set(defined_types(file.read_text())):
            other = first.setdefault(place, file)
            if other != file:
                complain(file, f"defines {'::'.join(place)}, as {other.relative_to(ROOT)} does")
            if parts[0] in ("apps", "models") and place[0] == "llm":
                complain(file, f"defines {place[1]} in llm, not in a namespace of its own")


FOLDERS_OF_TESTS = ("chapters", "models", "experiments", "apps", "common")  # they mirror the tree
OTHER_FOLDERS = ("exercises", "support", "checks")


def test_files():
    for file in files("tests"):
        place = file.relative_to(ROOT / "tests").parts[0]
        if place in FOLDERS_OF_TESTS:
            yield file
        elif place not in OTHER_FOLDERS:
            complain(file, f"is in none of the folders {', '.join(FOLDERS_OF_TESTS + OTHER_FOLDERS)} of tests/")


def executable(file):
    """The executable of a test file: tests/chapters/13_training/muon.cpp is a part of test_13_training."""
    return f"test_{file.parent.name}" + ("_in_double" if file.stem.startswith(("finite_differences", "in_double")) else "")


def names_differ_by_more_than_an_s():
    for file in files("chapters", "common", "tests"):
        if list(file.parent.glob(f"{file.stem}s.[ch]pp")):
            complain(file, f"has the name of {file.stem}s.{file.suffix[1:]}, but for an s")


def every_test_runs(build):
    """doctest counts the tests that are in the files, its --test-case can select each, and CTest runs each executable."""
    titles = {}  # of each executable
    for file in test_files():
        # A long title is several literals, one a line.
        literals = re.findall(r'TEST_CASE\(((?:\s*"(?:[^"\\]|\\.)*")+)\)', file.read_text())
        titles[executable(file)] = titles.get(executable(file), 0) + len(literals)
        for title in literals:
            if re.search(r"[;*\[\]\\]", "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', title))):
                complain(file, f"a title that --test-case cannot select: {title.strip()}")
    for name, total in titles.items():
        count = subprocess.run([build / name, "--count"], check=True, stdout=subprocess.PIPE, text=True).stdout
        if f"filters: {total}\n" not in count:
            complain(ROOT / "tests", f"{name} has {total} titles, doctest counts: {count.strip()}")
    listing = subprocess.run(["ctest", "-N", "-LE", "maintainer|browser|mpi"], cwd=build, check=True, stdout=subprocess.PIPE, text=True)
    run = {f"test_{name.replace('.', '_')}" for name in re.findall(r"Test +#\d+: (\S+)", listing.stdout)}
    for name in run ^ set(titles):
        complain(ROOT / "tests", f"{name} is {'not run by CTest' if name in titles else 'run by CTest and has no title'}")


# Names and phrases that this project once coined, with what the field says instead. They must not
# come back. docs/contributing.md tells how to choose a name.
RETIRED_NAMES = {
    r"there_and_back": "forward_backward", r"rotate_back": "rope_backward", r"Placement": "AttentionInputs",
    r"placed(_\w+)?": "rotated", r"place_and_keep": "update_kv_cache", r"Taken": "activations",
    r"Desk": "workspace", r"room_for": "ensure_capacity", r"FastState": "RunState", r"look_inside": "ModelOutput",
    r"PackedMatrix": "WeightMatrix", r"pack_together": "fuse", r"rungs?": "matmul variants",
    r"product_in_lanes": "matmul_simd", r"attend_blockwise": "flash_attention", r"in_parallel": "parallel_for",
    r"likeliest": "argmax", r"Writing": "GenerationConfig", r"longest_gradient": "max_grad_norm",
    r"clear_gradients": "zero_grad", r"Choices": "AblationConfig",
    r"learn_tokenizer": "train_bpe", r"join_pairs": "apply_merges", r"NumberType": "DType", r"ModelConfig": "Config",
    r"hide_padding": "mask_padding", r"draw_normal": "init_normal", r"operations_per_token": "flops_per_token"}
RETIRED_PHRASES = {
    r"ways? back": "backward pass", r"way there": "forward pass", r"there and back": "forward and backward pass",
    r"hands? (it|them|the gradient )?on\b": "passes to its input", r"behind": "after", r"bent|bends?": "activated",
    r"likeliest": "most likely", r"ladder": "variants", r"rungs?": "variants",
    r"ledger": "table of tensor shapes", r"the bridge": "converting weights between RoPE layouts", r"desks?": "workspace",
    r"turned on its side": "transposed", r"turned by": "rotated by", r"nobody|everybody": "no token, each token",
    r"for itself": "independently, elementwise", r"what becomes of": "the result", r"keys looked at": "effective number of keys",
    r"the road": "residual stream", r"drawn (with|from|anew|again)": "sampled, initialized",
    r"\w*(normalis|optimis|initialis|recognis|summaris|serialis|organis)\w+": "American spelling",
    r"\w*(neighbour|colour|behaviour)\w*|centred?|labelled|modelling|grey": "American spelling"}


def retired_language_stays_retired():
    names = re.compile(r"\b(" + "|".join(RETIRED_NAMES) + r")\b")
    phrases = re.compile(r"(?<![\w/.-])(" + "|".join(RETIRED_PHRASES) + r")(?![\w/-])", re.I)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, listed.split("\n")):
        file = ROOT / name
        prose = name.endswith(".md") or name in ("learn", ".ci/run")
        code = re.search(r"\.[ch]pp$|\.py$|\.sh$|\.mjs$|CMakeLists.txt$", name)
        if not file.exists() or not (prose or code) or name == "tests/checks/check_tree.py":
            continue
        for number, line in enumerate(file.read_text().split("\n"), 1):
            found = phrases.search(line) or (code and names.search(line))
            if found:
                table = {**RETIRED_NAMES, **RETIRED_PHRASES}
                better = next(word for pattern, word in table.items() if re.fullmatch(pattern, found[1], re.I))
                complain(file, f"line {number}: \"{found[1]}\" is retired, say: {better}")


def nothing_names_a_machine():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    for name in filter(None, names):
        text = (ROOT / name).read_bytes()
        for pattern in (rb"/home/\w", rb"/root/", rb"/work/", rb"/Users/\w"):
            if name != "tests/checks/check_tree.py" and re.search(pattern, text):
                complain(ROOT / name, f"holds a path of some machine: {pattern.decode()}")
        if name.endswith((".cpp", ".hpp", ".py")) and "exercise" not in name and re.search(rb"TODO|FIXME", text):
            if name != "tests/checks/check_tree.py":
                complain(ROOT / name, "holds a TODO")


def main():
    build = Path(sys.argv[1])
    chapters_are_complete()
    includes_point_backward()
    types_are_defined_once()
    retired_language_stays_retired()
    names_differ_by_more_than_an_s()
    every_test_runs(build)
    nothing_names_a_machine()
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
