"""Chats in a pipe, and the models and adapters for them."""

import itertools
import json
import re
import shutil
import struct
import subprocess

from running import ROOT, text_of

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
DROPPED_NOTE = (r"\(From here on, the oldest messages are dropped, to leave room for the "
                r"answers\.\)\n")
PLAIN_NOTE = "There is no chat template: the model only continues the text of each line.\n"


def chat_answers(command, lines, note=""):
    """The output for these lines of standard input. The program must end well, and say only the
    note."""
    result = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120)
    said = result.stderr.replace("(--max-new-tokens ended the answer.)\n", "")
    assert result.returncode == 0 and re.fullmatch(note, said), \
        f"{text_of(command)}: exit {result.returncode}, expected {note!r}, got: {result.stderr}"
    return result.stdout


def write_chat_model(folder):
    """King James with ChatML: the last two tokens become <|im_start|> and <|im_end|>, and no
    position is too many."""
    shutil.copytree(ROOT / "assets/king_james", folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 100000}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items()
                      if number < 1022}
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) in model["vocab"]]
    tokenizer["added_tokens"] = []
    for number, token in ((1022, "<|im_start|>"), (1023, "<|im_end|>")):
        model["vocab"][token] = number
        tokenizer["added_tokens"].append({
            "id": number, "content": token, "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": CHATML, "eos_token": "<|im_end|>"}))
    return folder


def write_gemma_model(folder):
    """The Gemma 3 of the tests (random weights, windows of 5 tokens) with the 419 tokens of the
    tokenizer of Gemma's kind. Its 31 tokens become the last ones; all others have a half of
    their embeddings, so that they are read, but not written."""
    shutil.copytree(ROOT / "tests/fixtures/17_long_context/gemma3_text", folder)
    shutil.copy(ROOT / "tests/fixtures/10_tokenizer/gemma/tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>"}))
    config = json.loads((folder / "config.json").read_text())
    config |= {"vocab_size": 419, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    content = (folder / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", content[:8])
    header, numbers = json.loads(content[8:8 + size]), content[8 + size:]
    embed = header["model.embed_tokens.weight"]  # bfloat16
    rows = struct.unpack("<620H", numbers[slice(*embed["data_offsets"])])
    halved = [number - 0x80 if number & 0x7f80 else number for number in rows]
    rows = (halved * 13)[:388 * 20] + list(rows)
    begin, end = embed["data_offsets"]  # these bytes go; the new ones come last
    numbers = numbers[:begin] + numbers[end:]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    embed["shape"] = [419, 20]
    embed["data_offsets"] = [len(numbers), len(numbers) + 2 * len(rows)]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + numbers + struct.pack(f"<{len(rows)}H", *rows))
    return folder


def write_adapter(folder, value):
    """A LoRA adapter of rank 1 of all q_proj, in PEFT's format. Each of its numbers is the
    value."""
    folder.mkdir()
    header, size = {}, 0
    parts = (("A", [1, 192]), ("B", [192, 1]))
    for layer, (part, shape) in itertools.product(range(4), parts):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [size, size + 768]}
        size += 768
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + struct.pack("<f", value) * (size // 4))
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
