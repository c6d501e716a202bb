"""Chapter 11 with the tokenizers of the fixtures, and --words, --inspect and --prompt."""

import json
import re
import shutil
import subprocess

import pytest

from running import ROOT, events_of, expect_rejection, output_of, run

pytestmark = pytest.mark.programs("11_generation")

PROMPT = "The café: 12\n<|im_end|> "
LENGTH = ["--max-new-tokens", "20"]


@pytest.fixture(scope="module")
def exported(program, inputs, scratch):
    """A model with random weights in a folder, for a tokenizer of the fixtures."""
    folder = scratch / "exported"
    run([program.parent / "09_full_model", "--model", inputs["model"], "--tokens", "1",
         "--export", folder, "--plots", "none"])
    return folder


def with_tokenizer(exported, kind, folder):
    shutil.copytree(exported, folder)
    shutil.copy(ROOT / "tests/fixtures/10_tokenizer" / kind / "tokenizer.json", folder)
    return folder


def without_times(text):
    return re.sub(r"tokens per second: .*", "", text)


@pytest.mark.parametrize("kind", ("gpt2", "llama3", "qwen", "smol", "llama2", "metaspace",
                                  "gpt_oss", "gemma"))
def test_with_and_without_a_cache_the_text_is_the_same(program, exported, kind, tmp_path):
    model = with_tokenizer(exported, kind, tmp_path / "model")
    texts = []
    for options in (LENGTH, [*LENGTH, "--no-cache"],
                    [*LENGTH, "--temperature", "0", "--plots", "none"],
                    ["--max-new-tokens", "0", "--top-k", "3"],
                    ["--max-new-tokens", "1", "--min-p", "0.1", "--repetition-penalty", "1.2"]):
        text = output_of([program, "--model", model, "--prompt", PROMPT, *options])
        assert "The café: 12\n" in text
        texts.append(without_times(text))
    assert texts[0] == texts[1]


def test_of_generation_config_only_the_eos_tokens_are_read(program, exported, tmp_path):
    model = with_tokenizer(exported, "gemma", tmp_path / "model")
    command = [program, "--model", model, "--prompt", PROMPT, *LENGTH]
    without = output_of(command)
    sampling = {"do_sample": False, "temperature": 0.01, "top_k": 1, "top_p": 0.01}
    (model / "generation_config.json").write_text(json.dumps(sampling))
    assert without_times(run(command).stdout) == without_times(without)
    # Those of the model's folder, also if the tokenizer lies elsewhere.
    (model / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(420)]}))
    stopped = run([*command, "--tokenizer", tmp_path / "tokenizer.json"]).stdout
    assert "tokens generated: 0 (stopped by an EOS token)" in stopped


def test_words_writes_the_files_of_assets_words(program, tmp_path):
    folder = tmp_path / "words"
    written = run([program, "--words", folder])
    assert written.returncode == 0 and not written.stdout
    for file in (ROOT / "assets/words").iterdir():
        assert (folder / file.name).stat().st_size == file.stat().st_size


@pytest.mark.parametrize("prompt, message",
                         (("And", "words: 2 to 16 tokens can be shown, not 1"),
                          (17 * "And ", "words: 2 to 16 tokens can be shown, not ")))
def test_words_takes_2_to_16_tokens(program, prompt, message, tmp_path):
    expect_rejection([program, "--words", tmp_path / "no_words", "--prompt", prompt], message)


@pytest.mark.parametrize("options, kept", (("--temperature 0", 1), ("--top-k 3 --top-p 1", 3)))
def test_inspect_shows_candidates_and_attention_weights(program, options, kept):
    """The probabilities of the candidates are those of the table, before and after the sampling
    options, and the attention weights of each query add up to 1."""
    events = events_of([program, "--prompt", "And God said", "--max-new-tokens", "30",
                        "--inspect", "20", *options.split()])
    tensors = {event["name"]: event for event in events if event["type"] == "tensor"}
    tables = {event["headings"][-1]: event for event in events if event["type"] == "table"}
    before, after = ([tensors[name]["values"][10 * i:10 * i + 10] for i in range(30)]
                     for name in ("candidate_probabilities", "sampled_probabilities"))
    for (position, token, p, _, _), row, first, second in zip(
            tables["p"]["rows"], tables["candidates"]["rows"], before, after):
        candidates = row[2].split(" ")
        assert row[:2] == [position, token] and len(candidates) == 10
        assert first == sorted(first, reverse=True)
        assert abs(first[candidates.index(token)] - float(p)) <= 6e-4
        assert second[candidates.index(token)] != 0
        assert sum(1 for p in second if p > 0) == kept and abs(sum(second) - 1) <= 1e-5
        assert second == sorted(second, reverse=True)
    length = 3 + 30
    for layer in range(4):
        weights = tensors[f"attentions_of_layer_{layer}"]
        assert weights["shape"] == [1, 6, length, length]
        for row in range(6 * length):
            values = weights["values"][row * length:(row + 1) * length]
            assert abs(sum(values) - 1) <= 1e-4 and not any(values[row % length + 1:])
    assert len(tables["p of the generated token"]["rows"]) == 5  # of the logit lens
    assert re.search("Attention weights of query 19 ", str(events))


def test_the_prompt_must_not_be_empty(program):
    expect_rejection([program, "--prompt", ""],
                     "this model needs a --prompt to begin with: it has no BOS token")


def test_the_prompt_may_come_from_standard_input(program):
    given = run([program, "--prompt", "And God said", "--plots", "none"])
    piped = subprocess.run([program, "--prompt", "-", "--plots", "none"], timeout=120,
                           input="And God said\n", capture_output=True, text=True)
    assert given.returncode == 0
    assert (piped.returncode, piped.stdout) == (0, given.stdout)
