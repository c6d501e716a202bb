"""Each chapter's program without options: its tensors, figures and plain output."""

import re

import pytest

from running import CHAPTERS, ROOT, run, titles_of_steps, without_speed

pytestmark = pytest.mark.programs(*CHAPTERS)

# The programs whose --only and --quiet are compared with the whole output: the code is common
# to all. The second writes text.
WITH_SELECTION = pytest.mark.programs("05_gqa", "11_generation", "23_structured_output")


def test_it_ends_well_and_prints_no_colors_in_a_pipe(default_run):
    result = default_run.result
    assert result.returncode == 0 and not result.stderr and "\x1b" not in result.stdout


def test_it_saves_the_tensors_that_it_shows(default_run):
    shown = set(re.findall(r"^([\w.]+): \((?:\d+, ?)*\d*\)(?:, of which .*)?\n(?: *\{|  +\w)",
                           default_run.text, re.M))
    assert {file.stem for file in default_run.tensors.iterdir()} == shown
    assert all(file.suffix == ".npy" for file in default_run.tensors.iterdir())


def test_its_page_lists_the_tensors_that_it_saves(program, default_run):
    page = (ROOT / "docs" / f"{program.name}.md").read_text()
    table = page.split("## Tensor shapes")[1].split("\n## ")[0]
    missing = [file.stem for file in default_run.tensors.iterdir()
               if f"`{file.stem}`" not in table]
    assert not missing


def test_its_figures_have_its_name_and_are_svg_and_png(program, default_run):
    drawn = {file.name for file in default_run.plots.iterdir()}
    for name in drawn:
        assert name.startswith(program.name)
        assert f"{name[:-3]}png" in drawn and f"{name[:-3]}svg" in drawn


def test_its_lines_have_at_most_80_characters(default_run):
    # The text of a model is not wrapped.
    without_text = re.sub(r"── \d+\. The generated text ──.*?tokens generated"
                          r"|── \d+\. Greedy generation ──.*?\nmodel ",
                          "", default_run.text, flags=re.S)
    assert not [line for line in without_text.split("\n") if len(line) > 80]


def test_the_seed_changes_the_output(default_run):
    other = run([*default_run.command, "--plots", "none", "--seed", "78"]).stdout
    first = default_run.text.split("\nFigures:")[0]
    assert without_speed(other).rstrip() != without_speed(first).rstrip()


def list_of_steps(text):
    return [f"{number:3} {title}" for number, title in enumerate(titles_of_steps(text), 1)]


def test_only_lists_the_steps_if_there_is_none_with_its_number(program, default_run):
    listed = list_of_steps(default_run.text)
    beyond = run([*default_run.command, "--only", "999"])
    assert beyond.returncode == 2
    assert beyond.stdout.split("\n")[:-1] == listed
    assert beyond.stderr == \
        f"{program.name}: --only takes a step from 1 to {len(listed)}, not 999\n"
    # With the number and the lines, a heading is longer by 4.
    assert not [line for line in listed if len(line) > 76]


@WITH_SELECTION
def test_only_0_lists_the_steps(default_run):
    result = run([*default_run.command, "--only", "0"])
    listed = "".join(f"{line}\n" for line in list_of_steps(default_run.text))
    assert (result.returncode, result.stdout, result.stderr) == (0, listed, "")


def expect_step(default_run, number):
    text = default_run.text.split("\nFigures:")[0]
    steps = ["\n── " + step for step in text.split("\n── ")[1:]]
    only = run([*default_run.command, "--only", str(number)])
    assert only.returncode == 0 and not only.stderr
    assert only.stdout.rstrip() == steps[number - 1].rstrip()


def test_only_prints_one_step_of_the_run(default_run):
    expect_step(default_run, 1)


@WITH_SELECTION
def test_only_prints_a_step_in_the_middle(default_run):
    expect_step(default_run, (len(titles_of_steps(default_run.text)) + 1) // 2)


@WITH_SELECTION
def test_quiet_prints_generated_text_only(default_run):
    quiet = run([*default_run.command, "--quiet"])
    generated = re.search(r"── \d+\. (?:The generated text|Greedy generation) ──\n"
                          r"(.*?)(?:tokens generated|model  +tokens per)",
                          default_run.text, re.S)
    assert quiet.returncode == 0 and not quiet.stderr
    assert quiet.stdout == (generated[1] if generated else "")
