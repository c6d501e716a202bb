"""Chapter 16's program: exported GGUF files, and the memory of quantized models."""

import json
import math
import os
import shutil
import struct
import subprocess

import pytest

from running import ROOT, expect_rejection, output_of, run

pytestmark = pytest.mark.programs("16_quantization")

# The least and the most bytes of a file of king_james.
SIZES = {"float32": (6.9e6, 7.4e6), "bfloat16": (3.5e6, 3.8e6), "q8_0": (1.8e6, 2.1e6),
         "q4_k": (1e6, 1.6e6)}


@pytest.fixture(scope="module")
def exported(program, scratch):
    """What each export prints, and the file."""
    files = {dtype: scratch / f"{dtype}.gguf" for dtype in SIZES}
    return {dtype: (output_of([program, "--export", file, "--dtype", dtype]), file)
            for dtype, file in files.items()}


@pytest.mark.parametrize("dtype", SIZES)
def test_exported_files_have_the_bytes_of_their_type(exported, dtype):
    least, most = SIZES[dtype]
    assert least <= exported[dtype][1].stat().st_size <= most


def test_export_says_which_tensors_fall_back(exported):
    assert "q5_0" in exported["q4_k"][0]


@pytest.mark.parametrize("dtype", SIZES)
def test_exported_files_are_never_overwritten(program, exported, dtype):
    expect_rejection([program, "--export", exported[dtype][1], "--dtype", dtype], "exists")


def test_exported_files_keep_their_text(program, exported):
    texts = {}
    for dtype in SIZES:
        output = output_of([program, "--model", exported[dtype][1], "--no-timing",
                            "--max-new-tokens", "20"])
        assert "unto" in output, dtype
        texts[dtype] = output.split("megabytes")[0]
    assert len({texts[dtype] for dtype in ("float32", "bfloat16", "q8_0")}) == 1


def test_a_quantized_file_is_quantized_again(program, exported):
    output = output_of([program, "--model", exported["q8_0"][1], "--dtype", "q4_0",
                        "--no-timing"])
    assert "each token reads: 1.0" in output


@pytest.mark.parametrize("cache_dtype", ("float32", "float16"))
def test_king_james_is_quantized_with_both_caches(program, cache_dtype):
    output = output_of([program, "--dtype", "q4_0", "--cache-dtype", cache_dtype,
                        "--no-timing"])
    assert "each token reads: 1.0" in output


WIDE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64}


def write_wide_model(folder):
    """A model of the sizes WIDE with the tokenizer of king_james; its weights are about 0.01,
    of both signs."""
    folder.mkdir()
    king_james = ROOT / "assets/king_james"
    shutil.copy(king_james / "tokenizer.json", folder)
    config = json.loads((king_james / "config.json").read_text()) | WIDE
    (folder / "config.json").write_text(json.dumps(config))
    hidden, width = WIDE["hidden_size"], WIDE["intermediate_size"]
    shapes = {"model.embed_tokens": (1024, hidden), "model.norm": (hidden,)}
    for layer in range(WIDE["num_hidden_layers"]):
        of_layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
                    **{f"self_attn.{kind}_proj": (hidden, hidden) for kind in "qkvo"},
                    "mlp.gate_proj": (width, hidden), "mlp.up_proj": (width, hidden),
                    "mlp.down_proj": (hidden, width)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in of_layer.items()}
    header, size = {}, 0
    for name, shape in shapes.items():
        end = size + 2 * math.prod(shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape,
                                    "data_offsets": [size, end]}
        size = end
    text = json.dumps(header).encode()
    weights = struct.pack("<4H", 0x3CA0, 0xBC20, 0x3C51, 0xBCD3)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + weights * (size // len(weights)))
    return folder


def resident_bytes(program, model):
    """The largest memory of a process that generates with the model."""
    child = subprocess.Popen([program, "--model", model, "--quiet", "--no-timing",
                              "--max-new-tokens", "240"], stdout=subprocess.DEVNULL)
    return 1024 * os.wait4(child.pid, 0)[2].ru_maxrss


def test_a_quantized_model_takes_little_more_memory_than_its_file(program, exported, tmp_path):
    """At most 1.2 times, beside its KV cache."""
    model, file = write_wide_model(tmp_path / "wide"), tmp_path / "wide.gguf"
    result = run([program, "--model", model, "--export", file, "--dtype", "q8_0"])
    assert result.returncode == 0, result.stderr
    small, wide = (resident_bytes(program, path) for path in (exported["q8_0"][1], file))
    cache = 2 * 4 * 256 * WIDE["num_hidden_layers"] * WIDE["hidden_size"]
    assert wide - small <= 1.2 * file.stat().st_size + cache
