"""Chapter 15's program, with what it measures."""

import pytest

from running import output_of

pytestmark = pytest.mark.programs("15_fast")


def test_with_timing_it_prints_more_and_draws_the_roofline(program, tmp_path):
    output = output_of([program, "--plots", tmp_path])
    assert "tokens per second" in output
    assert max(map(len, output.split("\n"))) <= 100
    assert (tmp_path / f"{program.name}_roofline.svg").exists()


def test_with_model_it_only_generates(program, inputs):
    output = output_of([program, "--model", inputs["model"], "--tokenizer", inputs["tokenizer"],
                        "--prompt", "a b", "--max-new-tokens", "999"])
    assert output.count("──") == 2
