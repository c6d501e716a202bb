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

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu, "silu": functional.silu,
               "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))}


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


def bert_weights(config=BERT):
    weights = {"bert.embeddings.word_embeddings.weight": draw(V, C), "bert.embeddings.position_embeddings.weight": draw(P, C),
               "bert.embeddings.token_type_embeddings.weight": draw(2, C), **norm_weights("bert.embeddings.LayerNorm")}
    for n in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{n}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            weights |= linear_weights(f"{layer}.{part}", C, C)
        weights |= norm_weights(f"{layer}.attention.output.LayerNorm")
        weights |= linear_weights(f"{layer}.intermediate.dense", F, C) | linear_weights(f"{layer}.output.dense", C, F)
        weights |= norm_weights(f"{layer}.output.LayerNorm")
    weights |= linear_weights("bert.pooler.dense", C, C) | linear_weights("cls.predictions.transform.dense", C, C)
    weights |= norm_weights("cls.predictions.transform.LayerNorm") | {"cls.predictions.bias": torch.randn(V)}
    return weights | linear_weights("cls.seq_relationship", 2, C)


def bert_encoder(weights, config):
    """The layers of BERT as torch.nn.TransformerEncoder."""
    eps, act = config["layer_norm_eps"], ACTIVATIONS[config["hidden_act"]]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(C, H, F, dropout=0, activation=act, layer_norm_eps=eps, batch_first=True),
                                    config["num_hidden_layers"], enable_nested_tensor=False)
    state = {}
    for n in range(config["num_hidden_layers"]):
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


def bert_outputs(weights, ids, mask, types, config=BERT):
    eps, embeddings = config["layer_norm_eps"], "bert.embeddings"
    x = weights[f"{embeddings}.word_embeddings.weight"][ids] + weights[f"{embeddings}.position_embeddings.weight"][:ids.shape[1]]
    x = layer_norm(weights, x + weights[f"{embeddings}.token_type_embeddings.weight"][types], f"{embeddings}.LayerNorm", eps)
    x = bert_encoder(weights, config)(x, src_key_padding_mask=~mask)
    outputs = {"last_hidden_state": x}
    if "bert.pooler.dense.weight" in weights:
        outputs["pooler_output"] = linear(weights, x[:, 0], "bert.pooler.dense").tanh()
    head = "cls.predictions.transform"
    if f"{head}.dense.weight" in weights:
        features = layer_norm(weights, ACTIVATIONS[config["hidden_act"]](linear(weights, x, f"{head}.dense")), f"{head}.LayerNorm", eps)
        decoder = weights.get("cls.predictions.decoder.weight", weights[f"{embeddings}.word_embeddings.weight"])
        outputs["mlm_logits"] = features @ decoder.T + weights["cls.predictions.bias"]
    for name, part in (("nsp_logits", "cls.seq_relationship"), ("logits", "classifier")):
        if f"{part}.weight" in weights:
            outputs[name] = linear(weights, outputs["pooler_output"], part)
    return outputs


def modernbert_weights(config=MODERNBERT):
    norm_bias, bias, mlp_bias = (config[f"{part}_bias"] for part in ("norm", "attention", "mlp"))
    weights = {"model.embeddings.tok_embeddings.weight": draw(V, C), **norm_weights("model.embeddings.norm", norm_bias)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        if n > 0:
            weights |= norm_weights(f"{layer}.attn_norm", norm_bias)
        weights |= linear_weights(f"{layer}.attn.Wqkv", 3 * C, C, bias) | linear_weights(f"{layer}.attn.Wo", C, C, bias)
        weights |= norm_weights(f"{layer}.mlp_norm", norm_bias) | linear_weights(f"{layer}.mlp.Wi", 2 * F, C, mlp_bias)
        weights |= linear_weights(f"{layer}.mlp.Wo", C, F, mlp_bias)
    weights |= norm_weights("model.final_norm", norm_bias) | linear_weights("head.dense", C, C, config["classifier_bias"])
    weights |= norm_weights("head.norm", norm_bias)
    return weights | ({"decoder.bias": torch.randn(V)} if config["decoder_bias"] else {})


def modernbert_layers(config):
    """For each layer, whether it sees all tokens, and its theta: as transformers 4 or as 5 writes them."""
    types = config.get("layer_types") or ["sliding_attention" if n % config["global_attn_every_n_layers"] else "full_attention"
                                          for n in range(config["num_hidden_layers"])]
    full, sliding = config.get("global_rope_theta"), config.get("local_rope_theta") or config.get("global_rope_theta")
    old = {"full_attention": {"rope_theta": full}, "sliding_attention": {"rope_theta": sliding}}
    return [(name == "full_attention", config.get("rope_parameters", old)[name]["rope_theta"]) for name in types]


def modernbert_outputs(weights, ids, mask, types=None, config=MODERNBERT):
    eps, act = config["norm_eps"], ACTIVATIONS[config["hidden_activation"]]
    distance = (torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])).abs()
    x = layer_norm(weights, weights["model.embeddings.tok_embeddings.weight"][ids], "model.embeddings.norm", eps)
    for n, (is_global, theta) in enumerate(modernbert_layers(config)):
        layer = f"model.layers.{n}"
        h = layer_norm(weights, x, f"{layer}.attn_norm", eps) if n > 0 else x
        queries, keys, values = (split_heads(part, H) for part in linear(weights, h, f"{layer}.attn.Wqkv").chunk(3, -1))
        frequencies = inverse_frequencies(C // H, theta)
        scores = rotate(queries, frequencies) @ rotate(keys, frequencies).mT / math.sqrt(C // H)
        hidden = ~mask[:, None, None, :].expand_as(scores)
        if not is_global:
            hidden = hidden | (distance > config["local_attention"] // 2)
        weights_of_keys = scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num()  # padding may see nothing
        x = x + linear(weights, (weights_of_keys @ values).transpose(1, 2).flatten(2), f"{layer}.attn.Wo")
        given, gate = linear(weights, layer_norm(weights, x, f"{layer}.mlp_norm", eps), f"{layer}.mlp.Wi").chunk(2, -1)
        x = x + linear(weights, act(given) * gate, f"{layer}.mlp.Wo")
    x = layer_norm(weights, x, "model.final_norm", eps)
    return {"last_hidden_state": x} | modernbert_heads(weights, x, mask, config)


def modernbert_heads(weights, x, mask, config):
    head_act = ACTIVATIONS[config["classifier_activation"]]
    features = lambda rows: layer_norm(weights, head_act(linear(weights, rows, "head.dense")), "head.norm", config["norm_eps"])
    if "classifier.weight" in weights:
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"logits": linear(weights, features(mean if config["classifier_pooling"] == "mean" else x[:, 0]), "classifier")}
    if "head.dense.weight" not in weights:
        return {}
    decoder = weights.get("decoder.weight", weights["model.embeddings.tok_embeddings.weight"])
    return {"mlm_logits": features(x) @ decoder.T + weights.get("decoder.bias", 0)}


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


# Each change alone changes an output.
BERT_CHANGES = [{"layer_norm_eps": 0.1}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new"}]
MODERNBERT_CHANGES = [{"norm_eps": 0.1}, {"hidden_activation": "relu"}, {"classifier_activation": "relu"}, {"local_attention": 2},
                      {"local_attention": 6}, {"global_attn_every_n_layers": 2}, {"global_rope_theta": 1600.0}, {"local_rope_theta": 100.0},
                      {"local_rope_theta": None},
                      {"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention"]}]
LABELS = {"id2label": {"0": "neither", "1": "for", "2": "against"}}


def heads(weights, *kept):
    """The tensors of the encoder, and those of these heads."""
    return {name: tensor for name, tensor in weights.items() if name.startswith(("bert.emb", "bert.enc", "model.", *kept))}


def save_variants(inputs):
    """Other classes, settings and spellings."""
    def save_variant(name, config, weights, outputs, changes=None, stored=None, extra=None):
        for output, tensor in outputs(weights, *inputs, config).items():
            save(f"models/{name}_{output}", tensor)
        save_folder(name, config, stored or weights, changes, extra)

    small = BERT | {"num_hidden_layers": 2}
    # A model without a head, with the names of the first files and a buffer.
    config = small | {"architectures": ["BertModel"], "hidden_act": "silu"}
    weights = heads(bert_weights(config), "bert.pooler")
    rename = lambda name: name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    save_variant("bert_plain", config, weights, bert_outputs, stored={rename(name): tensor for name, tensor in weights.items()},
                 extra={"embeddings.position_ids": {"dtype": "I64", "shape": [1, P], "data_offsets": [0, 8 * P]}})
    # A decoder of its own, whose bias has two names.
    config = small | {"architectures": ["BertForMaskedLM"], "hidden_act": "gelu_new", "tie_word_embeddings": False}
    weights = heads(bert_weights(config), "cls.predictions") | {"cls.predictions.decoder.weight": draw(V, C)}
    save_variant("bert_untied", config, weights | {"cls.predictions.decoder.bias": weights["cls.predictions.bias"]}, bert_outputs)
    config = small | {"architectures": ["BertForSequenceClassification"], "hidden_act": "relu"} | LABELS
    save_variant("bert_classifier", config, heads(bert_weights(config), "bert.pooler") | linear_weights("classifier", 3, C), bert_outputs)
    config = {key: value for key, value in small.items() if not key.startswith(("position_", "hidden_act", "type_", "pad_"))}
    weights = heads(bert_weights(small), "bert.pooler", "cls.seq")
    save_variant("bert_next_sentence", config | {"architectures": ["BertForNextSentencePrediction"]}, weights,
                 lambda weights, *inputs: bert_outputs(weights, *inputs[:3], small))

    small = MODERNBERT | {"num_hidden_layers": 4}
    config = small | {"architectures": ["ModernBertModel"]}
    weights = heads(modernbert_weights(config))
    save_variant("modernbert_plain", config, weights, modernbert_outputs,
                 stored={name.removeprefix("model."): tensor for name, tensor in weights.items()})
    # Biases everywhere but in the decoder, which is not tied.
    config = small | {f"{part}_bias": True for part in ("norm", "attention", "mlp", "classifier")}
    config |= {"decoder_bias": False, "tie_word_embeddings": False, "hidden_activation": "silu", "classifier_activation": "relu",
               "local_attention": 3, "local_rope_theta": None}
    save_variant("modernbert_biased", config, modernbert_weights(config) | {"decoder.weight": draw(V, C)}, modernbert_outputs)
    for pooling in ("mean", "cls"):
        config = small | LABELS | {"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": pooling, "decoder_bias": False}
        if pooling == "cls":  # as transformers 5 writes it
            for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
                del config[key]
            config |= {"classifier_bias": True, "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
                       "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 160.0},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 10.0}}}
        changes = [{"classifier_pooling": "cls" if pooling == "mean" else "mean"}, {"classifier_activation": "silu"}]
        if pooling == "cls":
            changes += [{"rope_parameters.full_attention.rope_theta": 1600.0}, {"rope_parameters.sliding_attention.rope_theta": 100.0}]
        save_variant(f"modernbert_{pooling}", config, modernbert_weights(config) | linear_weights("classifier", 3, C), modernbert_outputs, changes)


def save_folder(name, config, weights, changes=None, extra=None):
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights, extra)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if changes:
        (folder / "changes.json").write_text(json.dumps(changes, indent=2) + "\n")


def save_encoder(name, config, weights, outputs, inputs, changes):
    save_folder(name, config, weights, changes)
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
    save_encoder("bert", BERT, weights, bert_outputs, inputs, BERT_CHANGES)
    save_encoder("modernbert", MODERNBERT, modernbert_weights(), modernbert_outputs, inputs, MODERNBERT_CHANGES)
    contrastive = torch.randn(5, C, requires_grad=True), torch.randn(5, C, requires_grad=True)
    cosines = functional.normalize(contrastive[0]) @ functional.normalize(contrastive[1]).T
    loss = functional.cross_entropy(cosines / 0.05, torch.arange(5))
    loss.backward()
    for name, tensor in zip(("queries", "passages"), contrastive):
        save(f"25_encoders/{name}", tensor)
        save(f"25_encoders/{name}_gradient", tensor.grad)
    save("25_encoders/contrastive_loss", loss[None])
    save_variants(inputs)
