#!/usr/bin/python3
"""Writes tests/fixtures/gguf with PyTorch and llama.cpp's libraries. A tool for maintainers, as make_fixtures.py.
Usage: tests/make/make_gguf_fixtures.py FOLDER, which has libggml-base.so and libllama*.so: of a build of llama.cpp, or
bins/linux-x64 of the npm package @node-llama-cpp/linux-x64.

llama.cpp quantizes and dequantizes; PyTorch computes the logits from what llama.cpp has dequantized."""

import ctypes
import json
import struct
import sys
from pathlib import Path

import numpy
import torch

from make_fixtures import decoder, init_decoder, read_safetensors

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "gguf"
CHECKPOINTS = Path(__file__).resolve().parents[1] / "fixtures" / "09_full_model"
IDS = torch.tensor([[3, 16, 0, 5, 5], [9, 1, 2, 3, 4]])  # as in make_fixtures.py

# ggml's types: number, weights and bytes per block.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15}  # llama_ftype


def load_libraries(folder):
    """libggml-base.so and libllama.so, with the libraries that they need."""
    load = lambda pattern: ctypes.CDLL(str(next(Path(folder).glob(pattern))), mode=ctypes.RTLD_GLOBAL)
    ggml = load("libggml-base.so*")
    load("libggml.*")
    return ggml, load("libllama.*")


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def encoded(value):
    """The number of a value's type, and its bytes."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    elements = [encoded(element) for element in value]
    return 9, struct.pack("<IQ", elements[0][0], len(value)) + b"".join(data for _, data in elements)


def write_gguf(file, metadata, tensors, version=3, alignment=32):
    """tensors: name, shape as in PyTorch, type, bytes."""
    pad = lambda data: data + b"\0" * (-len(data) % alignment)
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        number, data = encoded(value)
        header += text(key) + struct.pack("<I", number) + data
    body = b""
    for name, shape, kind, data in tensors:
        header += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        header += struct.pack("<IQ", TYPES[kind][0], len(body))
        body = pad(body + data)
    file.write_bytes(pad(header) + body)


def read_gguf_tensors(file):
    """All tensors of a file of version 3: shape as in PyTorch, type and bytes by name."""
    data, at = file.read_bytes(), 24

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def take_text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def skip(kind):
        if kind == 8:
            take_text()
        elif kind == 9:
            element, count = take("IQ")
            for _ in range(count):
                skip(element)
        else:
            take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])

    num_tensors, num_keys = struct.unpack_from("<QQ", data, 8)
    for _ in range(num_keys):
        take_text()
        skip(take("I"))
    entries = []
    for _ in range(num_tensors):
        name, rank = take_text(), take("I")
        shape = [take("Q") for _ in range(rank)][::-1]
        entries.append((name, shape, *take("IQ")))
    start = at + -at % 32
    names = {number: name for name, (number, _, _) in TYPES.items()}
    tensors = {}
    for name, shape, kind, offset in entries:
        _, weights, size = TYPES[names[kind]]
        end = offset + int(numpy.prod(shape)) // weights * size
        tensors[name] = (shape, names[kind], data[start + offset:start + end])
    return tensors


def f32(tensor):
    return tensor.detach().contiguous().float().numpy().astype("<f4").tobytes()


def halves(tensor, dtype):
    return tensor.to(dtype).contiguous().view(torch.int16).numpy().tobytes()


def quantized(ggml, kind, rows):
    """The bytes of rows of weights, by llama.cpp."""
    number, weights, size = TYPES[kind]
    source = numpy.ascontiguousarray(rows, dtype=numpy.float32)
    result = ctypes.create_string_buffer(source.size // weights * size)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
        ctypes.c_void_p]
    written = ggml.ggml_quantize_chunk(number, source.ctypes.data, result, 0, *source.shape, None)
    assert written == len(result)
    return result.raw


def dequantized(ggml, kind, shape, data):
    """Weights from bytes, by llama.cpp."""
    if kind == "F32":
        return torch.from_numpy(numpy.frombuffer(data, "<f4").copy()).view(*shape)
    name = {"F16": "ggml_fp16_to_fp32_row", "BF16": "ggml_bf16_to_fp32_row"}.get(kind, f"dequantize_row_{kind[0].lower() + kind[1:]}")
    result = numpy.empty(shape, dtype=numpy.float32)
    function = getattr(ggml, name)
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(ctypes.create_string_buffer(data, len(data)), result.ctypes.data, result.size)
    assert numpy.isfinite(result).all()
    return torch.from_numpy(result)


def random_blocks(kind, count, generator):
    """Blocks of arbitrary bits, whose scales are finite: normal, subnormal, negative and zero."""
    _, weights, size = TYPES[kind]
    blocks = generator.integers(0, 256, (count, size), dtype=numpy.uint8)
    scales = numpy.array([0.0371, -2.5e-6, 1.75, 0.0, -0.002, 3e-8], dtype="<f2")
    positions = {"Q4_K": [0, 2], "Q6_K": [208]}.get(kind, [0])
    for n, block in enumerate(blocks):
        for k, position in enumerate(positions):
            block[position:position + 2] = numpy.frombuffer(scales[(n + 2 * k) % 6].tobytes(), numpy.uint8)
    return blocks.tobytes()


def types(ggml):
    """A tensor of each type, (3, 512): two rows of weights that llama.cpp has quantized, one of arbitrary bits."""
    generator = numpy.random.default_rng(16)
    torch.manual_seed(16)
    tensors = []
    for kind in TYPES:
        weights = torch.randn(3, 512) * torch.tensor([0.02, 3.0, 1e-3])[:, None]
        if kind == "F32":
            data = f32(weights)
        elif kind in ("F16", "BF16"):
            weights[2] *= 1e-4  # subnormal float16
            data = halves(weights, torch.float16 if kind == "F16" else torch.bfloat16)
        else:
            data = quantized(ggml, kind, weights[:2]) + random_blocks(kind, 512 // TYPES[kind][1], generator)
        tensors.append((kind, [3, 512], kind, data))
        numpy.save(FOLDER / f"{kind}.npy", dequantized(ggml, kind, [3, 512], data).numpy())
    write_gguf(FOLDER / "types.gguf", {"general.architecture": "types"}, tensors)


NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.": "blk.",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    for old, new in NAMES.items():
        name = name.replace(old, new)
    return name


def to_pairs(weight, heads):
    """Reorders the rows of each head from split halves to interleaved pairs, as convert_hf_to_gguf.py does."""
    return weight.view(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def to_halves(weight, heads):
    """The inverse."""
    return weight.view(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def metadata(architecture, config):
    keys = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
            "attention.key_length": "head_dim", "attention.value_length": "head_dim", "rope.dimension_count": "head_dim",
            "rope.freq_base": "rope_theta", "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
    tokens = [f"t{n}" for n in range(config["vocab_size"])]
    return {"general.architecture": architecture, "general.name": "a test",
            **{f"{architecture}.{key}": config[name] for key, name in keys.items() if name in config},
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * len(tokens), "tokenizer.ggml.merges": ["t 0"],
            "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0}


def write_model(file, architecture, config, weights, kind="F32", more=(), **options):
    tensors = []
    for name, weight in weights.items():
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = to_pairs(weight, config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        own = kind if weight.dim() == 2 else "F32"
        data = f32(weight) if own == "F32" else halves(weight, torch.bfloat16)
        tensors.append((gguf_name(name), list(weight.shape), own, data))
    write_gguf(file, metadata(architecture, config), [*tensors, *more], **options)


def copies_of_checkpoints():
    """The checkpoints llama (bfloat16, tied, Llama 3's scaling), qwen2 (biases, no head_dim) and qwen3 (untied) of
    chapter 09."""
    config = json.loads((CHECKPOINTS / "llama/config.json").read_text())
    weights = read_safetensors(CHECKPOINTS / "llama/model.safetensors")
    del weights["lm_head.weight"]
    scaling = config["rope_scaling"]
    frequencies = config["rope_theta"] ** -(torch.arange(0, config["head_dim"], 2) / config["head_dim"])
    factors = []
    for wavelength in (2 * torch.pi / frequencies).tolist():  # as convert_hf_to_gguf.py
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (scaling["original_max_position_embeddings"] / wavelength - low) / (high - low)
        smooth = min(max(smooth, 0), 1)
        factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    factors = torch.tensor(factors)
    write_model(FOLDER / "llama.gguf", "llama", config, weights, "BF16",
                [("rope_freqs.weight", [len(factors)], "F32", f32(factors))])

    config = json.loads((CHECKPOINTS / "qwen2/config.json").read_text())
    weights = {name: tensor for part in sorted((CHECKPOINTS / "qwen2").glob("*.safetensors"))
               for name, tensor in read_safetensors(part).items()}
    write_model(FOLDER / "qwen2.gguf", "qwen2", config, weights)

    config = json.loads((CHECKPOINTS / "qwen3/config.json").read_text())
    weights = read_safetensors(CHECKPOINTS / "qwen3/model.safetensors")
    write_model(FOLDER / "qwen3.gguf", "qwen3", config, weights, version=2)


class QuantizeParams(ctypes.Structure):
    """The first members of llama_model_quantize_params, and room for the rest."""
    _fields_ = [("nthread", ctypes.c_int32), ("ftype", ctypes.c_int), ("rest", ctypes.c_uint8 * 504)]


def quantized_model(ggml, llama, name, architecture, file_type, config):
    """A random model, quantized by llama.cpp, and PyTorch's logits of the dequantized weights."""
    init = lambda out, into, embedding=False: torch.randn(out, into) * (1 if embedding else into ** -0.5)
    weights = init_decoder(config, init)
    for tensor in weights:
        if "norm" in tensor:
            weights[tensor] = torch.rand(weights[tensor].shape) + 0.5
    if architecture == "qwen3":
        for n in range(config["num_hidden_layers"]):
            for norm in ("q_norm", "k_norm"):
                weights[f"model.layers.{n}.self_attn.{norm}.weight"] = torch.rand(config["head_dim"]) + 0.5
    original, result = FOLDER / f"{name}.f32", FOLDER / f"{name}.gguf"
    write_model(original, architecture, config, weights)
    llama.llama_model_quantize_default_params.restype = QuantizeParams
    params = llama.llama_model_quantize_default_params()
    params.nthread, params.ftype = 1, FILE_TYPES[file_type]
    code = llama.llama_model_quantize(str(original).encode(), str(result).encode(), ctypes.byref(params))
    original.unlink()
    if code != 0:
        sys.exit(f"llama_model_quantize returned {code}")

    stored = read_gguf_tensors(result)
    for tensor in weights:
        shape, kind, data = stored[gguf_name(tensor)]
        print(f"{name}: {tensor} {kind} {shape}")
        weights[tensor] = dequantized(ggml, kind, shape, data)
        if architecture == "llama" and ("q_proj" in tensor or "k_proj" in tensor):
            heads = config["num_attention_heads" if "q_proj" in tensor else "num_key_value_heads"]
            weights[tensor] = to_halves(weights[tensor], heads)
    numpy.save(FOLDER / f"{name}_logits.npy", decoder(config, weights, IDS)[1].numpy())


def quantizers(ggml):
    """Rows of weights of several distributions, as llama.cpp quantizes and dequantizes them."""
    torch.manual_seed(23)
    normal = torch.randn(8, 512) * 0.05
    rows = torch.cat([normal, torch.distributions.StudentT(4.0).sample((8, 512)) * 0.05,
                      torch.rand(4, 512) ** 2 + 0.5, -torch.rand(4, 512)])
    rows[3, 32:64] = 0  # a block of zeros
    rows[4, 0:256] = 0
    rows[5, 100] = 3  # outliers
    rows[6, 300] = -3
    numpy.save(FOLDER / "quantizers_weights.npy", rows.numpy())
    for kind in ("Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q6_K"):
        restored = dequantized(ggml, kind, tuple(rows.shape), quantized(ggml, kind, rows.numpy()))
        numpy.save(FOLDER / f"quantizers_{kind}.npy", restored.numpy())


def main(folder):
    ggml, llama = load_libraries(folder)
    FOLDER.mkdir(exist_ok=True)
    quantizers(ggml)
    types(ggml)
    copies_of_checkpoints()
    base = {"num_hidden_layers": 1, "vocab_size": 17, "max_position_embeddings": 64, "rms_norm_eps": 1e-3,
            "rope_theta": 500.0, "tie_word_embeddings": False}
    torch.manual_seed(17)
    quantized_model(ggml, llama, "llama_q4_k_m", "llama", "Q4_K_M",
                    {**base, "hidden_size": 256, "intermediate_size": 48, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 16})
    quantized_model(ggml, llama, "qwen3_q8_0", "qwen3", "Q8_0",
                    {**base, "hidden_size": 32, "intermediate_size": 96, "num_attention_heads": 6,
                     "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True})
    quantized_model(ggml, llama, "llama_q4_0", "llama", "Q4_0",
                    {**base, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 16})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tests/make/make_gguf_fixtures.py FOLDER_WITH_LLAMA_CPP_LIBRARIES")
    main(sys.argv[1])
