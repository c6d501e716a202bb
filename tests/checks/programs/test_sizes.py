"""The programs of the chapters that build the block, with other sizes and options."""

import json
import re

import pytest

from running import CHAPTERS, ROOT, events_of, output_of, run

WITH_SIZES = CHAPTERS[:8]
WITH_WORDS = ("01_masking", "02_projections", "03_head_splitting", "05_gqa")

pytestmark = pytest.mark.programs(*WITH_SIZES)

# Options of one chapter, and lines that the program then prints, as regular expressions.
OPTIONS = {
    "04_rope": [
        ("--query-position 13 --key-position 12",
         r"said at 13, LORD at 12 +1\.00   2\.57\nsaid at 113, LORD at 112 +1\.00   2\.57\n"),
        ("--key-position 1",  # the distance of 4 and 2
         r"said at 3, LORD at 1 +2\.00   2\.37\n"),
        ("--rope-type linear --factor 4",
         r"inverse_frequencies: \(4,\)\n\{ 0\.25  ,  0\.025 ,  0\.0025,  0\.0003\}"),
        ("--rope-type ntk --factor 8",
         r"inverse_frequencies: \(4,\)\n\{ 1\.    ,  0\.05  ,  0\.0025,  0\.0001\}"),
        ("--rope-type llama3",
         r"inverse_frequencies: \(4,\)\n\{ 1\.    ,  0\.1   ,  0\.01  ,  0\.0002\}"),
        ("--rope-type ntk", r"formula: .*\nlargest difference: 0\n"),
        ("--factor 1", r"frequency_ratios: \(5, 3\)\n\{\{ 1\.,  1\.,  1\.\},\n"),
    ],
    "06_swiglu": [  # the rows of the GLU variants in the default run
        ("--hidden-act relu",
         r"feature  gate  relu\(gate\)(?s:.*)relu_gate: (?s:.*)mlp_output: .*\n"
         r"\{\{\{ 0\.1874, -0\.0225, -0\.0215,"),
        ("--hidden-act gelu", r"mlp_output: .*\n\{\{\{ 0\.1082,  0\.0055, -0\.0634,"),
        ("--hidden-act sigmoid",
         r"mlp_output: .*\n\{\{\{ 0\.2973, -0\.0992,  0\.1008,"
         r"(?s:.*)SwiGLU, SiLU +0\.0740   0\.0248"),
    ],
    "07_rmsnorm_vs_layernorm": [
        ("--rms-norm-eps 0.01",
         r" inside, 0\.01 (?s:.*)\n 0\.10000 +0\.7071 +0\.9999 +0\.9091"),
        ("--rms-norm-eps 1", r"word_rms_normalized: .*\n.*\nAnd +0\.06   "),
    ],
    "08_pre_vs_post_norm": [  # the row of layer 12 of 48 in the default run
        ("--num-hidden-layers 12",
         r"sandwich +12 +5\.01 +0\.30 +0\.96 +0\.19 +2\.40\nparallel +1 "),
        ("--norm-placement sandwich",
         r"sensitivity\nsandwich +1 .*\nsandwich +12 .*\nsandwich +48 .*\nupdate"),
        ("--num-hidden-layers 1 --norm-placement parallel",
         r"over 1 layer (?s:.*)sensitivity\nparallel +1 .*\nupdate"),
    ],
}


@pytest.mark.parametrize("sizes", (
    "--seq-len 1 --batch-size 1",
    "--hidden-size 96 --num-attention-heads 6 --num-key-value-heads 6",
    "--hidden-size 20 --num-attention-heads 6 --num-key-value-heads 3 --head-dim 4",
    "--seq-len 200",
    "--hidden-size 2 --num-attention-heads 1 --num-key-value-heads 1"))
def test_it_runs_with_other_sizes(program, sizes):
    output_of([program, "--plots", "none", *sizes.split()])


@pytest.mark.programs(*OPTIONS)
def test_its_own_options_have_their_effect(program):
    for options, expected in OPTIONS[program.name]:
        output = output_of([program, "--plots", "none", *options.split()])
        assert re.search(expected, output), options


def test_a_choice_takes_each_of_its_words(program):
    lines = run([program, "--json", "--help"]).stdout.splitlines()
    for option in map(json.loads, lines):
        for word in option.get("choices", []):
            output_of([program, "--plots", "none", option["name"], word])


@pytest.mark.programs(*WITH_WORDS)
def test_it_shows_the_words_of_a_text_that_chapter_11_writes(program, tmp_path):
    folder = tmp_path / "other_words"
    run([program.parent / "11_generation", "--words", folder,
         "--prompt", "In the beginning God"])
    tokens = (folder / "tokens.txt").read_text().splitlines()
    assert tokens == ["In", "the", "beg", "in", "n", "ing", "God"]
    output = output_of([program, "--words", folder, "--plots", "none"])
    # Their number, and the last one, stand in titles.
    assert ". 7 tokens: " in output
    assert program.name not in ("03_head_splitting", "05_gqa") or '"God"' in output
    splits = program.name == "03_head_splitting"
    assert re.search(r"\n +In +the " if splits else r"\nIn +-?\d.*\nthe +-?\d", output)


@pytest.mark.programs(*WITH_WORDS)
def test_the_shipped_words_are_the_default(program):
    shipped = run([program, "--words", ROOT / "assets/words", "--plots", "none"])
    assert shipped.stdout == run([program, "--plots", "none"]).stdout


@pytest.mark.programs("04_rope")
def test_rotated_pairs_add_up_to_the_score_and_keep_their_lengths(program):
    rows = []
    for position in ("10", "1000"):
        events = events_of([program, "--query-position", position])
        tensors = {event["name"]: event for event in events if event["type"] == "tensor"}
        values = tensors["rotated_pairs"]["values"]
        score = tensors["said_and_lord"]["values"][1]
        rows.append([values[7 * i:7 * i + 7] for i in range(16)])
        assert tensors["rotated_pairs"]["shape"] == [16, 7]
        assert abs(sum(row[6] for row in rows[-1]) / 32 ** 0.5 - score) <= 1e-3
        assert abs(rows[-1][0][0] - float(position) * 57.29578) <= 0.1
    for near, far in zip(*rows):
        assert abs(near[1] ** 2 + near[2] ** 2 - far[1] ** 2 - far[2] ** 2) <= 1e-3
        assert near[3:6] == far[3:6]  # the key
