"""Chapter 09 with the checkpoints of the fixtures."""

import pytest

from running import ROOT, output_of

pytestmark = pytest.mark.programs("09_full_model")

FIXTURES = sorted((ROOT / "tests/fixtures/09_full_model").iterdir())
MODELS = [model for model in FIXTURES if model.suffix != ".npy"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_an_exported_model_has_the_same_logits(program, model, tmp_path):
    exported, saved, again = (tmp_path / name for name in ("exported", "saved", "again"))
    common = ["--tokens", "3,16,0", "--plots", "none"]
    output_of([program, "--model", model, "--export", exported, "--save", saved, *common])
    output_of([program, "--model", exported, "--save", again, *common])
    assert (saved / "logits.npy").read_bytes() == (again / "logits.npy").read_bytes()
