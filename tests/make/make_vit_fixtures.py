#!/usr/bin/python3
"""Writes the fixtures of chapter 25's pictures with PyTorch: small ViT checkpoints as Hugging Face's folders, and what they compute for pictures
of their size and of others. A tool for maintainers, as make_fixtures.py.

Patches are a convolution, positions are interpolated by torch.nn.functional.interpolate, the layers are torch.nn.TransformerEncoder. All sizes differ."""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))
from families.common import draw  # noqa: E402
from make_encoder_fixtures import ACTIVATIONS, layer_norm, linear, linear_weights, norm_weights  # noqa: E402
from make_fixtures import FOLDER, save, write_safetensors  # noqa: E402

C, H, F = 24, 3, 14
VIT = {"architectures": ["ViTModel"], "model_type": "vit", "hidden_size": C, "intermediate_size": F, "num_attention_heads": H,
       "num_hidden_layers": 2, "image_size": [12, 20], "patch_size": 4, "num_channels": 3, "qkv_bias": True, "layer_norm_eps": 1e-3,
       "hidden_act": "gelu", "pooler_act": "tanh", "pooler_output_size": C, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
       "encoder_stride": 16, "initializer_range": 0.02}
CLASSIFIER = VIT | {"architectures": ["ViTForImageClassification"], "image_size": 12, "patch_size": 3, "num_channels": 1, "qkv_bias": False,
                    "hidden_act": "relu", "num_hidden_layers": 3,
                    "id2label": {str(n): name for n, name in enumerate(["circle", "square", "cross", "line", "ring"])}}
# Each change alone changes an output.
VIT_CHANGES = [{"layer_norm_eps": 0.1}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"pooler_act": "relu"}, {"num_attention_heads": 6},
               {"image_size": [20, 12]}]


def vit_weights(config):
    height, width = sides(config)
    P, channels = config["patch_size"], config["num_channels"]
    weights = {"embeddings.cls_token": torch.randn(1, 1, C), "embeddings.position_embeddings": torch.randn(1, 1 + height // P * (width // P), C),
               "embeddings.patch_embeddings.projection.weight": draw(C, channels * P * P).view(C, channels, P, P),
               "embeddings.patch_embeddings.projection.bias": torch.randn(C) / 2}
    for n in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        for part in ("query", "key", "value"):
            weights |= linear_weights(f"{layer}.attention.attention.{part}", C, C, config["qkv_bias"])
        weights |= linear_weights(f"{layer}.attention.output.dense", C, C)
        weights |= linear_weights(f"{layer}.intermediate.dense", F, C) | linear_weights(f"{layer}.output.dense", C, F)
        weights |= norm_weights(f"{layer}.layernorm_before") | norm_weights(f"{layer}.layernorm_after")
    return weights | norm_weights("layernorm")


def sides(config):
    size = config["image_size"]
    return size if isinstance(size, list) else (size, size)


def vit_encoder(weights, config):
    layer = nn.TransformerEncoderLayer(C, H, F, dropout=0, activation=ACTIVATIONS[config["hidden_act"]], layer_norm_eps=config["layer_norm_eps"],
                                       batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False)
    state = {}
    for n in range(config["num_hidden_layers"]):
        for end in ("weight", "bias"):
            part = lambda name: weights.get(f"encoder.layer.{n}.{name}.{end}", torch.zeros(C))
            state |= {f"layers.{n}.self_attn.in_proj_{end}": torch.cat([part(f"attention.attention.{x}") for x in ("query", "key", "value")]),
                      f"layers.{n}.self_attn.out_proj.{end}": part("attention.output.dense"),
                      f"layers.{n}.norm1.{end}": part("layernorm_before"), f"layers.{n}.norm2.{end}": part("layernorm_after"),
                      f"layers.{n}.linear1.{end}": part("intermediate.dense"), f"layers.{n}.linear2.{end}": part("output.dense")}
    encoder.load_state_dict(state)
    return encoder.train()  # without dropout; in evaluation mode, PyTorch takes another path


def positions(weights, config, height, width):
    """Those of the patches of a picture of this size, and that of the class token before them."""
    P, (trained_height, trained_width) = config["patch_size"], sides(config)
    stored = weights["embeddings.position_embeddings"]
    grid = stored[:, 1:].view(1, trained_height // P, trained_width // P, C).permute(0, 3, 1, 2)
    grid = functional.interpolate(grid, size=(height // P, width // P), mode="bicubic", align_corners=False)
    return torch.cat([stored[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], 1)


def vit_outputs(weights, pixel_values, config):
    projection = "embeddings.patch_embeddings.projection"
    patches = functional.conv2d(pixel_values, weights[f"{projection}.weight"], weights[f"{projection}.bias"], stride=config["patch_size"])
    class_token = weights["embeddings.cls_token"].expand(len(pixel_values), 1, C)
    x = torch.cat([class_token, patches.flatten(2).transpose(1, 2)], 1) + positions(weights, config, *pixel_values.shape[2:])
    x = layer_norm(weights, vit_encoder(weights, config)(x), "layernorm", config["layer_norm_eps"])
    outputs = {"last_hidden_state": x}
    if "pooler.dense.weight" in weights:
        outputs["pooler_output"] = linear(weights, x[:, 0], "pooler.dense").tanh()
    if "classifier.weight" in weights:
        outputs["logits"] = linear(weights, x[:, 0], "classifier")
    return outputs


def lesson_names(weights):
    """Under the names that chapter 25 gives to parameters; the weight of the convolution as a matrix."""
    pairs = [("embeddings.patch_embeddings.", "encoder.embeddings."), ("embeddings.cls", "encoder.embeddings.cls"),
             ("embeddings.pos", "encoder.embeddings.pos"), ("encoder.layer.", "encoder.layers."), ("attention.attention.query", "self_attn.q_proj"),
             ("attention.attention.key", "self_attn.k_proj"), ("attention.attention.value", "self_attn.v_proj"),
             ("attention.output.dense", "self_attn.o_proj"), ("intermediate.dense", "mlp.up_proj"), ("output.dense", "mlp.down_proj"),
             ("layernorm_before", "input_layernorm"), ("layernorm_after", "post_attention_layernorm")]
    renamed = {}
    for name, tensor in weights.items():
        if name.startswith(("pooler", "classifier")):
            continue
        name = name.replace("layernorm.", "encoder.final_norm.") if name.startswith("layernorm.") else name
        for old, new in pairs:
            name = name.replace(old, new)
        renamed[name] = tensor.flatten() if "cls" in name else tensor.flatten(1) if tensor.dim() == 4 else tensor.squeeze(0)
    return renamed


def save_model(name, config, weights, pictures, changes=None):
    folder = FOLDER / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    is_base = config["architectures"] == ["ViTModel"]
    stored = {key if is_base or key.startswith("classifier") else f"vit.{key}": tensor for key, tensor in weights.items()}
    write_safetensors(folder / "model.safetensors", stored)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if changes:
        (folder / "changes.json").write_text(json.dumps(changes, indent=2) + "\n")
    for size, pixel_values in pictures.items():
        save(f"25_encoders/{name}_{size}_pixel_values", pixel_values)
        for output, tensor in vit_outputs(weights, pixel_values, config).items():
            save(f"25_encoders/{name}_{size}_{output}", tensor)


if __name__ == "__main__":
    torch.manual_seed(26)
    pictures = {"native": torch.randn(2, 3, 12, 20), "large": torch.randn(1, 3, 20, 28), "wide": torch.randn(1, 3, 8, 24)}
    weights = vit_weights(VIT)
    write_safetensors(FOLDER / "27_vision/vit.safetensors", lesson_names(weights))
    save_model("vit", VIT, weights | linear_weights("pooler.dense", C, C), pictures, VIT_CHANGES)
    pictures = {"native": torch.randn(2, 1, 12, 12), "large": torch.randn(1, 1, 15, 21)}
    save_model("vit_classifier", CLASSIFIER, vit_weights(CLASSIFIER) | linear_weights("classifier", 5, C), pictures)
    pixels = torch.randint(0, 256, (2, 3, 4, 5)).float()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    save("27_vision/pixels", pixels)
    save("27_vision/normalized_pixels", (pixels / 255 - mean[:, None, None]) / std[:, None, None])
    points = torch.eye(5)[:, None, :, None].expand(5, 1, 5, 2)  # each point alone, as a column of a picture
    for size in (3, 5, 8):
        weights = functional.interpolate(points, size=(size, 2), mode="bicubic", align_corners=False)
        save(f"27_vision/cubic_5_to_{size}", weights[:, 0, :, 0].T)
