#!/usr/bin/python3
"""Writes tests/fixtures/fp8. A tool for maintainers, as make_fixtures.py. PyTorch 1.13 has no float8, so the values follow bit by bit
from the OCP 8-bit Floating Point Specification (OFP8) 1.0, tables 1 and 2; scales as DeepSeek-V3, inference/kernel.py, weight_quant.

types.safetensors has weights of both types with all kinds of scales, and of each NAME the float32 product as expected.NAME. qwen3 is
09_full_model/qwen3 in FP8, qwen3_dequantized the same weights in float32."""

import json
import struct

import torch
from make_fixtures import FOLDER, decoder, read_safetensors, save

FP8 = FOLDER / "fp8"


def value_of(bits, exponent_bits, mantissa_bits, bias):
    """The number that a text of eight bits stands for: "01111110" is 448 in E4M3."""
    sign, exponent, mantissa = bits[0], int(bits[1:1 + exponent_bits], 2), int(bits[1 + exponent_bits:], 2)
    if exponent_bits == 4 and bits[1:] == "1111111":  # E4M3: S.1111.111 is the only NaN, and there are no infinities
        return float("nan")
    if exponent_bits == 5 and exponent == 31:  # E5M2: as in IEEE 754
        value = float("nan") if mantissa else float("inf")
    elif exponent == 0:
        value = mantissa / 2 ** mantissa_bits * 2.0 ** (1 - bias)
    else:
        value = (1 + mantissa / 2 ** mantissa_bits) * 2.0 ** (exponent - bias)
    return -value if sign == "1" else value


E4M3 = torch.tensor([value_of(f"{byte:08b}", 4, 3, 7) for byte in range(256)])
E5M2 = torch.tensor([value_of(f"{byte:08b}", 5, 2, 15) for byte in range(256)])
assert E4M3[0b01111110] == 448 and E4M3[0b00001000] == 2 ** -6 and E4M3[1] == 2 ** -9
assert E5M2[0b01111011] == 57344 and E5M2[0b00000100] == 2 ** -14 and E5M2[1] == 2 ** -16


def per_weight(scales, shape, block):
    """The scale of each weight; blocks at the end are cut off."""
    return scales.repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)[..., :shape[-2], :shape[-1]]


def write(file, tensors):
    """Of each name a pair of a type and a tensor; bytes of the FP8 types."""
    header, data = {}, b""
    for name, (kind, tensor) in tensors.items():
        raw = tensor.contiguous().numpy().tobytes() if kind != "BF16" else tensor.bfloat16().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def types():
    tensors = {}

    def add(name, kind, weights, scales, scale_kind="F32", block=None):
        values = (E4M3 if kind == "F8_E4M3" else E5M2)[weights.long()]
        assert values.isfinite().all()
        if scale_kind == "BF16":
            scales = scales.bfloat16().float()
        tensors[name] = (kind, weights)
        tensors[name + "_scale_inv"] = (scale_kind, scales)
        tensors["expected." + name] = ("F32", values * (per_weight(scales, weights.shape, block) if block else scales))

    def weights(*shape):
        return torch.tensor([byte for byte in range(256) if byte % 128 != 127], dtype=torch.uint8)[torch.randint(254, shape)]

    every = torch.arange(256, dtype=torch.uint8)
    one = torch.ones(1, 1)
    add("e4m3", "F8_E4M3", every[E4M3.isfinite()].view(2, 127), one, block=(128, 128))
    add("e5m2", "F8_E5M2", every[E5M2.isfinite()].view(4, 62), one, block=(128, 128))
    # Blocks of 128 × 128, one more than fills them.
    add("wide.weight", "F8_E4M3", weights(3, 257), torch.rand(1, 3), block=(128, 128))
    add("tall.weight", "F8_E4M3", weights(129, 2), torch.rand(2, 1), block=(128, 128))
    # Blocks of 5 × 7 that do not divide the sizes, of a matrix and of a stack of them; bfloat16 scales, as Qwen3's.
    add("odd.weight", "F8_E4M3", weights(12, 23), torch.rand(3, 4), "BF16", (5, 7))
    add("experts", "F8_E4M3", weights(3, 6, 8), torch.rand(3, 2, 2), block=(5, 7))
    # One scale for each matrix, as Ministral 3 and Mistral Small 4.
    add("matrix.weight", "F8_E4M3", weights(4, 6), torch.rand(()))
    add("matrices", "F8_E4M3", weights(3, 4, 6), torch.rand(3, 1, 1))
    write(FP8 / "types.safetensors", tensors)


def model():
    """Blocks of 6 × 10 that divide neither 16, 20 nor 24."""
    block, source = (6, 10), FOLDER / "09_full_model/qwen3"
    config, weights = json.loads((source / "config.json").read_text()), read_safetensors(source / "model.safetensors")
    stored, dequantized = {}, {}
    finite = E4M3.nan_to_num(0)
    for name, tensor in weights.items():
        if "_proj" not in name:
            stored[name] = dequantized[name] = ("F32", tensor)
            continue
        rows, columns = tensor.shape
        scales = torch.tensor([[tensor[i:i + block[0], j:j + block[1]].abs().max() / 448 for j in range(0, columns, block[1])]
                               for i in range(0, rows, block[0])])
        scale = per_weight(scales, tensor.shape, block)
        weight = ((tensor / scale)[..., None] - finite).abs().argmin(-1).to(torch.uint8)
        stored[name], stored[name + "_scale_inv"] = ("F8_E4M3", weight), ("F32", scales)
        dequantized[name] = ("F32", E4M3[weight.long()] * scale)
        assert (dequantized[name][1] - tensor).abs().max() <= 16 * scales.max()
    write(FP8 / "qwen3_dequantized/model.safetensors", dequantized)
    (FP8 / "qwen3_dequantized/config.json").write_text(json.dumps(config, indent=2) + "\n")
    write(FP8 / "qwen3/model.safetensors", stored)
    config["quantization_config"] = {"activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"], "quant_method": "fp8",
                                     "weight_block_size": list(block)}
    (FP8 / "qwen3/config.json").write_text(json.dumps(config, indent=2) + "\n")
    ids = torch.tensor([[3, 16, 0, 5, 5], [9, 1, 2, 3, 4]])
    save("fp8/qwen3_logits", decoder(config, {name: tensor for name, (_, tensor) in dequantized.items()}, ids)[1])


if __name__ == "__main__":
    torch.manual_seed(8)
    types()
    model()
