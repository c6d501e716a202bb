"""Chapter 21's program: a schedule of requests without a model."""

import pytest

from running import output_of

pytestmark = pytest.mark.programs("21_serving")


@pytest.mark.parametrize("options", ("", "--static-batching",
                                     "--no-prefix-cache --max-sequences 4", "--quiet"))
def test_requests_are_planned_in_80_columns(program, options):
    """The last step is a table of all."""
    output = output_of([program, "--requests", "8+13+9 8+3+30@2 40+6@2 3+3@3-9", "--page-size",
                        "4", "--num-pages", "24", *options.split()])
    assert ("All steps" in output) == (options != "--quiet")
    assert not [line for line in output.split("\n") if len(line) > 80]
