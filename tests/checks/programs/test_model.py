"""./learn model: what it shows of published models, and the files that it writes."""

import pytest

from running import ROOT, run

pytestmark = pytest.mark.programs("model")

KING_JAMES = ROOT / "assets/king_james"


def test_a_gguf_file_of_a_llama_shows_the_same_logits(program, tmp_path):
    gguf, tokens = tmp_path / "king_james.gguf", ["--tokens", "103,66,148"]
    shown = run([program, "--model", KING_JAMES, *tokens, "--gguf", gguf]).stdout
    again = run([program, "--model", gguf, *tokens]).stdout
    assert "parameters: 1,771,200" in shown and "next token" in shown
    assert shown.split("written")[0] == again


def test_the_size_of_a_folder_is_that_of_its_config_json(program):
    folder = ROOT / "tests/fixtures/models/gpt2"
    sizes = [run([program, "--size", path]).stdout.partition(" tokens ──\n")[2]
             for path in (folder, folder / "config.json")]
    assert len(sizes[0]) >= 500 and sizes[0] == sizes[1]


def test_it_writes_the_text_and_the_gguf_file_of_a_mixture_of_experts(program, tmp_path):
    gguf = tmp_path / "experts.gguf"
    text = run([program, "--model", ROOT / "assets/king_james_experts", "--tokenizer",
                KING_JAMES / "tokenizer.json", "--prompt", "And God", "--temperature", "0",
                "--max-new-tokens", "5", "--gguf", gguf, "--dtype", "q8_0"])
    assert text.returncode == 0, text.stderr
    assert "active per token: 252,480" in text.stdout and "And God" in text.stdout
    assert "written: " in text.stdout and gguf.exists()
