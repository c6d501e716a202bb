#!/usr/bin/env bash
# Fuzzes the functions that read files. Usage: tests/checks/fuzz.sh SECONDS, after
# cmake --preset fuzz && cmake --build --preset fuzz
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

corpus=build-fuzz/corpus
mkdir -p "$corpus"
number=0
add() { { printf '%b' "\\x$(printf %02x "$1")"; cat "$2"; } >"$corpus/seed_$((number += 1))"; }
add 0 tests/fixtures/09_full_model/llama2c.bin
for file in tests/fixtures/09_full_model/*/*.safetensors; do add 1 "$file"; done
for file in tests/fixtures/09_full_model/*/config.json; do add 2 "$file"; done
add 3 tests/fixtures/09_full_model/qwen2/model.safetensors.index.json
for file in tests/fixtures/{10_tokenizer,25_encoders}/*/tokenizer.json; do add 4 "$file"; done
for file in tests/fixtures/gguf/*.gguf; do
    add 6 "$file"
    add 7 "$file"
    add 8 "$file"
done
add 9 assets/wordnet_answers/adapter_config.json
add 10 assets/wordnet_answers/adapter_model.safetensors
add 11 <(head -n 5 assets/wordnet/questions.jsonl)
add 12 <(printf '%s' '{"prompt": [{"role": "user", "content": "1 + 1"}],' \
    '"chosen": [{"role": "assistant", "content": "2"}],' \
    '"rejected": [{"role": "assistant", "content": "3"}]}')
for file in tests/fixtures/{1[789],20}*/*/config.json tests/fixtures/models/*/config.json; do add 13 "$file"; done
for file in tests/fixtures/models/*bert*/config.json; do add 16 "$file"; done
add 18 <(printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the ca '##f' '##e' :)
add 19 <(printf '%s' '{"pooling_mode_mean_tokens": true, "include_prompt": true, "prompts": {"query": "q: "},' \
    '"default_prompt_name": "query", "similarity_fn_name": "dot", "max_seq_length": 9, "do_lower_case": true}')
add 14 <(python3 -c 'import json, sys; print(json.dumps({
    "bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": sys.stdin.read()}))' \
    <assets/wordnet_answers/chat_template.jinja)
python3 - >"$corpus/seed_tokenizer" <<'END'
import struct, sys
pieces = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", " ", "a", "c", "f", "ca", "caf", " caf"]
sys.stdout.buffer.write(b"\x05" + struct.pack("<i", 7) + b"".join(
    struct.pack("<fi", -n, len(piece)) + piece.encode() for n, piece in enumerate(pieces)))
END
python3 - "$corpus" <<'END'
import json, struct, sys

def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()

def value(v):  # a text, a number, or an array of texts, integers or floats
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return number(v)
    kind = {str: 8, int: 5, float: 6}[type(v[0])]
    elements = (text(e) if kind == 8 else struct.pack("<i" if kind == 5 else "<f", e) for e in v)
    return struct.pack("<IIQ", 9, kind, len(v)) + b"".join(elements)

def seed(name, **keys):
    with open(f"{sys.argv[1]}/seed_gguf_{name}", "wb") as file:
        file.write(b"\x07GGUF" + struct.pack("<IQQ", 3, 0, len(keys)))
        for key, v in keys.items():
            file.write(text(f"tokenizer.ggml.{key}") + value(v))

def number(n):  # an unsigned integer or a float
    return struct.pack("<II", 4, n) if isinstance(n, int) else struct.pack("<If", 6, n)

sizes = {"block_count": 2, "context_length": 64, "embedding_length": 8, "feed_forward_length": 6,
         "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 4,
         "rope.dimension_count": 4, "attention.sliding_window": 3, "expert_count": 4, "expert_used_count": 2,
         "expert_feed_forward_length": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
         "attention.layer_norm_rms_epsilon": 0.001, "attention.layer_norm_epsilon": 0.001, "logit_scale": 0.5,
         "rope.freq_base": 100.0}
encoder_sizes = {"block_count": 1, "context_length": 5, "embedding_length": 8, "feed_forward_length": 6,
                 "attention.head_count": 2, "attention.layer_norm_epsilon": 0.001, "rope.freq_base": 100.0,
                 "attention.sliding_window": 4, "attention.sliding_window_pattern": 2, "pooling_type": 1,
                 "attention.causal": False}
experts = {"token_embd.weight": (8, 9), "blk.1.attn_norm.weight": (8,), "blk.1.ffn_gate_inp.weight": (8, 4)}
layer = {f"blk.0.{name}.weight": shape for name, shape in (("ffn_norm", (8,)), ("attn_qkv", (8, 24)),
                                                           ("attn_output", (8, 8)), ("ffn_up", (8, 12)), ("ffn_down", (6, 8)))}
norms = {"token_embd.weight": (8, 9), "token_embd_norm.weight": (8,), "output_norm.weight": (8,)}
bert = {"token_embd.weight": (8, 9), "position_embd.weight": (8, 5), "token_types.weight": (8, 2), "blk.0.layer_output_norm.weight": (8,)}
for architecture in ("gpt2", "gemma2", "gemma3", "granite", "cohere2", "phi3", "qwen3moe", "gpt-oss", "llama4", "bert", "modern-bert"):
    is_encoder = architecture.endswith("bert")
    tensors = bert if architecture == "bert" else norms | layer if is_encoder else experts
    keys = {key: n for key, n in encoder_sizes.items() if architecture != "bert" or "sliding" not in key} if is_encoder else sizes
    with open(f"{sys.argv[1]}/seed_family_{architecture}", "wb") as file:
        file.write((b"\x11" if is_encoder else b"\x0f") + b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1 + len(keys)))
        file.write(text("general.architecture") + value(architecture))
        for key, n in keys.items():
            file.write(text(f"{architecture}.{key}") + (value(n) if isinstance(n, bool) else number(n)))
        offset = 0
        for name, shape in tensors.items():  # float32, at multiples of 32 bytes
            file.write(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
            offset += -(-4 * (shape[0] * (shape[1:] or (1,))[0]) // 32) * 32
        file.write(bytes(-file.tell() % 32 + 1 + offset))

# The mistral checkpoint with matrices of FP8 zeros and one scale each.
file = open("tests/fixtures/09_full_model/mistral/model.safetensors", "rb")
header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
fp8, data = {}, b""
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    raw = bytes(end - begin)
    scales = [("F8_E4M3", entry["shape"], raw[::4], name), ("F32", [1, 1], bytes(4), name + "_scale_inv")]
    for kind, shape, raw, name in scales if len(entry["shape"]) == 2 else [("F32", entry["shape"], raw, name)]:
        fp8[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
with open(f"{sys.argv[1]}/seed_fp8", "wb") as file:
    file.write(b"\x01" + text(json.dumps(fp8)) + data)

tokens = ["a", "b", "ab", "<|im_end|>", "c", "Ġ", "T", "h", "e", "f"]
for pre in ("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"):
    seed(pre, model="gpt2", pre=pre, tokens=tokens, token_type=[1, 1, 1, 3] + [1] * 6, merges=["a b"])
tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xBC>", "▁", "a", "b", "ab", "▁a"]
seed("bert", model="bert", tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁ca", "f", "e", "▁:"], token_type=[3] * 4 + [1] * 5,
     cls_token_id=2, seperator_token_id=3, unknown_token_id=1, **{"normalizer.lowercase": False})
seed("llama", model="llama", tokens=tokens, token_type=[2, 3, 3, 6, 6] + [1] * 5,
     scores=[0.0] * 5 + [-9.0, -9.0, -9.0, -3.0, -4.0])
END
build-fuzz/fuzz_readers -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -max_len=131072 \
    -print_final_stats=0 -print_funcs=0 -verbosity=0 -artifact_prefix=build-fuzz/ "$corpus"
echo "no failure in $1 seconds"
