"""The programs of chapters 17 and 18, which read published models."""

import pytest

from inputs import write_short_text
from running import ROOT, output_of, run

MODELS = {"17_long_context": ("mistral", "gemma2", "gemma3_text"),
          "18_experts": ("mixtral", "qwen3_moe", "gpt_oss", "gpt_oss_mxfp4", "llama4_text")}

pytestmark = pytest.mark.programs(*MODELS)


def test_the_copy_of_a_model_shows_the_same_logits(program, tmp_path):
    for model_type in MODELS[program.name]:
        model = ROOT / "tests/fixtures" / program.name / model_type
        copy = tmp_path / f"copy_of_{model_type}"
        first, second = (
            run([program, "--model", folder, "--tokens", "3,1,4,1,5,9,2,6", *options]).stdout
            for folder, options in ((model, ["--export", copy]), (copy, [])))
        first, second = (text.split("exported")[0] for text in (first, second))
        assert first == second and "next token" in first, model_type


@pytest.mark.programs("17_long_context")
def test_measure_measures_windows(program):
    assert "window of 128" in output_of([program, "--measure", "--plots", "none"])


@pytest.mark.programs("17_long_context")
def test_factor_1_extends_nothing(program, tmp_path):
    output = output_of([program, "--factor", "1", "--text", write_short_text(tmp_path),
                        "--only", "13", "--plots", tmp_path / "plots"])
    assert "none  " in output


@pytest.mark.programs("18_experts")
@pytest.mark.parametrize("options, shown", (
    ("", "\nbias update"), ("--num-experts 3 --aux-loss-coef 0.5", "\nauxiliary loss")))
def test_collapse_trains_routers(program, options, shown, tmp_path):
    command = [program, "--collapse", *options.split(), "--plots", tmp_path / "plots"]
    assert shown in output_of(command)


@pytest.mark.programs("18_experts")
def test_experts_of_a_text_are_counted(program, tmp_path):
    output = output_of([program, "--text", write_short_text(tmp_path), "--only", "9",
                        "--plots", tmp_path / "plots"])
    assert "newline" in output
