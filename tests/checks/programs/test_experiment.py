"""./learn experiment with a short text and a few steps."""

import pytest

from inputs import write_short_text
from running import ROOT, output_of, run
from terminal import expect_interrupt

pytestmark = pytest.mark.programs("experiment")


@pytest.fixture(scope="module")
def short_text(scratch):
    return write_short_text(scratch)


@pytest.mark.parametrize("name, options, shown", (
    ("attention-sinks", "--num-seeds 1", "learned sinks"),
    ("longer-contexts", "--factor 2 --train-len 300 --num-seeds 2", " 511\nnone "),
    ("latent-attention", "--num-seeds 1", "latent, 32 cached, equal parameters"),
    ("linear-attention", "--num-seeds 1", "gated delta rule"),
    ("multi-token-prediction", "", "validation loss")))
def test_it_runs(program, name, options, shown, short_text, tmp_path):
    output = output_of([program, "--name", name, "--text", short_text, "--steps", "2",
                        *options.split(), "--plots", tmp_path])
    assert shown in output


def test_recall_runs(program, tmp_path):
    output = output_of([program, "--name", "recall", "--steps", "2", "--num-seeds", "1",
                        "--plots", tmp_path])
    assert "gated delta rule" in output


def test_experts_writes_a_model_that_generates(program, short_text, tmp_path):
    trained = tmp_path / "trained_experts"
    output = output_of([program, "--name", "experts", "--text", short_text, "--steps", "2",
                        "--num-seeds", "1", "--export", trained, "--plots", tmp_path / "plots"])
    assert "4 of 16" in output
    written = run([program.parent / "model", "--model", trained, "--tokenizer",
                   ROOT / "assets/king_james/tokenizer.json", "--prompt", "And God",
                   "--max-new-tokens", "3"])
    assert written.returncode == 0 and "And God" in written.stdout, written.stderr


HELD_OUT = ROOT / "assets/data/king_james_held_out.txt"


@pytest.mark.parametrize("name, options, moment", (
    ("ablations", [], r"── \d+\. Norm"),
    ("mup", [], r"── \d+\. Coordinate"),
    ("scaling-law", ["--text", "short"], r"── \d+\. A scaling law"),
    ("longer-contexts", ["--text", HELD_OUT, "--factor", "2", "--train-len", "400"],
     r"── \d+\. Fine-tuning")))
def test_ctrl_c_ends_it_soon(program, name, options, moment, short_text, tmp_path):
    options = [short_text if option == "short" else option for option in options]
    expect_interrupt([program, "--name", name, *options, "--plots", "none"], moment,
                     tmp_path / "interrupted")
