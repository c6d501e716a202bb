"""Chapter programs in a terminal: pages, prompts and colors."""

import re

import pytest

from running import run
from terminal import run_in_terminal

pytestmark = pytest.mark.programs("01_masking", "05_gqa")


def test_with_step_no_line_leaves_the_screen_before_enter_was_pressed(program):
    code, output = run_in_terminal([program, "--plots", "none", "--step"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for page in text.split("[Enter] "):
        for cleared in ("\n\x1b[A\n\x1b[2K", "\n\x1b[A\r\x1b[2K"):
            page = page.removeprefix(cleared)
        page = page.lstrip("\n")
        height = sum(max(1, -(-len(line) // 80)) for line in page.split("\n")[:-1])
        assert height <= 23, page
    assert code == 0
    assert "[Enter] " in text and "colors: " in text and "── 1. " in text
    # Lines with colors are not wider than without them.
    assert not [line for line in text.split("\n") if "colors: " in line and len(line) > 80]


def test_there_are_no_colors_with_no_color_or_in_a_pipe(program):
    assert "\x1b" not in run([program, "--plots", "none"]).stdout
    assert "\x1b[" not in run_in_terminal([program, "--plots", "none"], NO_COLOR="1")[1]
