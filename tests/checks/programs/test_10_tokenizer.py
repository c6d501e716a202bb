"""Chapter 10 with the tokenizers of the fixtures, and with those that it trains."""

import re

import pytest

from running import ROOT, events_of, output_of

pytestmark = pytest.mark.programs("10_tokenizer")

KINDS = sorted((ROOT / "tests/fixtures/10_tokenizer").iterdir())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_encodes_a_text(program, kind):
    text = "The café: 12\n<|im_end|> "
    output_of([program, "--tokenizer", kind, "--encode", text, "--plots", "none"])


@pytest.mark.parametrize("kind", (["--vocab-size", "40"],
                                  ["--byte-level", "--special-tokens", "<s> </s>"],
                                  ["--byte-level", "--individual-digits"]))
def test_an_exported_tokenizer_encodes_as_the_trained_one(program, inputs, kind, scratch):
    exported = scratch / "exported_tokenizer"  # which the next one overwrites
    outputs = []
    for options in (["--train", inputs["text"], *kind, "--export", exported],
                    ["--tokenizer", exported]):
        output = output_of([program, *options, "--encode", "12 345", "--plots", "none"])
        outputs.append(output.split("──")[-1])  # without the step's title
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("tokenizer, text", ((None, "In the beginning banana"),
                                             ("llama3", "naive  cafe 12"),
                                             ("llama2", "naïve café " * 100)))
def test_each_row_merges_one_pair_of_the_row_above_it(program, tokenizer, text):
    """With --encode; and the last row of each word has its tokens."""
    folder = ROOT / "tests/fixtures/10_tokenizer"
    options = ["--tokenizer", folder / tokenizer] if tokenizer else []
    events = events_of([program, *options, "--encode", text])
    tables = [event for event in events
              if event.get("headings") == ["word", "rank", "merge", "tokens"]]
    ids_and_tokens = [event["text"] for event in events
                      if event.get("text", "").startswith("ids and tokens: ")]
    assert len(tables) == 1 and len(ids_and_tokens) == 1
    rows, tokens = tables[0]["rows"], []
    for above, (word, rank, merge, below) in zip([["", "", "", ""], *rows], rows):
        if word and above[3]:
            tokens += above[3].split(" ")
        if not word:
            pair = merge.split(" + ")
            merged = f" {above[3]} ".replace(f" {' '.join(pair)} ", f" {''.join(pair)} ", 1)
            assert rank and merged == f" {below} "
    tokens += rows[-1][3].split(" ")
    if len(text) < 100:
        encoded = re.findall(r"\d+:(\S+)", ids_and_tokens[0])
        assert tokens == [token for token in encoded if not token.startswith("<")]
    else:
        assert len(rows) == 200
        assert events[-1].get("text") == "The table ends after 200 rows."
