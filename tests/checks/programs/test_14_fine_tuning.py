"""Chapter 14's program."""

import pytest

from running import run

pytestmark = pytest.mark.programs("14_fine_tuning")


def test_beta_changes_grpo_and_nothing_before_it(program):
    steps = "--base-steps 20 --sft-steps 10 --grpo-steps 6 --plots none".split()
    weak, strong = (run([program, *steps, "--beta", beta]).stdout for beta in ("0", "9"))
    weak, strong = (text.split("GRPO: the model sees rewards") for text in (weak, strong))
    assert weak[0] == strong[0] and weak[1] != strong[1]
