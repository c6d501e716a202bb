"""Chapter 22's program: a verification step with another prompt, draft and K."""

import pytest

from running import output_of

pytestmark = pytest.mark.programs("22_speculation")


@pytest.mark.parametrize("layers", (1, 2, 3))
@pytest.mark.parametrize("num_proposals", (1, 16))
def test_each_position_is_accepted_replaced_or_not_used(program, layers, num_proposals):
    """Accepted tokens first, then one that is replaced or a bonus, then the rest."""
    output = output_of([program, "--only", "2", "--prompt", "And the king said", "--draft-layers",
                        str(layers), "--num-proposals", str(num_proposals)])
    rows = output.split("result\n")[1].strip().split("\n")
    assert len(rows) == num_proposals + 1
    results = "".join({"accepted": "a", "replaced": "r", "token": "b", "used": "n"}[row.split()[-1]]
                      for row in rows)
    assert results.strip("a").lstrip("rb").strip("n") == ""
    assert sum(result in "rb" for result in results) == 1
