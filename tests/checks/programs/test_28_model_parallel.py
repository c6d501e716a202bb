"""Chapter 28's program: the plan of a mesh without its steps."""

import pytest

from running import output_of

pytestmark = pytest.mark.programs("28_model_parallel")


@pytest.mark.parametrize("options", ("", "--config llama_3.1_405b --sequence-parallel",
                                     "--global-batch-size 1000 --micro-batch-size 3 --seq-len 1024"))
def test_a_plan_has_80_columns_and_no_steps(program, options):
    """With a group of four digits on each axis."""
    output = output_of([program, "--mesh", "data=64,pipeline=16,context=32,tensor=2",
                        *options.split()])
    assert "ranks: 65,536 = 64 data x 16 pipeline x 32 context x 2 tensor" in output
    assert "\u2500\u2500 1." not in output
    assert not [line for line in output.split("\n") if len(line) > 80]
