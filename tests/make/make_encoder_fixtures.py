#!/usr/bin/python3
"""Writes the fixtures of chapter 25 with PyTorch: small BERT and ModernBERT checkpoints as Hugging Face's folders, what they compute for a padded
batch, and the same weights under the names of the lesson. A tool for maintainers, as make_fixtures.py.

BERT's layers are torch.nn.TransformerEncoder; ModernBERT is written from its published modeling file's behavior. All sizes differ."""

import json
import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))
from families.common import draw, inverse_frequencies, rotate, split_heads  # noqa: E402
from make_fixtures import FOLDER, save, write_safetensors  # noqa: E402

LENGTHS, T, V, C, H, F, P = [11, 7, 4], 11, 31, 24, 3, 14, 16
BERT = {"architectures": ["BertForPreTraining"], "model_type": "bert", "hidden_size": C, "intermediate_size": F, "num_attention_heads": H,
        "num_hidden_layers": 3, "vocab_size": V, "max_position_embeddings": P, "type_vocab_size": 2, "layer_norm_eps": 1e-3,
        "hidden_act": "gelu", "pad_token_id": 5, "position_embedding_type": "absolute", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "classifier_dropout": None, "initializer_range": 0.02, "gradient_checkpointing": False,
        "use_cache": True}
MODERNBERT = {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "hidden_size": C, "intermediate_size": F,
              "num_attention_heads": H, "num_hidden_layers": 5, "vocab_size": V, "max_position_embeddings": P, "norm_eps": 1e-3,
              "norm_bias": False, "hidden_activation": "gelu", "attention_bias": False, "mlp_bias": False, "decoder_bias": True,
              "classifier_bias": False, "classifier_activation": "gelu", "classifier_pooling": "mean", "global_attn_every_n_layers": 3,
              "local_attention": 4, "global_rope_theta": 160.0, "local_rope_theta": 10.0, "pad_token_id": 5, "cls_token_id": 1,
              "sep_token_id": 2, "tie_word_embeddings": True, "deterministic_flash_attn": False, "reference_compile": False}


def batch():
    """Three texts of 11, 7 and 4 tokens, padded on the right; the first is a pair."""
    ids = torch.randint(6, V, (len(LENGTHS), T))
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    types = (torch.arange(T)[None] >= torch.tensor([6, T, T])[:, None]).long()
    return ids.masked_fill(~mask, 5), mask, types


def norm_weights(name, bias=True):
    weights = {f"{name}.weight": 0.5 + torch.rand(C)}
    return weights | {f"{name}.bias": torch.randn(C) / 2} if bias else weights


def linear_weights(name, out, into, bias=True):
    weights = {f"{name}.weight": draw(out, into)}
    return weights | {f"{name}.bias": torch.randn(out) / 2} if bias else weights


def bert_weights():
    weights = {"bert.embeddings.word_embeddings.weight": draw(V, C), "bert.embeddings.position_embeddings.weight": draw(P, C),
               "bert.embeddings.token_type_embeddings.weight": draw(2, C), **norm_weights("bert.embeddings.LayerNorm")}
    for n in range(BERT["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{n}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            weights |= linear_weights(f"{layer}.{part}", C, C)
        weights |= norm_weights(f"{layer}.attention.output.LayerNorm")
        weights |= linear_weights(f"{layer}.intermediate.dense", F, C) | linear_weights(f"{layer}.output.dense", C, F)
        weights |= norm_weights(f"{layer}.output.LayerNorm")
    weights |= linear_weights("bert.pooler.dense", C, C) | linear_weights("cls.predictions.transform.dense", C, C)
    weights |= norm_weights("cls.predictions.transform.LayerNorm") | {"cls.predictions.bias": torch.randn(V)}
    return weights | linear_weights("cls.seq_relationship", 2, C)


def bert_encoder(weights):
    """The layers of BERT as torch.nn.TransformerEncoder."""
    eps = BERT["layer_norm_eps"]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(C, H, F, dropout=0, activation="gelu", layer_norm_eps=eps, batch_first=True),
                                    BERT["num_hidden_layers"], enable_nested_tensor=False)
    state = {}
    for n in range(BERT["num_hidden_layers"]):
        for end in ("weight", "bias"):
            part = lambda name: weights[f"bert.encoder.layer.{n}.{name}.{end}"]
            state |= {f"layers.{n}.self_attn.in_proj_{end}": torch.cat([part(f"attention.self.{x}") for x in ("query", "key", "value")]),
                      f"layers.{n}.self_attn.out_proj.{end}": part("attention.output.dense"),
                      f"layers.{n}.norm1.{end}": part("attention.output.LayerNorm"), f"layers.{n}.norm2.{end}": part("output.LayerNorm"),
                      f"layers.{n}.linear1.{end}": part("intermediate.dense"), f"layers.{n}.linear2.{end}": part("output.dense")}
    encoder.load_state_dict(state)
    return encoder.train()  # without dropout; in evaluation mode, PyTorch takes another path


def layer_norm(weights, x, name, eps):
    return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights.get(f"{name}.bias"), eps)


def linear(weights, x, name):
    return functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def bert_outputs(weights, ids, mask, types):
    eps, embeddings = BERT["layer_norm_eps"], "bert.embeddings"
    x = weights[f"{embeddings}.word_embeddings.weight"][ids] + weights[f"{embeddings}.position_embeddings.weight"][:ids.shape[1]]
    x = layer_norm(weights, x + weights[f"{embeddings}.token_type_embeddings.weight"][types], f"{embeddings}.LayerNorm", eps)
    x = bert_encoder(weights)(x, src_key_padding_mask=~mask)
    pooled = linear(weights, x[:, 0], "bert.pooler.dense").tanh()
    head = "cls.predictions.transform"
    features = layer_norm(weights, functional.gelu(linear(weights, x, f"{head}.dense")), f"{head}.LayerNorm", eps)
    logits = features @ weights[f"{embeddings}.word_embeddings.weight"].T + weights["cls.predictions.bias"]
    return {"last_hidden_state": x, "pooler_output": pooled, "mlm_logits": logits,
            "nsp_logits": linear(weights, pooled, "cls.seq_relationship")}


def modernbert_weights():
    weights = {"model.embeddings.tok_embeddings.weight": draw(V, C), **norm_weights("model.embeddings.norm", False)}
    for n in range(MODERNBERT["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        if n > 0:
            weights |= norm_weights(f"{layer}.attn_norm", False)
        weights |= linear_weights(f"{layer}.attn.Wqkv", 3 * C, C, False) | linear_weights(f"{layer}.attn.Wo", C, C, False)
        weights |= norm_weights(f"{layer}.mlp_norm", False) | linear_weights(f"{layer}.mlp.Wi", 2 * F, C, False)
        weights |= linear_weights(f"{layer}.mlp.Wo", C, F, False)
    weights |= norm_weights("model.final_norm", False) | linear_weights("head.dense", C, C, False) | norm_weights("head.norm", False)
    return weights | {"decoder.bias": torch.randn(V)}


def modernbert_outputs(weights, ids, mask, types=None):
    eps = MODERNBERT["norm_eps"]
    distance = (torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])).abs()
    x = layer_norm(weights, weights["model.embeddings.tok_embeddings.weight"][ids], "model.embeddings.norm", eps)
    for n in range(MODERNBERT["num_hidden_layers"]):
        layer, is_global = f"model.layers.{n}", n % MODERNBERT["global_attn_every_n_layers"] == 0
        h = layer_norm(weights, x, f"{layer}.attn_norm", eps) if n > 0 else x
        queries, keys, values = (split_heads(part, H) for part in linear(weights, h, f"{layer}.attn.Wqkv").chunk(3, -1))
        frequencies = inverse_frequencies(C // H, MODERNBERT["global_rope_theta" if is_global else "local_rope_theta"])
        scores = rotate(queries, frequencies) @ rotate(keys, frequencies).mT / math.sqrt(C // H)
        hidden = ~mask[:, None, None, :].expand_as(scores)
        if not is_global:
            hidden = hidden | (distance > MODERNBERT["local_attention"] // 2)
        weights_of_keys = scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num()  # padding may see nothing
        x = x + linear(weights, (weights_of_keys @ values).transpose(1, 2).flatten(2), f"{layer}.attn.Wo")
        given, gate = linear(weights, layer_norm(weights, x, f"{layer}.mlp_norm", eps), f"{layer}.mlp.Wi").chunk(2, -1)
        x = x + linear(weights, functional.gelu(given) * gate, f"{layer}.mlp.Wo")
    x = layer_norm(weights, x, "model.final_norm", eps)
    features = layer_norm(weights, functional.gelu(linear(weights, x, "head.dense")), "head.norm", eps)
    return {"last_hidden_state": x, "mlm_logits": features @ weights["model.embeddings.tok_embeddings.weight"].T + weights["decoder.bias"]}


def lesson_names(weights):
    """The tensors of both, under the names that chapter 25 gives to parameters, with fused projections apart."""
    pairs = [("bert.embeddings.LayerNorm", "encoder.embeddings.norm"), ("bert.embeddings", "encoder.embeddings"),
             ("bert.encoder.layer", "encoder.layers"), ("attention.self.query", "self_attn.q_proj"), ("attention.self.key", "self_attn.k_proj"),
             ("attention.self.value", "self_attn.v_proj"), ("attention.output.dense", "self_attn.o_proj"),
             ("attention.output.LayerNorm", "post_attention_layernorm"), ("intermediate.dense", "mlp.up_proj"),
             ("output.dense", "mlp.down_proj"), ("output.LayerNorm", "post_feedforward_layernorm"),
             ("cls.predictions.transform.LayerNorm", "head.norm"), ("cls.predictions.transform.dense", "head.dense"),
             ("cls.predictions.bias", "head.decoder.bias"), ("model.embeddings.tok_embeddings", "encoder.embeddings.word_embeddings"),
             ("model.final_norm", "encoder.final_norm"), ("attn.Wo", "self_attn.o_proj"), ("mlp.Wo", "mlp.down_proj"),
             ("attn_norm", "input_layernorm"), ("mlp_norm", "post_attention_layernorm")]
    renamed = {}
    for name, tensor in weights.items():
        if "pooler" in name or "seq_relationship" in name:
            continue
        parts = {"Wqkv": ("q_proj", "k_proj", "v_proj"), "Wi": ("gate_proj", "up_proj")}.get(name.split(".")[-2])
        for old, new in pairs:
            name = name.replace(old, new)
        name = name.replace("model.", "encoder.") if name.startswith("model.") else name
        name = "head." + name if name.startswith("decoder") else name
        if parts:
            prefix = name.rsplit(".", 2)[0].replace(".attn", ".self_attn")
            renamed |= {f"{prefix}.{part}.weight": half for part, half in zip(parts, tensor.chunk(len(parts)))}
        else:
            renamed[name] = tensor
    return renamed


def save_encoder(name, config, weights, outputs, inputs):
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(FOLDER / "25_encoders" / f"{name}.safetensors", lesson_names(weights))
    for output, tensor in outputs(weights, *inputs).items():
        save(f"25_encoders/{name}_{output}", tensor)


if __name__ == "__main__":
    torch.manual_seed(25)
    ids, mask, types = inputs = batch()
    for name, tensor in (("input_ids", ids), ("padding_mask", mask.long()), ("token_type_ids", types)):
        save(f"25_encoders/{name}", tensor)
    weights = bert_weights()
    for end in ("weight", "bias"):
        save(f"25_encoders/pooler_{end}", weights[f"bert.pooler.dense.{end}"])
    save_encoder("bert", BERT, weights, bert_outputs, inputs)
    save_encoder("modernbert", MODERNBERT, modernbert_weights(), modernbert_outputs, inputs)
    contrastive = torch.randn(5, C, requires_grad=True), torch.randn(5, C, requires_grad=True)
    cosines = functional.normalize(contrastive[0]) @ functional.normalize(contrastive[1]).T
    loss = functional.cross_entropy(cosines / 0.05, torch.arange(5))
    loss.backward()
    for name, tensor in zip(("queries", "passages"), contrastive):
        save(f"25_encoders/{name}", tensor)
        save(f"25_encoders/{name}_gradient", tensor.grad)
    save("25_encoders/contrastive_loss", loss[None])
