#!/usr/bin/env bash
# libllama 0.5.0 (of npm's @node-llama-cpp/linux-x64 3.22.1): a DeepSeek model with YaRN is not the same
# after llama_model_save_to_file. The loader multiplies deepseek2.rope.scaling.yarn_log_multiplier by 10 (it
# is stored divided by 10), the saver writes the multiplied number, and the next load multiplies it again:
# 0.1 in the file of a converter is 1 after one round trip, 10 after two. The number scales the
# attention, so the saved model computes something else. Nothing is reported.
#
# Needs npm, Node's registry, python3 and a Linux on x86-64. Prints the multiplier of three files; fails if
# it is not multiplied.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --omit=optional --ignore-scripts @node-llama-cpp/linux-x64@3.22.1
cat >round_trip.py <<'END'
import ctypes
import random
import struct
from pathlib import Path

random.seed(1)
UINT32, FLOAT32, TEXT = 4, 6, 8


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write_model(file):
    """A deepseek2 of one dense layer with random weights, two heads and no vocabulary."""
    def key(name, kind, value):
        data = text(value) if kind == TEXT else struct.pack("<I" if kind == UINT32 else "<f", value)
        return text(name) + struct.pack("<I", kind) + data

    sizes = {"vocab_size": 32, "context_length": 64, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32,
             "attention.head_count": 2, "attention.head_count_kv": 1, "attention.q_lora_rank": 8, "attention.kv_lora_rank": 16,
             "attention.key_length": 20, "attention.value_length": 16, "attention.key_length_mla": 12,
             "attention.value_length_mla": 8, "rope.dimension_count": 4, "rope.scaling.original_context_length": 16,
             "leading_dense_block_count": 1, "expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 8,
             "expert_shared_count": 1}
    numbers = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0, "rope.scaling.factor": 4.0,
               "rope.scaling.yarn_log_multiplier": 0.1, "expert_weights_scale": 1.0}
    metadata = [key("general.architecture", TEXT, "deepseek2"), key("tokenizer.ggml.model", TEXT, "no_vocab"),
                key("deepseek2.rope.scaling.type", TEXT, "yarn")]
    metadata += [key(f"deepseek2.{name}", UINT32, value) for name, value in sizes.items()]
    metadata += [key(f"deepseek2.{name}", FLOAT32, value) for name, value in numbers.items()]
    shapes = {"token_embd": (32, 32), "output_norm": (32,), "output": (32, 32), "attn_norm": (32,), "attn_q_a": (32, 8),
              "attn_q_a_norm": (8,), "attn_q_b": (8, 24), "attn_kv_a_mqa": (32, 20), "attn_kv_a_norm": (16,),
              "attn_k_b": (8, 16, 2), "attn_v_b": (16, 8, 2), "attn_output": (16, 32), "ffn_norm": (32,),
              "ffn_gate": (32, 32), "ffn_up": (32, 32), "ffn_down": (32, 32)}
    infos, data = b"", b""
    for name, shape in shapes.items():
        name = name if name.startswith(("token", "output")) else f"blk.0.{name}"
        infos += text(f"{name}.weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, len(data))
        count = 1
        for size in shape:
            count *= size
        data += struct.pack(f"<{count}f", *(random.uniform(-1, 1) for _ in range(count)))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata)) + b"".join(metadata) + infos
    file.write_bytes(header + b"\0" * (-len(header) % 32) + data)


def multiplier(file):
    name = b"deepseek2.rope.scaling.yarn_log_multiplier"
    data = file.read_bytes()
    return struct.unpack_from("<f", data, data.index(name) + len(name) + 4)[0]


class Params(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 512)]  # larger than llama_model_params, which is passed in memory


libraries = next(Path("node_modules").rglob("libllama.*.so")).parent
for name in ("libggml-base", "libggml.", "libllama."):
    library = ctypes.CDLL(str(next(libraries.glob(f"{name}*.so"))), mode=ctypes.RTLD_GLOBAL)
    if name == "libggml.":
        library.ggml_backend_load_all_from_path(str(libraries).encode())
library.llama_backend_init()
library.llama_model_default_params.restype = Params
library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
library.llama_model_load_from_file.restype = ctypes.c_void_p
library.llama_model_save_to_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

files = [Path("converted.gguf"), Path("saved.gguf"), Path("saved_again.gguf")]
write_model(files[0])
for before, after in zip(files, files[1:]):
    model = library.llama_model_load_from_file(str(before).encode(), library.llama_model_default_params())
    assert model, f"{before} was not loaded"
    library.llama_model_save_to_file(model, str(after).encode())
for file in files:
    print(f"{file}: yarn_log_multiplier {multiplier(file):.6g}")
assert [round(multiplier(file), 4) for file in files] == [0.1, 1, 10]
END
LD_LIBRARY_PATH=$(dirname "$(find "$folder/node_modules" -name 'libllama.*.so' | head -1)") python3 round_trip.py 2>log || { tail -3 log; exit 1; }
