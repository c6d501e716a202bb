#!/usr/bin/env bash
# libllama 0.5.0 (of npm's @node-llama-cpp/linux-x64 3.22.1): the encoder of a T5 (architecture t5encoder)
# attends to both sides if it is run by llama_encode, and to earlier tokens alone if it is run by
# llama_decode, which node-llama-cpp 3.22.1 calls for embeddings. There the mask depends on the key
# t5encoder.attention.causal, whose default is true. Nothing is reported. With the key false, both agree.
#
# Needs npm, Node's registry, python3 and a Linux on x86-64. Prints whether the first token's vector
# depends on the second token, for both functions, without and with the key; fails if that changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --omit=optional --ignore-scripts @node-llama-cpp/linux-x64@3.22.1
cat >encode.py <<'END'
import ctypes
import random
import struct
from pathlib import Path

UINT32, FLOAT32, BOOL, TEXT = 4, 6, 7, 8
WIDTH, HEADS, TOKENS = 32, 2, 40


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write_model(file, key):
    """An encoder of two layers with random weights and no vocabulary."""
    def entry(name, kind, value):
        data = {TEXT: text, UINT32: struct.Struct("<I").pack, FLOAT32: struct.Struct("<f").pack,
                BOOL: struct.Struct("<?").pack}[kind](value)
        return text(name) + struct.pack("<I", kind) + data

    random.seed(1)
    sizes = {"vocab_size": TOKENS, "context_length": 64, "embedding_length": WIDTH, "block_count": 2, "feed_forward_length": 48,
             "attention.head_count": HEADS, "attention.key_length": 16, "attention.value_length": 16,
             "attention.relative_buckets_count": 32}
    metadata = [entry("general.architecture", TEXT, "t5encoder"), entry("tokenizer.ggml.model", TEXT, "no_vocab")]
    metadata += [entry(f"t5encoder.{name}", UINT32, value) for name, value in sizes.items()]
    metadata += [entry(f"t5encoder.attention.layer_norm{rms}_epsilon", FLOAT32, 1e-6) for rms in ("", "_rms")]
    if key:
        metadata.append(entry("t5encoder.attention.causal", BOOL, False))
    shapes = {"token_embd": (WIDTH, TOKENS), "enc.output_norm": (WIDTH,), "enc.blk.0.attn_rel_b": (HEADS, 32)}
    for layer in ("enc.blk.0", "enc.blk.1"):
        shapes |= {f"{layer}.attn_{part}": (WIDTH, WIDTH) for part in "qkvo"}
        shapes |= {f"{layer}.attn_norm": (WIDTH,), f"{layer}.ffn_norm": (WIDTH,),
                   f"{layer}.ffn_up": (WIDTH, 48), f"{layer}.ffn_down": (48, WIDTH)}
    infos, data = b"", b""
    for name, shape in shapes.items():
        infos += text(f"{name}.weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data += struct.pack(f"<{count}f", *(random.uniform(-1, 1) for _ in range(count)))
        data += b"\0" * (-len(data) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata)) + b"".join(metadata) + infos
    file.write_bytes(header + b"\0" * (-len(header) % 32) + data)


class Params(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 512)]  # larger than the structures, which are passed in memory


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


libraries = next(Path("node_modules").rglob("libllama.*.so")).parent
for name in ("libggml-base", "libggml.", "libllama."):
    library = ctypes.CDLL(str(next(libraries.glob(f"{name}*.so"))), mode=ctypes.RTLD_GLOBAL)
    if name == "libggml.":
        library.ggml_backend_load_all_from_path(str(libraries).encode())
library.llama_backend_init()
library.llama_model_default_params.restype = Params
library.llama_context_default_params.restype = Params
library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
library.llama_model_load_from_file.restype = ctypes.c_void_p
library.llama_init_from_model.argtypes = [ctypes.c_void_p, Params]
library.llama_init_from_model.restype = ctypes.c_void_p
library.llama_set_embeddings.argtypes = [ctypes.c_void_p, ctypes.c_bool]
library.llama_batch_init.restype = Batch
for function in (library.llama_encode, library.llama_decode):
    function.argtypes = [ctypes.c_void_p, Batch]
library.llama_get_embeddings_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
library.llama_get_embeddings_ith.restype = ctypes.POINTER(ctypes.c_float)


def first_vector(model, function, ids):
    context = library.llama_init_from_model(model, library.llama_context_default_params())
    library.llama_set_embeddings(context, True)
    batch = library.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert function(context, batch) == 0
    return library.llama_get_embeddings_ith(context, 0)[:WIDTH]


seen = {}
for key in (False, True):
    file = Path(f"model_{key}.gguf")
    write_model(file, key)
    model = library.llama_model_load_from_file(str(file).encode(), library.llama_model_default_params())
    assert model, f"{file} was not loaded"
    for name in ("llama_encode", "llama_decode"):
        one, other = (first_vector(model, getattr(library, name), ids) for ids in ([3, 7, 9], [3, 21, 9]))
        seen[key, name] = max(abs(a - b) for a, b in zip(one, other)) > 1e-3
        print(f"attention.causal {'false' if key else 'not in the file'}, {name}: "
              f"the first token {'sees' if seen[key, name] else 'does not see'} the second")
assert seen == {(False, "llama_encode"): True, (False, "llama_decode"): False,
                (True, "llama_encode"): True, (True, "llama_decode"): True}, seen
END
LD_LIBRARY_PATH=$(dirname "$(find "$folder/node_modules" -name 'libllama.*.so' | head -1)") python3 encode.py 2>log || { tail -5 log; exit 1; }
