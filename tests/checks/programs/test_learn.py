"""The commands of ./learn, in a clone."""

import os
import re
import subprocess
import time

import pytest

from rejected_by_apps import EXPERIMENTS_REJECTED, LEARN_REJECTED
from running import CHAPTERS, ROOT, expect_rejection, run
from terminal import run_in_terminal

pytestmark = pytest.mark.programs("learn")


@pytest.fixture(scope="module")
def learn(scratch):
    clone = scratch / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    (clone / "learn").write_bytes((ROOT / "learn").read_bytes())
    return clone / "learn"


@pytest.mark.parametrize("arguments, message", LEARN_REJECTED)
def test_invalid_commands_are_rejected(program, arguments, message):
    expect_rejection([program, *arguments.split()], message)


def test_a_file_of_cmake_dated_in_the_future_is_named_at_once(learn):
    file = learn.parent / "common/cmake/simd.cmake"
    later = time.time() + 7200
    os.utime(file, (later, later))
    expect_rejection([learn, "1"], "the time of the file common/cmake/simd.cmake is in the future: check the clock")
    os.utime(file)


@pytest.mark.parametrize("slug", CHAPTERS)
def test_each_exercise_has_a_hint_and_a_solution(learn, slug):
    text = (ROOT / "chapters" / slug / "exercise.cpp").read_text()
    for number in re.findall(r"^// Exercise \d+\.(\d+) —", text, re.M):
        for option in ("--hint", "--solution"):
            result = run([learn, "exercise", slug, option, number])
            assert result.returncode == 0, result.stderr
            assert len(result.stdout) >= 20 and "<" not in result.stdout[:1], (option, number)


def test_reset_restores_the_file_and_keeps_a_backup(learn):
    file = learn.parent / "chapters" / CHAPTERS[0] / "exercise.cpp"
    pristine = file.read_text()
    file.write_text(pristine + "// my work\n")
    run([learn, "exercise", "1", "--reset"])
    backups = list(file.parent.glob("exercise.cpp.before-reset-*"))
    assert file.read_text() == pristine
    assert [backup.read_text() for backup in backups] == [pristine + "// my work\n"]
    assert "nothing to reset" in run([learn, "exercise", "1", "--reset"]).stdout


def test_help_fits_into_a_terminal_and_names_each_command_and_experiment(learn):
    text = run([learn, "help"]).stdout
    commands = re.findall(r"^    ([a-z_]+)\) ", learn.read_text().rpartition("case ")[2], re.M)
    listed = EXPERIMENTS_REJECTED[0][1].rpartition("experiment ")[2]
    experiments = re.split(r", | or ", listed)
    assert len(commands) >= 15 and len(experiments) >= 12
    assert not [name for name in commands + experiments if not re.search(rf"\b{name}\b", text)]
    assert text.count("\n") <= 23 and not [line for line in text.split("\n") if len(line) > 80]


def test_a_symbolic_link_works(learn, tmp_path):
    link = tmp_path / "link_to_learn"
    link.symlink_to(learn)
    assert run([link, "help"], cwd="/").stdout == run([learn, "help"]).stdout


@pytest.mark.parametrize("name", ("walk", "questions", "models", "contributing"))
def test_read_shows_other_pages_in_80_columns(learn, name):
    result = run([learn, "read", name])
    assert result.returncode == 0 and result.stdout.startswith("# "), result.stderr
    lines = result.stdout.split("\n")
    assert not [line for line in lines if len(line) > 80 and line[0] != " "]


@pytest.mark.parametrize("slug", CHAPTERS)
def test_read_shows_the_page_of_a_chapter_as_text(learn, slug):
    """Of 80 columns, with the paths of its figures and without folded hints."""
    page = (learn.parent / "docs" / f"{slug}.md").read_text()
    result = run([learn, "read", slug])
    text = result.stdout
    assert result.returncode == 0 and not result.stderr and "\x1b" not in text
    wide = [line for line in text.split("\n") if len(line) > 80]
    assert not [line for line in wide if not line.startswith("  ") or "13 train" in line]
    prose = re.sub(r"^  .*$|`[^`]*`", "", text, flags=re.M)
    assert not re.search(r"</?(details|summary)|\]\(|\*\*", prose)  # unconverted
    assert not re.findall(r"<!--.*|<br/>|\\(?![nxdhsSp]\b)[a-zA-Z]{2,}.*", prose)
    figures = re.findall(r"!\[[^]]*\]\(\.\./(assets/[^)]*)\)", page)
    assert not [figure for figure in figures if figure not in text]
    folded = re.findall(r"^<details>.*</summary>\n+(.*)", page.split("\n## Exercises")[1], re.M)
    assert folded and not [hint for hint in folded if hint in " ".join(text.split())]
    assert not re.search(r"^[|:-][-:| ]+$", prose, re.M)  # below the headings of a table
    hints = re.findall(r"^Hint: \./learn exercise \d+ --hint \d+$", text, re.M)
    assert len(hints) == len(re.findall(r"^### Exercise", page, re.M))


@pytest.mark.parametrize("slug", CHAPTERS)
def test_read_in_a_terminal_has_bold_headings(learn, slug):
    code, text = run_in_terminal([learn, "read", slug], PAGER="cat")
    assert code == 0 and text.startswith(f"\x1b[1m# {slug[:2]}")
    assert "\x01" not in text and "\x02" not in text
    assert not [line for line in text.split("\n")
                if line.count("\x1b[1m") != line.count("\x1b[0m")]


@pytest.mark.parametrize("options, message", (
    (["--bild"], "unknown option '--bild'"), (["--port"], "got ''"),
    (["--port", "80"], "got '80'"), (["--port", "65536"], "got '65536'"),
    (["--build"], "nothing was installed: repeat the command with --yes")))
def test_site_installs_nothing_that_was_not_agreed_to(learn, options, message):
    result = run([learn, "site", *options])
    assert result.returncode == 2 and message in result.stderr.strip().split("\n")[-1]
    assert not (learn.parent / "docs/node_modules").exists()
