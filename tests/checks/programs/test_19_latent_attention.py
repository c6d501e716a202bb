"""Chapter 19's program: the costs of the attention of a config.json."""

import json
import re

import pytest

from running import expect_rejection, output_of

pytestmark = pytest.mark.programs("19_latent_attention")

SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
          "v_head_dim": 128, "q_lora_rank": None}


def write_config(folder, keys):
    file = folder / "attention_config.json"
    file.write_text(json.dumps({**SIZES, **keys}))
    return file


@pytest.mark.parametrize("keys, row", (
    ({}, "model multi-head 8,192 32 524.3 68.7"),
    ({"num_key_value_heads": 1, "head_dim": 64}, "model multi-query 128 32 8.2 1.1"),
    ({"num_key_value_heads": 8, "model_type": "llama"},
     "llama grouped-query 2,048 32 131.1 17.2"),
    (LATENT, "model latent 576 32 36.9 4.8")))
def test_the_table_has_the_costs_of_each_kind(program, keys, row, tmp_path):
    output = output_of([program, "--config", write_config(tmp_path, keys), "--plots", "none"])
    assert row in re.sub(" +", " ", output)


@pytest.mark.parametrize("keys, message", (
    ({"num_key_value_heads": 5}, "num_key_value_heads must divide num_attention_heads, 32"),
    ({**LATENT, "v_head_dim": 0}, "v_head_dim"),
    ({**LATENT, "qk_rope_head_dim": None}, "qk_rope_head_dim"),
    ({"hidden_size": -1}, "hidden_size")))
def test_a_file_without_sizes_is_rejected(program, keys, message, tmp_path):
    expect_rejection([program, "--config", write_config(tmp_path, keys)], message)
