"""What ./learn shows in a terminal: the map of the chapters, edits, the progress of builds."""

import re
import shutil
import signal
import subprocess
import time

import pytest

from running import CHAPTERS, ROOT, run
from terminal import run_in_terminal

pytestmark = pytest.mark.programs("learn")


@pytest.fixture(scope="module")
def clone(scratch):
    """A clone in which each program prints "ran" and its options. No chapter was run."""
    clone = scratch / "clone_with_scripts"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    (clone / "learn").write_bytes((ROOT / "learn").read_bytes())
    build = clone / "build"
    build.mkdir()
    (build / "CMakeCache.txt").write_text(
        f"CMAKE_PROJECT_NAME:STATIC=x\nCMAKE_HOME_DIRECTORY:INTERNAL={clone}\n"
        "CMAKE_GENERATOR:INTERNAL=Ninja\n"
        f"CMAKE_MAKE_PROGRAM:FILEPATH={shutil.which('ninja')}\n")
    programs = {slug: f"../chapters/{slug}/main.cpp" for slug in CHAPTERS}
    programs["walk"] = "../chapters/apps/walk/main.cpp"
    (build / "build.ninja").write_text(
        "rule script\n"
        "  command = printf '#!/bin/sh\\necho ran \"$$@\"\\n' >$out && chmod +x $out\n" +
        "".join(f"build {name}: script {source}\n" for name, source in programs.items()))
    return clone


def test_the_map_has_the_chapters_that_were_run_and_what_comes_next(clone):
    """A run in a terminal ends with what comes next."""
    learn, first, second = clone / "learn", *CHAPTERS[:2]
    programs = [(clone / "chapters" / slug / "main.cpp").read_text() for slug in CHAPTERS]
    questions = [re.search("— ([^?]*[?])", text)[1] for text in programs]
    exercises = (clone / "chapters" / first / "exercise.cpp").read_text()
    count = len(re.findall(r"^// Exercise \d", exercises, re.M))

    def expect(command, *parts, absent=()):
        code, text = run_in_terminal([learn, *command])
        assert code == 0, text
        assert not [part for part in parts if part not in text], text
        assert not [part for part in absent if part in text], text

    next_is_1 = "\nnext: ./learn read 1, then ./learn 1\n"
    expect(["list"], f"   - {first} ", next_is_1, *CHAPTERS[:20], *questions[:20],
           "     chapters 21 to 28: ./learn list | less shows all", absent=CHAPTERS[20:])
    expect([], "./learn walk: what happens", "ran --step\n\nnext: ./learn walk",
           "then ./learn read 1", absent=[second])
    expect([], f"   - {first} ", next_is_1, absent=["ran"])
    code, text = run_in_terminal([learn, "list"])
    assert text.count("\n") <= 23
    expect(["1"], "ran\n", "./learn 1 --step shows one step after the other",
           "\nnext: ./learn exercise 1, then\n")
    expect([], f" 0/{count} {first} ", absent=["ran"])
    expect(["1", "--step"],
           f"ran --step\n\nnext: ./learn exercise 1, then\n      ./learn 2 — {questions[1]}\n")
    for option in ("--help", "--quiet", "--only"):
        expect(["1", option, "1"], f"ran {option} 1\n", absent=["next:"])
    expect(["2", "--help"], "ran --help\n")
    expect(["list"], f"   - {second} ")  # --help is no run
    (clone / "build/progress").mkdir(exist_ok=True)
    (clone / "build/progress" / first).write_text(f"{count} of {count}\n")
    expect(["list"], f" {count}/{count} {first} ", f"\nnext: ./learn 2 — {questions[1]}\n")


def test_in_a_pipe_a_run_does_not_end_with_what_comes_next(clone):
    result = run([clone / "learn", "1"])
    assert (result.returncode, result.stdout) == (0, "ran\n") and "next" not in result.stderr
    listed = run([clone / "learn", "list"], cwd="/").stdout
    assert not [line for line in listed.split("\n") if len(line) > 80]


def test_watch_clears_the_screen_and_shows_at_most_10_lines_of_the_edits(clone):
    lesson, edits = clone / "chapters" / CHAPTERS[0] / "main.cpp", []

    def act(output):
        if not edits and "watching the files" in output:
            time.sleep(1.1)  # file times may have a resolution of a second
            edits.append(output)
            lesson.write_text(lesson.read_text() + "".join(f"// edit {i}\n" for i in range(20)))
        return signal.SIGINT if "more lines" in output else None

    code, text = run_in_terminal([clone / "learn", "watch", "1"], act)
    after = text.split("\x1b[H\x1b[2J")[-1]
    shown = after.split("Your edits")[-1].split("\n")[1:]
    assert code == 0 and text.count("\x1b[H\x1b[2J") == 2
    assert after.startswith("ran\n") and "+// edit 0" in shown
    assert len([line for line in shown if line and "^C" not in line]) == 10
    assert shown[9] == "... 12 more lines"


def write_build(folder, seconds):
    """A script that shows the progress of a build, which pauses for some seconds."""
    script = folder / "progress.sh"
    script.write_text(f"""source {ROOT}/common/learn/progress.sh
        work() {{
            printf '@1/8 a\\n'
            sleep {seconds}
            printf '@2/8 b\\nan error\\n'
            sleep 2 # the line is updated once per second
            printf '@6/8 c\\n'
            sleep 2
            printf 'the end'
        }}
        begin_progress building; work | follow_progress {folder}/errors.txt
        echo done in $((SECONDS - progress_started)) s""")
    return script


def test_the_progress_of_a_build_is_on_one_line_of_a_terminal(tmp_path):
    code, text = run_in_terminal(["bash", str(write_build(tmp_path, 5))])
    clear = "\r\x1b[2K"
    assert code == 0 and "\n" not in text.removesuffix("\n")
    done = re.search(rf"{re.escape(clear)}done in (\d+) s", text)
    assert done and f"{clear}building: 1/8, 12 %{clear}" in text
    # The pause takes 5 seconds, on a busy machine more.
    seconds = range(5, int(done[1]) + 1)
    assert any(f"building: 2/8, 25 %, 0:{3 * n:02} left" in text for n in seconds)
    assert any(f"building: 6/8, 75 %, 0:{int(n * (8 / 6 - 1)):02} left{clear}" in text
               for n in seconds)
    # Other output goes to a file.
    assert (tmp_path / "errors.txt").read_text() == "an error\nthe end\n"


def test_the_progress_of_a_build_in_a_pipe_is_a_line_every_ten_seconds(tmp_path):
    result = run(["bash", write_build(tmp_path, 11)])
    left = re.fullmatch(r"building: 1/8, 12 %, (.*) left\n", result.stderr)
    assert left and left[1] in ("1:10", "1:17"), result.stderr
