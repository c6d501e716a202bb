"""./learn walk."""

import re

import pytest

from running import ROOT, run

pytestmark = pytest.mark.programs("walk")


@pytest.fixture(scope="module")
def lines(program):
    return run([program]).stdout.split("\n")


def test_it_shows_lines_that_stand_in_the_lessons(lines):
    shown = 0
    for place, code, following in zip(lines, lines[1:], lines[2:]):
        match = re.fullmatch(r"(chapters/\d\d_\w+/\w+\.[ch]pp), ([\w:]+)(\(\))?:", place)
        if not match:
            continue
        shown += 1
        source = (ROOT / match[1]).read_text()
        for line in [code, following] if following.startswith("> ") else [code]:
            assert line.startswith("> ") and line[2:] in source, place
        assert match[2].split("::")[0] in source
    assert shown >= 12


def test_it_fits_into_80_columns(lines):
    assert not [line for line in lines if len(line) > 80]


def test_it_ends_with_the_prediction_of_chapter_09(lines):
    assert any(re.fullmatch(r"Moses +494 +10\.00 +0\.581", line) for line in lines)


def titles(lines):
    return [line for line in lines if line.startswith("──")]


@pytest.mark.parametrize("options", (["--prompt", "And he"], ["--layer", "0", "--head", "0"],
                                     ["--layer", "3", "--head", "5"],
                                     ["--prompt", "ü <s> a\n"]))
def test_other_texts_layers_and_heads_have_the_same_steps(program, lines, options):
    other = run([program, *options])
    assert other.returncode == 0, other.stderr
    same = [re.sub(r"layer \d", "layer 2", line) for line in titles(other.stdout.split("\n"))]
    assert same == titles(lines)


def test_max_length_cuts_the_text(program):
    assert run([program, "--max-length", "3"]).stdout == \
        run([program, "--prompt", "And the LORD"]).stdout
