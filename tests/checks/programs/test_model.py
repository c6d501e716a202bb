"""./learn model: what it shows of published models, and the files that it writes."""

import shutil
import struct

import pytest

from running import ROOT, output_of, run

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


def test_a_t5_saves_each_output_and_is_exported(program, tmp_path):
    fixtures, lengths = ROOT / "tests/fixtures/models", {13: (13, 8, 5), 9: (9, 6, 4)}
    lists = {}
    for name, width in (("input_ids", 13), ("decoder_input_ids", 9)):
        ids = numbers_of(fixtures / f"t5_{name}.npy", "<q")
        lists[name] = ";".join(",".join(map(str, ids[width * b:width * b + length]))
                               for b, length in enumerate(lengths[width]))
    for part in ("saved", "again"):
        folder = fixtures / "t5" if part == "saved" else tmp_path / "copy"
        done = run([program, "--model", folder, "--tokens", lists["input_ids"],
                    "--decoder-tokens", lists["decoder_input_ids"], "--save", tmp_path / part,
                    *(["--export", tmp_path / "copy"] if part == "saved" else [])])
        assert done.returncode == 0, done.stderr
        for name, width, size in (("encoder_last_hidden_state", 13, 20),
                                  ("last_hidden_state", 9, 20), ("logits", 9, 37)):
            saved = numbers_of(tmp_path / part / f"{name}.npy", "<f")
            expected = numbers_of(fixtures / f"t5_{name}.npy", "<f")
            for b, length in enumerate(lengths[width]):
                tokens = slice(width * b * size, (width * b + length) * size)
                assert max(abs(x - y) for x, y in zip(saved[tokens], expected[tokens])) < 2e-4


@pytest.fixture
def bert(tmp_path):
    """A BERT with its vocabulary."""
    folder = tmp_path / "bert"
    shutil.copytree(ROOT / "tests/fixtures/models/bert", folder)
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on a mat . ? hello"
    (folder / "vocab.txt").write_text(words.replace(" ", "\n") + "\n")
    return folder


def test_an_encoder_reads_texts(program, bert, tmp_path):
    shown = run([program, "--model", bert, "--text", "The [MASK] sat.", "--text", "Hello cats",
                 "--save", tmp_path / "saved"]).stdout
    assert "0  [CLS] the [MASK] sat . [SEP]\n" in shown and "1  [CLS] hello cat ##s [SEP]\n" in shown
    assert "text  position  % of the most likely tokens\n   0         2  " in shown
    assert "cosines: (2, 2)" in shown and "second one" not in shown
    states = numbers_of(tmp_path / "saved/last_hidden_state.npy", "<f")
    vectors = numbers_of(tmp_path / "saved/sentence_embedding.npy", "<f")
    for text, length in enumerate((6, 5)):
        for feature in range(24):
            mean = sum(states[24 * (6 * text + t) + feature] for t in range(length)) / length
            assert abs(vectors[24 * text + feature] - mean) < 1e-5


def test_the_files_of_sentence_transformers_say_how_texts_are_compared(program, bert, tmp_path):
    def squares_and_output():
        shown = output_of([program, "--model", bert, "--text", "the cat", "--text", "hello", "--save", tmp_path / "saved"])
        vectors = numbers_of(tmp_path / "saved/sentence_embedding.npy", "<f")
        return [sum(x * x for x in vectors[24 * text:24 * text + 24]) for text in range(2)], shown

    squares, shown = squares_and_output()
    assert all(abs(square - 1) > 0.01 for square in squares)
    assert "cosines: (2, 2)" in shown and "dot_products" not in shown
    (bert / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    shown = squares_and_output()[1]
    assert "dot_products: (2, 2)" in shown and "cosines" not in shown
    products = numbers_of(tmp_path / "saved/dot_products.npy", "<f")
    assert abs(products[0] - squares[0]) < 1e-4 * squares[0] and abs(products[3] - squares[1]) < 1e-4 * squares[1]
    (bert / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    assert all(abs(square - 1) < 1e-5 for square in squares_and_output()[0])


def test_an_encoder_reads_pairs(program, bert):
    shown = run([program, "--model", bert, "--text", "the cat", "--text-pair", "a mat"]).stdout
    assert "0  [CLS] the cat [SEP] a mat [SEP]\n" in shown
    assert "{{0, 0, 0, 0, 1, 1, 1}}" in shown and "cosines" not in shown
    assert "text  % that the second one follows" in shown
    assert "masked tokens: none; [MASK] hides a token" in shown


def test_an_encoder_names_what_is_wrong_with_its_texts(program, bert):
    for options, message in {
        ("--text", "the " * 20): "--text: text 0 has 22 tokens; this model reads at most 16",
        ("--text", "a", "--prompt-name", "query"): "--prompt-name query: the model's prompts are none",
    }.items():
        failed = run([program, "--model", bert, *options])
        assert (failed.returncode, failed.stderr) == (2, f"model: {message}\n")


def test_the_gguf_file_of_an_encoder_has_its_tokenizer(program, bert, tmp_path):
    gguf, text = tmp_path / "bert.gguf", ["--text", "The cats sat."]
    assert run([program, "--model", bert, "--gguf", gguf]).returncode == 0
    row = "0  [CLS] the cat ##s sat . [SEP]\n"
    assert row in run([program, "--model", gguf, *text]).stdout
    bare = tmp_path / "bare.gguf"
    assert run([program, "--model", bert, "--tokenizer", "none", "--gguf", bare]).returncode == 0
    assert "no_vocab is not supported" in run([program, "--model", bare, *text]).stderr


def test_size_and_difference_of_encoders(program, bert):
    size = run([program, "--size", bert, "--context", "16"]).stdout
    assert "12,171" in size and "a text is read once" in size
    other = ROOT / "tests/fixtures/models/modernbert"
    rows = run([program, "--diff", bert, other]).stdout
    assert "post-norm" in rows and "± 2, 3/5" in rows and "attends to" not in rows
    assert "both sides" in run([program, "--diff", other, "Llama 2 7B"]).stdout


def test_a_vit_saves_each_output_for_pictures_of_its_size_and_of_others(program, tmp_path):
    fixtures = ROOT / "tests/fixtures/27_vision"
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
