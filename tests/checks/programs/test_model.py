"""./learn model: what it shows of published models, and the files that it writes."""

import struct

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


def numbers_of(file, kind):
    """The elements of a .npy file, after its header."""
    data = file.read_bytes()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    return [number for number, in struct.iter_unpack(kind, data[begin:])]


def test_an_encoder_shows_its_parameters_and_is_exported(program, tmp_path):
    shown = run([program, "--model", ROOT / "tests/fixtures/models/modernbert", "--export",
                 tmp_path / "copy"]).stdout
    assert "2 tokens on either side" in shown and "exported to" in shown
    again = run([program, "--model", tmp_path / "copy"]).stdout
    assert again == shown.split("exported to")[0]


def test_an_encoder_saves_each_output_for_padded_texts(program, tmp_path):
    fixtures = ROOT / "tests/fixtures/25_encoders"
    ids, types = (numbers_of(fixtures / f"{name}.npy", "<q")
                  for name in ("input_ids", "token_type_ids"))
    lists = [";".join(",".join(str(number) for number in values[11 * b:11 * b + length])
                      for b, length in enumerate((11, 7, 4))) for values in (ids, types)]
    run([program, "--model", ROOT / "tests/fixtures/models/bert", "--tokens", lists[0],
         "--token-types", lists[1], "--save", tmp_path])
    for name, count in {"pooler_output": 3 * 24, "nsp_logits": 3 * 2}.items():
        saved, expected = (numbers_of(file, "<f") for file in (
            tmp_path / f"{name}.npy", fixtures / f"bert_{name}.npy"))
        assert len(saved) == len(expected) == count
        assert max(abs(a - b) for a, b in zip(saved, expected)) < 2e-5 * max(map(abs, expected))
    for name, width in {"last_hidden_state": 24, "mlm_logits": 31}.items():
        saved = numbers_of(tmp_path / f"{name}.npy", "<f")
        expected = numbers_of(fixtures / f"bert_{name}.npy", "<f")
        for b, length in enumerate((11, 7, 4)):
            tokens = slice(11 * b * width, (11 * b + length) * width)
            assert max(abs(a - c) for a, c in zip(saved[tokens], expected[tokens])) < 2e-4


def test_a_vit_saves_each_output_for_pictures_of_its_size_and_of_others(program, tmp_path):
    fixtures = ROOT / "tests/fixtures/25_encoders"
    for size, option in {"native": [], "large": ["--interpolate"]}.items():
        folder = tmp_path / size
        shown = run([program, "--model", ROOT / "tests/fixtures/models/vit_classifier", "--pixels",
                     fixtures / f"vit_classifier_{size}_pixel_values.npy", *option, "--save", folder])
        assert shown.returncode == 0, shown.stderr
        for name in ("last_hidden_state", "logits"):
            saved, expected = (numbers_of(file, "<f") for file in (
                folder / f"{name}.npy", fixtures / f"vit_classifier_{size}_{name}.npy"))
            assert len(saved) == len(expected)
            assert max(abs(a - b) for a, b in zip(saved, expected)) < 2e-5 * max(map(abs, expected))
        best = max(range(5), key=numbers_of(folder / "logits.npy", "<f")[:5].__getitem__)
        label = ["circle", "square", "cross", "line", "ring"][best]
        assert label in shown.stdout.split("most likely labels")[1].splitlines()[1]


def test_a_vit_is_exported(program, tmp_path):
    shown = run([program, "--model", ROOT / "tests/fixtures/models/vit", "--export", tmp_path / "copy"]).stdout
    assert "3 x 5 of 4 x 4 pixels" in shown and "exported to" in shown
    assert run([program, "--model", tmp_path / "copy"]).stdout == shown.split("exported to")[0]
