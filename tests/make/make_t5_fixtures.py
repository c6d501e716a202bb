#!/usr/bin/python3
"""Writes the fixtures of T5 with PyTorch: buckets of distances, and small checkpoints as Hugging Face's folders with what they compute for a
padded batch. A tool for maintainers, as make_fixtures.py. Written from the behavior of the published modeling file; all sizes differ."""

import json
import math
import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))
from families.common import draw, linear, rms_norm, split_heads  # noqa: E402
from make_fixtures import FOLDER, save, write_safetensors  # noqa: E402

V, C, H, D, F = 37, 20, 3, 6, 28  # H * D is not C
LENGTHS, S, DECODER_LENGTHS, T = [13, 8, 5], 13, [9, 6, 4], 9
T5 = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": C, "d_kv": D, "d_ff": F, "num_heads": H, "num_layers": 3,
      "num_decoder_layers": 2, "vocab_size": V, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11,
      "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-3, "pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 3,
      "dropout_rate": 0.1, "initializer_factor": 1.0, "is_encoder_decoder": True, "n_positions": 512, "output_past": True, "use_cache": True,
      "task_specific_params": {"translation_en_to_de": {"prefix": "translate English to German: "}}}
GELU_NEW = lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
ACTIVATIONS = {"relu": functional.relu, "gelu": functional.gelu, "gelu_new": GELU_NEW, "silu": functional.silu}


def bucket(distance, bidirectional, num_buckets, max_distance):
    """Of distances s - t, (T, S)."""
    first = torch.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        first = (distance > 0).long() * num_buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    max_exact = num_buckets // 2
    part = torch.log(distance.float() / max_exact) / math.log(max_distance / max_exact) * (num_buckets - max_exact)
    far = (max_exact + part.clamp(min=0).long()).clamp(max=num_buckets - 1)
    return first + torch.where(distance < max_exact, distance, far)


def position_bias(weights, name, config, query_len, bidirectional):
    """(1, H, T, T)"""
    distance = torch.arange(query_len)[None, :] - torch.arange(query_len)[:, None]
    buckets = bucket(distance, bidirectional, config["relative_attention_num_buckets"], config.get("relative_attention_max_distance", 128))
    return weights[f"{name}.relative_attention_bias.weight"][buckets].permute(2, 0, 1)[None]


def attention(weights, x, states, name, hidden, bias):
    """Keys and values of `states`; hidden: (B, 1, T, S), what is masked. Scores are not scaled."""
    queries, keys, values = (split_heads(linear(weights, part, f"{name}.{letter}"), H) for letter, part in (("q", x), ("k", states), ("v", states)))
    scores = (queries @ keys.mT + bias).masked_fill(hidden, -math.inf)
    return linear(weights, (scores.softmax(-1) @ values).transpose(1, 2).flatten(2), f"{name}.o")


def activation_of(config):
    """Whether the MLP is gated, and its activation. The keys of newer files count, if there are any."""
    parts = config.get("feed_forward_proj", "relu").split("-")
    name = "gelu_new" if parts == ["gated", "gelu"] else parts[-1]
    return config.get("is_gated_act", parts[0] == "gated"), ACTIVATIONS[config.get("dense_act_fn", name)]


def mlp(weights, x, name, config):
    gated, act = activation_of(config)
    if gated:
        return linear(weights, act(linear(weights, x, f"{name}.wi_0")) * linear(weights, x, f"{name}.wi_1"), f"{name}.wo")
    return linear(weights, act(linear(weights, x, f"{name}.wi")), f"{name}.wo")


def stack(weights, ids, mask, config, kind, encoded=None):
    x, norm = weights["shared.weight"][ids], lambda x, name: rms_norm(x, weights[f"{name}.weight"], config["layer_norm_epsilon"])
    hidden = ~mask[:, None, None, :]
    own = hidden if kind == "encoder" else torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()[None, None]
    bias = position_bias(weights, f"{kind}.block.0.layer.0.SelfAttention", config, ids.shape[1], kind == "encoder")
    layers = config["num_layers"] if kind == "encoder" else config.get("num_decoder_layers") or config["num_layers"]
    for n in range(layers):
        layer = f"{kind}.block.{n}.layer"
        h = norm(x, f"{layer}.0.layer_norm")
        x = x + attention(weights, h, h, f"{layer}.0.SelfAttention", own, bias)
        if kind == "decoder":
            x = x + attention(weights, norm(x, f"{layer}.1.layer_norm"), encoded, f"{layer}.1.EncDecAttention", hidden, 0)
        last = f"{layer}.{1 if kind == 'encoder' else 2}"
        x = x + mlp(weights, norm(x, f"{last}.layer_norm"), f"{last}.DenseReluDense", config)
    return norm(x, f"{kind}.final_layer_norm")


def outputs(weights, config, ids, mask, decoder_ids):
    encoded = stack(weights, ids, mask, config, "encoder")
    if "decoder.final_layer_norm.weight" not in weights:
        return {"last_hidden_state": encoded}
    decoded = stack(weights, decoder_ids, mask, config, "decoder", encoded)
    result = {"encoder_last_hidden_state": encoded, "last_hidden_state": decoded}
    if config["architectures"] == ["T5ForConditionalGeneration"]:
        scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
        result["logits"] = (decoded * C ** -0.5 if scaled else decoded) @ weights.get("lm_head.weight", weights["shared.weight"]).T
    return result


def greedy(weights, config, ids, mask, count=7):
    """The tokens after the start token, one text at a time, without their end."""
    texts = []
    for row, valid in zip(ids, mask):
        tokens = torch.tensor([[config["decoder_start_token_id"]]])
        for _ in range(count):
            logits = outputs(weights, config, row[None], valid[None], tokens)["logits"]
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], -1)
        texts.append(tokens[0, 1:])
    return torch.stack(texts)


def stack_weights(config, kind):
    def attention_weights(name):
        parts = {f"{name}.{letter}.weight": draw(H * D, C) / 2 for letter in "qkv"}
        return parts | {f"{name}.o.weight": draw(C, H * D)}

    weights, norm = {}, lambda name: {f"{name}.layer_norm.weight": 0.5 + torch.rand(C)}
    layers = config["num_layers"] if kind == "encoder" else config.get("num_decoder_layers") or config["num_layers"]
    for n in range(layers):
        layer = f"{kind}.block.{n}.layer"
        weights |= attention_weights(f"{layer}.0.SelfAttention") | norm(f"{layer}.0")
        if n == 0:
            buckets = config["relative_attention_num_buckets"]
            weights[f"{layer}.0.SelfAttention.relative_attention_bias.weight"] = torch.randn(buckets, H)
        if kind == "decoder":
            weights |= attention_weights(f"{layer}.1.EncDecAttention") | norm(f"{layer}.1")
        last = f"{layer}.{1 if kind == 'encoder' else 2}"
        for part in ("wi_0", "wi_1") if activation_of(config)[0] else ("wi",):
            weights[f"{last}.DenseReluDense.{part}.weight"] = draw(F, C)
        weights |= {f"{last}.DenseReluDense.wo.weight": draw(C, F)} | norm(last)
    return weights | {f"{kind}.final_layer_norm.weight": 0.5 + torch.rand(C)}


def t5_weights(config, decoder=True, lm_head=False):
    weights = {"shared.weight": torch.randn(V, C)} | stack_weights(config, "encoder")
    weights |= stack_weights(config, "decoder") if decoder else {}
    return weights | ({"lm_head.weight": draw(V, C)} if lm_head else {})


def save_folder(name, config, weights, inputs, changes=None, stored=None):
    for output, tensor in outputs(weights, config, *inputs).items():
        save(f"models/{name}_{output}", tensor)
    if "lm_head.weight" in weights or config["architectures"] == ["T5ForConditionalGeneration"]:
        save(f"models/{name}_generated", greedy(weights, config, *inputs[:2]))
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", stored or weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if changes:
        (folder / "changes.json").write_text(json.dumps(changes, indent=2) + "\n")


def save_models(inputs):
    changes = [{"layer_norm_epsilon": 0.1}, {"relative_attention_max_distance": 6}, {"feed_forward_proj": "gelu"}, {"dense_act_fn": "silu"},
               {"scale_decoder_outputs": False}]
    weights = t5_weights(T5)
    save_folder("t5", T5, weights, inputs, changes)
    # T5 1.1: gated, with a head of its own, under the keys of newer files.
    config = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_layers": 2, "num_decoder_layers": 3,
                   "dense_act_fn": "gelu_new", "is_gated_act": True}
    changes = [{"dense_act_fn": "relu"}, {"scale_decoder_outputs": True}]
    save_folder("t5_gated", config, t5_weights(config, lm_head=True), inputs, changes)
    # As transformers 5 writes T5 1.1: the head is called tied, but is not.
    config = T5 | {"feed_forward_proj": "gated-silu", "tie_word_embeddings": True, "scale_decoder_outputs": False, "num_layers": 2}
    save_folder("t5_saved_by_5", config, t5_weights(config, lm_head=True), inputs, [{"feed_forward_proj": "gated-gelu"}])
    # As the first files: each stack has a copy of the embeddings, cross-attention a bias that nothing reads; keys are missing.
    config = {key: value for key, value in T5.items() if not key.startswith(("relative_attention_max", "feed", "num_dec"))}
    config |= {"architectures": ["T5Model"], "num_layers": 2}
    weights = t5_weights(config)
    stored = weights | {f"{kind}.embed_tokens.weight": weights["shared.weight"] for kind in ("encoder", "decoder")}
    stored["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.randn(8, H)
    save_folder("t5_model", config, weights, inputs, stored=stored)
    # The encoder alone, without "shared".
    config = T5 | {"architectures": ["T5EncoderModel"], "num_layers": 2, "feed_forward_proj": "gated-gelu"}
    weights = t5_weights(config, decoder=False)
    stored = {name.replace("shared", "encoder.embed_tokens"): tensor for name, tensor in weights.items()}
    save_folder("t5_without_decoder", config, weights, inputs, stored=stored)


if __name__ == "__main__":
    torch.manual_seed(5)
    distances = torch.arange(-300, 301)
    for name, bidirectional in (("bidirectional", True), ("causal", False)):
        settings = [(32, 128), (8, 11), (64, 300), (6, 25)]
        save(f"26_encoder_decoder/buckets_{name}", torch.stack([bucket(distances, bidirectional, *each) for each in settings]))
    ids, decoder_ids = torch.randint(4, V, (3, S)), torch.randint(4, V, (3, T))
    mask = torch.arange(S)[None] < torch.tensor(LENGTHS)[:, None]
    ids, decoder_ids = ids.masked_fill(~mask, 2), torch.cat([torch.full((3, 1), 3), decoder_ids[:, 1:]], 1)
    decoder_ids = decoder_ids.masked_fill(torch.arange(T)[None] >= torch.tensor(DECODER_LENGTHS)[:, None], 2)
    for name, tensor in (("input_ids", ids), ("padding_mask", mask.long()), ("decoder_input_ids", decoder_ids)):
        save(f"models/t5_{name}", tensor)
    save_models((ids, mask, decoder_ids))
