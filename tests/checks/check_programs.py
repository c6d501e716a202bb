#!/usr/bin/env python3
"""Checks the command lines of all chapter programs and of ./learn: invalid input gives one line on standard error and
exit code 2; valid input gives the expected output and files. Usage: check_programs.py BUILD_FOLDER [SLUG...]
The environment variable KILLS is the number of times that a training run is killed (20)."""

import array
import ast
import fcntl
import itertools
import json
import math
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).resolve().parents[1] / "make"))
from make_base_text import BAD_WORDS, fnv1a

ROOT = Path(__file__).resolve().parents[2]
SLUGS = re.findall(r"^(\d\w+) \|", (ROOT / "chapters/contents.txt").read_text(), re.M)

# Options, and a part of the error message. {file} is an existing file, {folder} a folder that does not exist.
SIZES_REJECTED = [  # of programs with --seq-len
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--seq-len", "--seq-len"),
    ("--seq-len 0", "from 1 to 1024, not '0'"),
    ("--seq-len -1", "from 1 to 1024, not '-1'"),
    ("--seq-len 99999999999999999999", "from 1 to 1024"),
    ("--seq-len 1e3", "not '1e3'"),
    ("--seq-len 3x", "not '3x'"),
    ("--seq-len 0x10", "not '0x10'"),
    ("--seq-len=", "--seq-len"),
    ("--seq-len 257", "a sequence of 257 tokens exceeds max_position_embeddings of 256"),
    ("--seq-len 11 --max-position-embeddings 10", "exceeds max_position_embeddings of 10"),
    ("--batch-size 0", "from 1 to 16, not '0'"),
    ("--batch-size two", "not 'two'"),
    ("--hidden-size 100", "16 query heads do not divide a hidden size of 100"),
    ("--hidden-size 999999999", "from 1 to 4096"),
    ("--num-attention-heads 6", "4 key/value heads do not divide 6 query heads"),
    ("--num-key-value-heads 5", "5 key/value heads do not divide 16 query heads"),
    ("--num-key-value-heads 0", "from 1 to 64, not '0'"),
    ("--head-dim -4", "not '-4'"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--seed 4294967296", "from 0 to 4294967295, not '4294967296'"),
    ("--seed abc", "not 'abc'"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--save {file}/below", "--save needs a folder it can write to"),
    ("--save /proc/nowhere", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
    ("--seed 1 --seed 2", "--seed"),
    ("--save {folder}/a/b --seq-len 257", "exceeds"),
    ("--save {folder} --plots /proc/nowhere", "--plots needs a folder it can write to"),
    ("--save=", "--save"),
]
BASIC_REJECTED = [  # of programs with only the common options
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--seq-len 4", "unknown argument '--seq-len'"),
    ("--seed", "--seed"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--seed 4294967296", "from 0 to 4294967295, not '4294967296'"),
    ("--seed abc", "not 'abc'"),
    ("--step=perhaps", "--step"),
    ("--only two", "from 0 to 999, not 'two'"),
    ("--only -1", "from 0 to 999, not '-1'"),
    ("--only", "--only"),
    ("--quiet=perhaps", "--quiet"),
    ("--json --step", "--json excludes --step"),
    ("--json --plots {folder}", "--json prints the data of figures and excludes --plots"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--save {folder} --plots /proc/nowhere", "--plots needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
]
WORDNET = ROOT / "assets/wordnet"
FINE_TUNING_REJECTED = BASIC_REJECTED + [  # of chapter 14
    ("--model {wordnet}", "--model needs --ask"),
    ("--model {wordnet} --train {questions}", "--train has moved: ./learn fine_tune MODEL"),
    ("--method grpo", "--method has moved: ./learn fine_tune MODEL"),
    ("--ask x --model {folder}/nothing", "cannot read"),
]
FINE_TUNE_REJECTED = [  # of ./learn fine_tune
    ("", "--model is missing: ./learn fine_tune DIR"),
    ("--model {wordnet}", "--model needs --train, --test or both"),
    ("--model {wordnet} --train {questions}", "--train needs --folder, where the result is saved"),
    ("--model {wordnet} --train {questions} --folder {folder} --method ppo", "--method takes sft, sample, dpo or grpo, not 'ppo'"),
    ("--model {wordnet} --train {questions} --folder {wordnet}", "config.json: it exists, and is not overwritten"),
    ("--model {wordnet} --train {questions} --folder {wordnet}_answers", "adapter_config.json: it exists, and is not overwritten"),
    ("--model {wordnet} --train {questions} --method sample --folder {file}", "it exists, and is not overwritten"),
    ("--model {wordnet} --train {questions} --folder {folder}/none --resume", "holds no checkpoint to resume from"),
    ("--model {wordnet} --train {questions} --folder {folder}/none --method sample --resume", "--method sample has no checkpoints"),
    ("--model {wordnet} --test {questions} --resume", "--resume needs --train"),
    ("--model {wordnet} --train {questions} --folder {folder} --dtype bfloat16", "--dtype needs --full"),
    ("--model {wordnet} --train {questions} --folder {file}/none", "cannot create"),
    ("--model {wordnet} --train {questions} --folder {folder}/none/none.jsonl --method sample", "No such file or directory"),
    ("--model {wordnet} --test {text}", "line 1"),
    ("--model {wordnet} --test {questions} --task cooking", "it has no conversations of the task cooking"),
    ("--model {wordnet} --train {questions} --folder {folder} --method dpo", "line 1: prompt"),
    ("--model {wordnet} --test {questions} --adapter {folder}/nothing", "cannot read"),
    ("--model assets/king_james --test {questions}", "the tokenizer has no special token <|im_end|>, which the format ChatML needs"),
]
MODEL_REJECTED = [  # of chapter 09
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--tokens", "--tokens"),
    ("--tokens=", "--tokens"),
    ("--tokens -1", "not '-1'"),
    ("--tokens 1,,2", "not ''"),
    ("--tokens 1,", "not ''"),
    ("--tokens 1,x", "not 'x'"),
    ("--tokens 1;2", "not '1;2'"),
    ("--tokens 2147483648", "from 0 to 2147483647"),
    ("--tokens 32000", "there is no token 32000 in a vocabulary of 32000"),
    ("--tokens " + ",".join(["1"] * 2049), "exceeds max_position_embeddings of 2048"),
    ("--tokens " + ",".join(["1"] * 4097), "at most 4096 ids"),
    ("--model", "--model"),
    ("--model {folder}/nothing", "cannot read"),
    ("--model {file}", "too short for a llama2.c file"),
    ("--model /dev/null", "is not a file"),
    ("--model /", "cannot read //config.json"),
    ("--export {file}", "--export needs a folder it can write to"),
    ("--export /proc/nowhere", "--export needs a folder it can write to"),
    ("--export {folder}/new --tokens 32000", "there is no token"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
]
TOKENIZER_REJECTED = [  # of chapter 10; {text} is a text
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--encode", "--encode"),
    ("--encode \udcff", "--encode: the text is not UTF-8 at byte 0"),
    ("--encode " + "x" * 16385, "at most 16384 bytes"),
    ("--tokenizer {folder}/nothing", "cannot read"),
    ("--tokenizer {file}", "too short for a llama2.c tokenizer of 1 tokens"),
    ("--tokenizer /", "cannot read"),
    ("--vocab-size 100", "--vocab-size needs --train"),
    ("--export {folder}", "--export needs --train"),
    ("--byte-level", "--byte-level needs --train"),
    ("--train {text} --special-tokens <s>", "--special-tokens needs --byte-level"),
    ("--train {text} --individual-digits", "--individual-digits needs --byte-level"),
    ("--train {text} --byte-level --special-tokens <s> --vocab-size 256",
     "256 bytes and 1 special tokens are too many for a vocabulary of 256"),
    ("--train {text} --byte-level --special-tokens a", "the token a occurs twice in the vocabulary"),
    ("--train {folder}/nothing", "cannot read"),
    ("--train /dev/null", "is not a file"),
    ("--train {text} --vocab-size -1", "from 0 to 65536, not '-1'"),
    ("--train {text} --vocab-size 65537", "from 0 to 65536, not '65537'"),
    ("--train {text} --vocab-size ten", "not 'ten'"),
    ("--train {text} --vocab-size 11", "the text has 11 different characters, too many for a vocabulary of 11"),
    ("--train {text} --export {file}", "--export needs a folder it can write to"),
    ("--train {text} --export {folder} --vocab-size 11", "too many for a vocabulary of 11"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
]
GENERATION_REJECTED = [  # of chapter 11; {model} and {tokenizer} have the same vocabulary size
    ("--bogus", "unknown argument '--bogus'"),
    ("--words {file}", "--words needs a folder it can write to"),
    ("--words /proc/nowhere", "--words needs a folder it can write to"),
    ("--words {folder} --model {model} --tokenizer {tokenizer}", "does not have the sizes of assets/king_james"),
    ("stray", "unknown argument 'stray'"),
    ("--temperature -1", "from 0 to 100, not '-1'"),
    ("--temperature 101", "from 0 to 100, not '101'"),
    ("--temperature warm", "not 'warm'"),
    ("--temperature 0.005", "takes 0, or a number from 0.01 to 100, not 0.005"),
    ("--inspect -1", "not '-1'"),
    ("--model {model} --tokenizer {tokenizer} --prompt x --inspect 64", "from 1 to 63, not 64"),
    ("--temperature nan", "not 'nan'"),
    ("--temperature 1e999", "not '1e999'"),
    ("--temperature 0x1", "not '0x1'"),
    ("--top-k -1", "not '-1'"),
    ("--top-k 1.5", "not '1.5'"),
    ("--top-p 1.01", "from 0 to 1, not '1.01'"),
    ("--top-p -0.1", "from 0 to 1, not '-0.1'"),
    ("--min-p 2", "from 0 to 1, not '2'"),
    ("--repetition-penalty 0", "from 0.01 to 100, not '0'"),
    ("--max-new-tokens -1", "from 0 to 1048576, not '-1'"),
    ("--max-new-tokens 1e9", "not '1e9'"),
    ("--no-cache=perhaps", "--no-cache"),
    ("--prompt", "--prompt"),
    ("--prompt \udcff", "--prompt: the text is not UTF-8 at byte 0"),
    ("--prompt " + "x" * 16385, "at most 16384 bytes"),
    ("--tokenizer {tokenizer}", "--tokenizer needs --model"),
    ("--model {folder}/nothing", "cannot read"),
    ("--model {file}", "too short for a llama2.c file"),
    ("--model {model}", "neither tok420.bin nor tokenizer.bin beside it"),
    ("--model {model} --tokenizer {file}", "too short for a llama2.c tokenizer of 420 tokens"),
    ("--model {model} --tokenizer {folder}/nothing", "cannot read"),
    ("--model {model} --tokenizer /", "is not a file"),
    ("--model {model} --tokenizer {tokenizer}", "this model needs a --prompt to begin with"),
    ("--prompt -", "this model needs a --prompt to begin with: it has no BOS token"),  # from an empty standard input
    ("--model {model} --tokenizer {tokenizer} --prompt " + "x" * 65, "a sequence of 65 tokens exceeds"),
    ("--model tests/fixtures/09_full_model/qwen3", "cannot read tests/fixtures/09_full_model/qwen3/tokenizer.json"),
    ("--model tests/fixtures/09_full_model/qwen3 --tokenizer {tokenizer}", "but the vocabulary size is 17"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
]
TRAINING_REJECTED = [  # of chapter 13; {run} is a folder with a run of 2 steps on a text
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--steps -1", "from 0 to 16777216, not '-1'"),
    ("--steps 16777217", "not '16777217'"),
    ("--steps 1e3", "not '1e3'"),
    ("--steps 2 --steps 3", "--steps"),
    ("--save-steps -1", "from 0 to 16777216, not '-1'"),
    ("--learning-rate -0.1", "from 0 to 1, not '-0.1'"),
    ("--learning-rate 1.1", "not '1.1'"),
    ("--learning-rate fast", "not 'fast'"),
    ("--gradient-accumulation-steps 0", "from 1 to 256, not '0'"),
    ("--gradient-accumulation-steps 257", "not '257'"),
    ("--weight-decay -1", "from 0 to 10, not '-1'"),
    ("--max-grad-norm 0", "from 0.0001 to 1000000, not '0'"),
    ("--attention-dropout 1", "from 0 to 0.9, not '1'"),
    ("--batch-size 17", "from 1 to 16, not '17'"),
    ("--seq-len 0", "from 1 to 1024, not '0'"),
    ("--hidden-size 0", "from 1 to 4096, not '0'"),
    ("--hidden-size 99999999999999999999", "from 1 to 4096"),
    ("--intermediate-size 16385", "not '16385'"),
    ("--num-hidden-layers 129", "from 1 to 128, not '129'"),
    ("--num-attention-heads 3", "2 key/value heads do not divide 3 query heads"),
    ("--num-key-value-heads 3", "3 key/value heads do not divide 4 query heads"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--dtype float16", "--dtype takes float32 or bfloat16, not 'float16'"),
    ("--optimizer sgd", "--optimizer takes adamw or muon, not 'sgd'"),
    ("--qk-norm=perhaps", "--qk-norm"),
    ("--folder", "--folder"),
    ("--folder {file}", "--folder needs a folder it can write to"),
    ("--folder /proc/nowhere", "--folder needs a folder it can write to"),
    ("--resume --folder {folder}/new", "/new holds no checkpoint to resume from"),
    ("--resume --folder {damaged}", "run.safetensors: too short for a safetensors file"),
    ("--resume --folder {run}", "this run has other options or another text"),
    ("--folder {run} --steps 2", "holds a checkpoint: --resume continues its run"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
    ("--text {numbers}", "--text has moved: ./learn train FILE"),
    ("--ablations", "--ablations has moved: ./learn experiment ablations"),
    ("--mup", "--mup has moved: ./learn experiment mup"),
    ("--text {numbers} --scaling-law", "--text has moved"),
    ("--minutes 3", "unknown argument '--minutes'"),
]
TRAIN_REJECTED = [  # of ./learn train; {numbers} is a text, {run} a folder with a run of 2 steps on it
    ("", "--text is missing: ./learn train FILE or FOLDER"),
    ("--text", "--text"),
    ("--text=", "--text"),
    ("--text {folder}/nothing", "cannot read"),
    ("--text {no_files}", "no_files: the folder has no files"),
    ("--text {numbers},{folder}/nothing", "cannot read"),
    ("--text ,", "cannot read ,"),
    ("--text {numbers} --document-separator 80", "tokens are too few: a tenth of them must be more than 256"),
    ("--text {numbers} --document-separator=", "--document-separator"),
    ("--text {numbers} --document-separator 7 --vocab-size 256", "256 bytes and 1 special tokens are too many for a vocabulary of 256"),
    ("--text {numbers} --individual-digits", "--special-tokens and --individual-digits are for documents"),
    ("--text /dev/null", "is not a file"),
    ("--text {empty}", "is empty"),
    ("--text {zeros}", "no text: byte 2 is 0"),
    ("--text {bytes}", "no text: byte 3 is no UTF-8"),
    ("--text {file}", "4 tokens are too few: a tenth of them must be more than 256"),
    ("--text {numbers} --seq-len 400 --vocab-size 0 --folder {folder}", "a tenth of them must be more than 400"),
    ("--text {numbers} --vocab-size 11", "the text has 11 different characters, too many for a vocabulary of 11"),
    ("--text {numbers} --vocab-size 65537", "from 0 to 65536, not '65537'"),
    ("--text {numbers} --vocab-size -1", "not '-1'"),
    ("--minutes 0", "from 0.1 to 10000, not '0'"),
    ("--minutes 10001", "not '10001'"),
    ("--minutes nan", "not 'nan'"),
    ("--minutes five", "not 'five'"),
    ("--text {numbers} --hidden-size 100", "6 query heads do not divide a hidden size of 100"),
    ("--text {numbers} --hidden-size 30", "head_dim must be even for RoPE, not 5"),
    ("--text {numbers} --folder {file}/below", "--folder needs a folder it can write to"),
    ("--resume --text {numbers} --folder {folder}", "holds no checkpoint to resume from"),
    ("--resume --text {numbers} --folder {damaged} {small}", "run.safetensors: too short for a safetensors file"),
    ("--text {numbers} --folder assets/king_james", "assets/king_james holds a model"),
    ("--text {numbers} --folder {run} {small}", "holds a checkpoint: --resume continues its run"),
    ("--resume --text {other} --folder {run} {small}", "this run has other options or another text"),
    ("--resume --text {numbers} --folder {run} {small} --steps 1", "another text: --steps 1 (saved run: 2)"),
    ("--resume --text {numbers} --folder {run} {small} --steps 9 --seed 8 --weight-decay 0.5",
     "another text: --seed 8 (saved run: 77), --weight-decay 0.5 (saved run: 0.1)"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --seed 78", "this run has other options"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --gradient-accumulation-steps 2", "this run has other options"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --num-hidden-layers 3", "this run has other options"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --num-key-value-heads 1", "this run has other options"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --attention-dropout 0.1", "this run has other options"),
    ("--resume --text {numbers} --folder {run} {small} --steps 2 --max-grad-norm 2", "this run has other options"),
]
SERVING_REJECTED = BASIC_REJECTED + [
    ("--page-size 0", "--page-size takes an integer from 1 to 64, not '0'"),
    ("--max-sequences 21", "--max-sequences takes an integer from 1 to 20, not '21'"),
    ("--max-step-tokens 3", "--max-step-tokens takes an integer from 4 to 64, not '3'"),
    ("--num-pages 65", "--num-pages takes an integer from 4 to 64, not '65'"),
    ("--static-batching", "--static-batching needs --requests"),
    ("--no-prefix-cache", "--no-prefix-cache needs --requests"),
    ("--requests", "--requests"),
    ("--requests 7+x", "'7+x' is not PROMPT+NEW or SHARED+PROMPT+NEW"),
    ("--requests 7+9@3-2", "it cannot be canceled before step 2"),
    ("--requests 90+9", "90 tokens of a prompt and 9 new ones need 7 pages of 16, but there are 5"),
    ("--requests 7+9 --max-sequences 13", "13 sequences do not fit into steps of 12 tokens"),
]
EXPERIMENTS_REJECTED = [  # of ./learn experiment
    ("", "--name is missing: ./learn experiment ablations, mup, scaling-law, normal-runs, attention-sinks, longer-contexts, passkey, experts, latent-attention, recall, linear-attention or multi-token-prediction"),
    ("--name sgd", "--name takes ablations, mup, scaling-law, normal-runs, attention-sinks, longer-contexts, passkey, experts, latent-attention, recall, linear-attention or multi-token-prediction, not 'sgd'"),
    ("--name scaling-law", "scaling-law needs --text"),
    ("--name experts", "experts needs --text"),
    ("--name attention-sinks --text {file}", "tokens are too few"),
    ("--name longer-contexts --text {text} --train-len 4096", "--train-len 4096 exceeds 8 times the context of 256"),
    ("--name longer-contexts --text {file}", "tokens are too few"),
    ("--name experts --text {text} --export {file}", "--export needs a folder it can write to"),
]
FAST_REJECTED = [  # of chapter 15
    ("--bogus", "unknown argument '--bogus'"),
    ("stray", "unknown argument 'stray'"),
    ("--no-timing 3", "unknown argument '3'"),
    ("--seed -1", "from 0 to 4294967295, not '-1'"),
    ("--max-new-tokens 0", "from 1 to 1048576, not '0'"),
    ("--max-new-tokens ten", "not 'ten'"),
    ("--prompt=", "--prompt"),
    ("--model /nowhere", "/nowhere"),
    ("--model {file}", "file"),
    ("--model {model}", "tokenizer"),
    ("--tokenizer {tokenizer}", "--tokenizer needs --model"),
    ("--model {model} --tokenizer {file}", "file"),
    ("--model {model} --tokenizer {tokenizer} --prompt " + 300 * "@", "tokens exceeds max_position_embeddings of 64"),
    ("--save {file}", "--save needs a folder it can write to"),
    ("--plots {file}", "--plots needs a folder it can write to"),
]
QUANTIZATION_REJECTED = [  # of chapter 16
    *[rejected for rejected in FAST_REJECTED if "{model}" not in rejected[0]],
    ("--dtype q2_k", "q2_k"),
    ("--adapter x", "--adapter needs --model"),
    ("--model {wordnet} --export-adapter x", "--export-adapter needs --adapter"),
    ("--model {wordnet} --adapter {wordnet}_answers --export-adapter {file}", "exists already and is not overwritten"),
    ("--model assets/king_james --adapter {wordnet}_answers --export {folder}", "model.layers.0.self_attn.q_proj"),
    ("--cache-dtype q8_0", "--cache-dtype takes float32 or float16, not 'q8_0'"),
    ("--dtype", "--dtype"),
    ("--model {model} --tokenizer {file}", "file"),
    ("--export {folder}/nothing/model.gguf", "cannot write"),
    ("--export {file}", "exists"),
]
LONG_CONTEXT_REJECTED = [  # of chapter 17
    *BASIC_REJECTED,
    ("--sinks", "--sinks has moved: ./learn experiment attention-sinks --text FILE"),
    ("--extend", "--extend has moved: ./learn experiment longer-contexts --text FILE"),
    ("--factor 0", "--factor takes an integer from 1 to 32, not '0'"),
    ("--text {folder}/nothing", "cannot read"),
    ("--text {file}", "tokens are too few"),
    ("--tokens 1", "--tokens needs --model"),
    ("--prompt x", "--prompt needs --model"),
    ("--model {folder}/nothing", "cannot read"),
    ("--model tests/fixtures/17_long_context/gemma2 --dtype q8_0", "--dtype needs --gguf"),
    ("--model tests/fixtures/17_long_context/gemma2 --prompt x", "tokenizer.json"),
    ("--model tests/fixtures/17_long_context/gemma2 --tokens 1,31", "31"),
    ("--model tests/fixtures/17_long_context/gemma2 --temperature 0.001", "--temperature"),
    ("--gguf x", "--gguf needs --model"),
    ("--model tests/fixtures/17_long_context/gemma2 --gguf {folder}/x", "tokenizer.json"),
]
LATENT_REJECTED = [  # of chapter 19
    *BASIC_REJECTED,
    ("--config {folder}/nothing", "cannot read"),
    ("--config {file}", "JSON"),
]
EXPERTS_REJECTED = [  # of chapter 18
    *BASIC_REJECTED,
    ("--train", "--train has moved: ./learn experiment experts --text FILE"),
    ("--export {folder}/x", "--export needs --model"),
    ("--num-experts 4", "--num-experts needs --collapse"),
    ("--collapse --num-experts 0", "--num-experts takes an integer from 1 to 64, not '0'"),
    ("--collapse --num-experts 2 --num-experts-per-tok 3", "--num-experts-per-tok 3 exceeds --num-experts 2"),
    ("--collapse --aux-loss-coef -1", "--aux-loss-coef takes a number from 0 to 10, not '-1'"),
    ("--text {folder}/nothing", "cannot read"),
    ("--text {file}", "tokens are too few"),
    ("--tokens 1", "--tokens needs --model"),
    ("--prompt x", "--prompt needs --model"),
    ("--model {folder}/nothing", "cannot read"),
    ("--model assets/king_james_experts --dtype q8_0", "--dtype needs --gguf"),
    ("--model assets/king_james_experts --prompt x", "tokenizer.json"),
    ("--gguf x", "--gguf needs --model"),
    ("--model assets/king_james_experts --gguf {folder}/x", "tokenizer.json"),
    ("--model assets/king_james_experts --tokens 1,1024", "1024"),
]
PUBLISHED_REJECTED = [  # of ./learn model
    ("--markdown", "--markdown needs --families"),
    ("--diff assets/king_james", "--diff: At least 2 required but received 1"),
    ("--diff assets/king_james nothing", "nothing is neither a config.json or its folder nor one of GPT-2 XL, "),
    ("--size nothing", "nothing is neither a config.json or its folder nor one of GPT-2 XL, "),
    ("--size assets/king_james --context 257", "--context 257 exceeds max_position_embeddings of 256"),
    ("--context 5", "--context needs --size"),
    ("", "--model is missing: ./learn model DIR or FILE.gguf"),
    ("--model {folder}/nothing", "cannot read"),
    ("--model {file}", "too short for a llama2.c file"),
    ("--model assets/king_james --tokens 1,1024", "1024"),
    ("--model assets/king_james --gguf {file}", "exists already and is not overwritten"),
    ("--model assets/king_james_experts --prompt x", "tokenizer.json"),
    ("--model assets/king_james --temperature 0.001", "--temperature"),
    ("--model assets/king_james --gguf {folder}/x --dtype int8", "--dtype takes"),
]
WALK_REJECTED = BASIC_REJECTED + [  # of ./learn walk
    ("--prompt x", "--prompt takes 2 to 8 tokens, not 1"),
    ("--prompt " + "a" * 2000, "--prompt takes 2 to 8 tokens"),
    ("--layer 4", "from 0 to 3, not '4'"),
    ("--head 6", "from 0 to 5, not '6'"),
    ("--max-length 1", "from 2 to 8, not '1'"),
]
WORDS_REJECTED = [  # of chapters 01, 02, 03 and 05; {words} has damaged tensors
    ("--words", "--words"),
    ("--words {folder}/nothing", "cannot read"),
    ("--words {file}", "cannot read"),
    ("--words {words}", "words.safetensors: too short for a safetensors file"),
    ("--words {many_words}", "words: 2 to 16 tokens can be shown, not 17"),
    ("--words {no_text}", "tokens.txt: no text: byte 3 is no UTF-8"),
]
OWN_REJECTED = {  # of one chapter, in addition to SIZES_REJECTED
    "01_masking": WORDS_REJECTED, "02_projections": WORDS_REJECTED, "03_head_splitting": WORDS_REJECTED, "05_gqa": WORDS_REJECTED,
    "04_rope": [
        ("--rope-type yarn", "--rope-type takes default, linear, ntk or llama3, not 'yarn'"),
        ("--rope-type=", "--rope-type"),
        ("--rope-type ntk --head-dim 2", "NTK scaling needs more than one pair, not a head_dim of 2"),
        ("--factor 0.5", "--factor takes a number from 1 to 1000, not '0.5'"),
        ("--factor many", "not 'many'"),
        ("--query-position 4096", "--query-position takes an integer from 0 to 4095, not '4096'"),
        ("--key-position -1", "--key-position takes an integer from 0 to 4095, not '-1'"),
    ],
    "06_swiglu": [("--hidden-act tanh", "--hidden-act takes silu, gelu, gelu_pytorch_tanh, relu or sigmoid, not 'tanh'"),
                  ("--hidden-act SiLU", "not 'SiLU'")],
    "07_rmsnorm_vs_layernorm": [("--rms-norm-eps -1e-5", "--rms-norm-eps takes a number from 0 to 1, not '-1e-5'"),
                                ("--rms-norm-eps 2", "not '2'"), ("--rms-norm-eps small", "not 'small'")],
    "08_pre_vs_post_norm": [
        ("--norm-placement pre", "--norm-placement takes all, pre-norm, post-norm, res-post-norm, sandwich or parallel, not 'pre'"),
        ("--num-hidden-layers 0", "--num-hidden-layers takes an integer from 1 to 128, not '0'"),
        ("--num-hidden-layers 129", "not '129'")],
}
# Options of one chapter, and lines that the program then prints, as regular expressions.
OPTIONS = {
    "04_rope": [("--query-position 13 --key-position 12", r"said at 13, LORD at 12 +1\.00   2\.57\nsaid at 113, LORD at 112 +1\.00   2\.57\n"),
                ("--key-position 1", r"said at 3, LORD at 1 +2\.00   2\.37\n"),  # the distance of 4 and 2
                ("--rope-type linear --factor 4", r"inverse_frequencies: \(4,\)\n\{ 0\.25  ,  0\.025 ,  0\.0025,  0\.0003\}"),
                ("--rope-type ntk --factor 8", r"inverse_frequencies: \(4,\)\n\{ 1\.    ,  0\.05  ,  0\.0025,  0\.0001\}"),
                ("--rope-type llama3", r"inverse_frequencies: \(4,\)\n\{ 1\.    ,  0\.1   ,  0\.01  ,  0\.0002\}"),
                ("--rope-type ntk", r"formula: .*\nlargest difference: 0\n"),
                ("--factor 1", r"frequency_ratios: \(5, 3\)\n\{\{ 1\.,  1\.,  1\.\},\n")],
    # the rows of the GLU variants in the default run
    "06_swiglu": [("--hidden-act relu", r"feature  gate  relu\(gate\)(?s:.*)relu_gate: (?s:.*)mlp_output: .*\n\{\{\{ 0\.1874, -0\.0225, -0\.0215,"),
                  ("--hidden-act gelu", r"mlp_output: .*\n\{\{\{ 0\.1082,  0\.0055, -0\.0634,"),
                  ("--hidden-act sigmoid", r"mlp_output: .*\n\{\{\{ 0\.2973, -0\.0992,  0\.1008,(?s:.*)SwiGLU, SiLU +0\.0740   0\.0248")],
    "07_rmsnorm_vs_layernorm": [("--rms-norm-eps 0.01", r" inside, 0\.01 (?s:.*)\n 0\.10000 +0\.7071 +0\.9999 +0\.9091"),
                                ("--rms-norm-eps 1", r"word_rms_normalized: .*\n.*\nAnd +0\.06   ")],
    # the row of layer 12 of 48 in the default run
    "08_pre_vs_post_norm": [("--num-hidden-layers 12", r"sandwich +12 +5\.01 +0\.30 +0\.96 +0\.19 +2\.40\nparallel +1 "),
                            ("--norm-placement sandwich", r"sensitivity\nsandwich +1 .*\nsandwich +12 .*\nsandwich +48 .*\nupdate"),
                            ("--num-hidden-layers 1 --norm-placement parallel", r"over 1 layer (?s:.*)sensitivity\nparallel +1 .*\nupdate")],
}
LEARN_REJECTED = [
    ("99", "there is no chapter '99'"),
    ("0", "there is no chapter '0'"),
    ("1x", "there is no chapter '1x'"),
    ("bogus", "unknown command 'bogus'"),
    ("exercise", "which chapter?"),
    ("exercise 1 --hint 99", "no hint for exercise '1.99'"),
    ("exercise 1 --hint", "of which exercise?"),
    ("exercise 1 --hint two", "of which exercise?"),
    ("test 1 2", "unexpected argument '2'"),
    ("list all", "unexpected argument 'all'"),
    ("exercise 1 --solution 99", "no exercise '1.99'"),
    ("exercise 1 --bogus", "not '--bogus'"),
    ("watch", "which chapter?"),
    ("read", "which chapter?"),
    ("read 99", "there is no chapter '99'"),
    ("read 1 2", "unexpected argument '2'"),
    ("test 99", "there is no chapter '99'"),
]
REJECTED = {"09_full_model": MODEL_REJECTED, "10_tokenizer": TOKENIZER_REJECTED, "11_generation": GENERATION_REJECTED,
           "12_gradients": BASIC_REJECTED, "14_fine_tuning": FINE_TUNING_REJECTED, "13_training": TRAINING_REJECTED, "15_fast": FAST_REJECTED,
           "16_quantization": QUANTIZATION_REJECTED, "17_long_context": LONG_CONTEXT_REJECTED,
           "18_experts": EXPERTS_REJECTED, "19_latent_attention": LATENT_REJECTED, "20_linear_attention": BASIC_REJECTED, "21_serving": SERVING_REJECTED, "model": PUBLISHED_REJECTED, "train": TRAIN_REJECTED,
           "fine_tune": FINE_TUNE_REJECTED, "experiment": EXPERIMENTS_REJECTED, "walk": WALK_REJECTED}
problems = []


def run(command, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          text=True, timeout=120, **kwargs)


def expect_rejection(command, message):
    result = run(command)
    lines = result.stderr.strip().split("\n")
    if result.returncode != 2 or len(lines) != 1 or message not in lines[0] or result.stdout:
        problems.append(f"{' '.join(map(str, command))}: exit {result.returncode}, standard output "
                        f"{len(result.stdout)} characters, expected one line with \"{message}\", got: {result.stderr}")


def contents(folder):
    """The files of a folder. The times in a log are left out, because they differ between equal runs."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    return {name: re.sub(rb',"seconds":[^}]*', b"", data) if name == "log.jsonl" else data for name, data in files.items()}


def without_speed(text):
    """The output without the speed of training, which differs between equal runs."""
    return re.sub(r", [\d,]+ tokens/s, \d+:\d\d left", "", text)


def write_llama2c_model(file):
    """A model of 420 tokens with random weights, for the tokenizers of the fixtures."""
    C, F, L, H, HKV, V, P = 16, 20, 2, 4, 2, 420, 64
    generator = random.Random(1)
    normal = lambda count, scale: array.array("f", (generator.gauss(0, scale) for _ in range(count)))
    norms = lambda count: array.array("f", [1.0] * count)
    tensors = [normal(V * C, 1), norms(L * C), normal(L * C * C, 0.3), normal(L * C * C * HKV // H, 0.3),
               normal(L * C * C * HKV // H, 0.3), normal(L * C * C, 0.3), norms(L * C), normal(3 * L * C * F, 0.3),
               norms(C), norms(P * C // H)]
    file.write_bytes(struct.pack("<7i", C, F, L, H, HKV, V, P) + b"".join(tensor.tobytes() for tensor in tensors))


# Options of a model that can be trained on a text in a second.
SMALL_TEXT = "--seq-len 16 --hidden-size 24 --num-attention-heads 4 --plots none".split()
SMALL = [*SMALL_TEXT, "--vocab-size", "32"]


def write_texts(program, scratch):
    """Writes the files and folders that TRAINING_REJECTED names; returns their paths by name."""
    texts = {"empty": b"", "zeros": b"ab\0c", "bytes": b"abc\xff", "numbers": " ".join(map(str, range(800))).encode(),
             "other": " ".join(map(str, range(801))).encode()}
    for name, text in texts.items():
        (scratch / name).write_bytes(text)
    (scratch / "damaged").mkdir(exist_ok=True)
    (scratch / "damaged/run.safetensors").write_text("short")
    (scratch / "no_files").mkdir(exist_ok=True)
    if (scratch / "run").exists():  # written for another program
        return {name: scratch / name for name in (*texts, "damaged", "no_files", "run")}
    result = run([program.parent / "train", "--text", scratch / "numbers", "--folder", scratch / "run", "--steps", "2", *SMALL])
    if result.returncode != 0 or result.stderr:
        problems.append(f"{program.name} on a small text: exit {result.returncode}: {result.stderr}")
    return {name: scratch / name for name in (*texts, "damaged", "no_files", "run")}


def check_rejections(program, scratch):
    file = scratch / "file"
    file.write_text("kept")
    write_llama2c_model(scratch / "model.bin")
    trains = program.name in ("13_training", "train")
    (scratch / "text").write_text(" ".join(map(str, range(800))))
    names = {"file": file, "folder": scratch / "new", "text": scratch / "text", "model": scratch / "model.bin",
             "tokenizer": ROOT / "tests/fixtures/10_tokenizer/gpt2/tokenizer.json",
             "wordnet": WORDNET, "questions": WORDNET / "questions.jsonl"}
    for name, tokens in (("words", b"And\nthe\n"), ("many_words", 17 * b"And\n"), ("no_text", b"And\xff")):
        names[name] = scratch / name
        names[name].mkdir(exist_ok=True)
        (names[name] / "tokens.txt").write_bytes(tokens)
        (names[name] / "words.safetensors").write_text("short")
    if trains:
        names |= write_texts(program, scratch) | {"small": " ".join(SMALL)}
    before = contents(scratch / "run") if trains else {}
    for options, message in REJECTED.get(program.name, SIZES_REJECTED + OWN_REJECTED.get(program.name, [])):
        expect_rejection([program, *options.format(**names).split()], message)
    if file.read_text() != "kept" or (scratch / "new").exists() or (trains and contents(scratch / "run") != before):
        problems.append(f"{program}: an invalid command line changed files")


def check_good(program, scratch):
    """Runs the program without options: its tensors, figures and plain output; as JSON, with the same seed, it shows the same."""
    tensors, plots = scratch / program.name / "tensors", scratch / program.name / "plots"
    few_steps = "--base-steps 20 --sft-steps 10 --grpo-steps 6".split()
    command = [program, *{"13_training": ["--steps", "12"], "14_fine_tuning": few_steps, "15_fast": ["--no-timing"],
                          "16_quantization": ["--no-timing"]}.get(program.name, [])]
    first = run([*command, "--save", tensors, "--plots", plots])
    if first.returncode != 0 or first.stderr or "\x1b" in first.stdout:
        problems.append(f"{program.name}: exit {first.returncode}, or colors in a pipe, or: {first.stderr}")
    shown = set(re.findall(r"^([\w.]+): \((?:\d+, ?)*\d*\)(?:, of which .*)?\n(?: *\{|  +\w)", first.stdout, re.M))
    saved = {file.stem for file in tensors.iterdir()}
    if saved != shown or any(file.suffix != ".npy" for file in tensors.iterdir()):
        problems.append(f"{program.name}: shown but not saved {shown - saved}, saved but not shown {saved - shown}")
    page = (ROOT / "docs" / f"{program.name}.md").read_text()
    table = page.split("## Tensor shapes")[1].split("\n## ")[0]
    for name in sorted(saved):
        if f"`{name}`" not in table:
            problems.append(f"{program.name}: {name} is saved but missing in the page's table of tensor shapes")
    drawn = {file.name for file in plots.iterdir()}
    for name in drawn:
        if not name.startswith(program.name) or f"{name[:-3]}png" not in drawn or f"{name[:-3]}svg" not in drawn:
            problems.append(f"{program.name}: a figure with a wrong name, or not both SVG and PNG: {name}")
    # The text of a model is not wrapped.
    without_text = re.sub(r"── \d+\. The generated text ──.*?tokens generated|── \d+\. Greedy generation ──.*?\nmodel ", "", first.stdout, flags=re.S)
    wide = [line for line in without_text.split("\n") if len(line) > 80]
    if wide:
        problems.append(f"{program.name}: {len(wide)} lines of more than 80 characters: {wide[0]}")
    other = run([*command, "--plots", "none", "--seed", "78"]).stdout
    if without_speed(other).rstrip() == without_speed(first.stdout).split("\nFigures:")[0].rstrip():
        problems.append(f"{program.name}: the seed changes nothing")
    check_help(program)
    check_selection(program, command, first.stdout)
    check_json(program, command, first.stdout, tensors, plots)
    check = {"09_full_model": check_models, "10_tokenizer": check_tokenizers, "11_generation": check_generation,
             "12_gradients": None, "14_fine_tuning": check_penalty, "13_training": check_names, "15_fast": check_timing,
             "16_quantization": check_export, "17_long_context": check_long_context, "18_experts": check_experts, "19_latent_attention": check_costs, "20_linear_attention": None, "21_serving": check_schedule}.get(program.name, check_sizes)
    if check:
        check(program, scratch)


def check_penalty(program, scratch):
    """--beta changes GRPO, and nothing before it."""
    command = [program, *"--base-steps 20 --sft-steps 10 --grpo-steps 6 --plots none --beta".split()]
    weak, strong = (run([*command, beta]).stdout.split("GRPO: the model sees rewards") for beta in ("0", "9"))
    if weak[0] != strong[0] or weak[1] == strong[1]:
        problems.append(f"{program.name} --beta: {weak[1]} and {strong[1]}")


def check_long_context(program, scratch):
    """--measure runs; a model of each type is exported, and its copy shows the same logits."""
    for model_type in ("mistral", "gemma2", "gemma3_text"):
        model, copy = ROOT / "tests/fixtures/17_long_context" / model_type, scratch / f"copy_of_{model_type}"
        shown = [run([program, "--model", folder, "--tokens", "3,1,4,1,5,9,2,6", *more]).stdout.split("exported")[0]
                 for folder, more in ((model, ["--export", copy]), (copy, []))]
        if shown[0] != shown[1] or "next token" not in shown[0]:
            problems.append(f"{program.name}: the exported {model_type} model shows {shown[1]} instead of {shown[0]}")
    short = scratch / "short.txt"
    short.write_text((ROOT / "assets/data/king_james_held_out.txt").read_text()[:20000])
    for options, shown in ((["--measure", "--plots", "none"], "window of 128"),
                           (["--factor", "1", "--text", short, "--only", "13"], "none  ")):
        result = run([program, *options, "--plots", scratch / "long_context_plots"] if "--plots" not in options else [program, *options])
        if result.returncode != 0 or result.stderr or shown not in result.stdout:
            problems.append(f"{program.name} {options}: exit {result.returncode}: {result.stdout[-300:]} {result.stderr}")


def check_experts(program, scratch):
    """--collapse runs; a model of each type is exported, and its copy shows the same logits."""
    for model_type in ("mixtral", "qwen3_moe", "gpt_oss", "gpt_oss_mxfp4", "llama4_text"):
        model, copy = ROOT / "tests/fixtures/18_experts" / model_type, scratch / f"copy_of_{model_type}"
        shown = [run([program, "--model", folder, "--tokens", "3,1,4,1,5,9,2,6", *more]).stdout.split("exported")[0]
                 for folder, more in ((model, ["--export", copy]), (copy, []))]
        if shown[0] != shown[1] or "next token" not in shown[0]:
            problems.append(f"{program.name}: the exported {model_type} model shows {shown[1]} instead of {shown[0]}")
    short = scratch / "short.txt"
    short.write_text((ROOT / "assets/data/king_james_held_out.txt").read_text()[:20000])
    for options, shown in ((["--collapse"], "\nbias update"), (["--collapse", "--num-experts", "3", "--aux-loss-coef", "0.5"], "\nauxiliary loss"),
                           (["--text", short, "--only", "9"], "newline")):
        result = run([program, *options, "--plots", scratch / "expert_plots"])
        if result.returncode != 0 or result.stderr or shown not in result.stdout:
            problems.append(f"{program.name} {options}: exit {result.returncode}: {result.stdout[-300:]} {result.stderr}")


def check_schedule(program, scratch):
    """--requests plans requests without a model, in 80 columns; its last step is a table of all."""
    command = [program, "--requests", "8+13+9 8+3+30@2 40+6@2 3+3@3-9", "--page-size", "4", "--num-pages", "24"]
    for options in ([], ["--static-batching"], ["--no-prefix-cache", "--max-sequences", "4"], ["--quiet"]):
        result = run([*command, *options])
        if result.returncode != 0 or result.stderr or ("All steps" in result.stdout) == ("--quiet" in options):
            problems.append(f"{program.name} --requests {options}: exit {result.returncode}: {result.stdout[-300:]} {result.stderr}")
        problems.extend(f"{program.name} --requests {options}: {line}" for line in result.stdout.split("\n") if len(line) > 80)


def check_walk(program, scratch):
    """./learn walk fits into 80 columns, shows lines that stand in the lessons, and ends where chapter 09 does; other
    texts, layers and heads have the same steps."""
    lines = run([program]).stdout.split("\n")
    shown = 0
    for place, code, following in zip(lines, lines[1:], lines[2:]):
        match = re.fullmatch(r"(chapters/\d\d_\w+/\w+\.[ch]pp), ([\w:]+)(\(\))?:", place)
        if not match:
            continue
        shown += 1
        source = (ROOT / match[1]).read_text()
        both = [code, following] if following.startswith("> ") else [code]
        if any(not line.startswith("> ") or line[2:] not in source for line in both) or match[2].split("::")[0] not in source:
            problems.append(f"{program.name}: {match[1]} has no line {code.strip()} in {match[2]}")
    if shown < 12 or any(len(line) > 80 for line in lines):
        problems.append(f"{program.name}: shows {shown} lines of the lessons, or a line above 80 columns")
    if not any(re.fullmatch(r"Moses +494 +10\.00 +0\.581", line) for line in lines):
        problems.append(f"{program.name}: does not end with the prediction of chapter 09")
    steps = [line for line in lines if line.startswith("──")]
    for options in (["--prompt", "And he"], ["--layer", "0", "--head", "0"], ["--layer", "3", "--head", "5"], ["--prompt", "ü <s> a\n"]):
        other = run([program, *options])
        same = [re.sub(r"layer \d", "layer 2", line) for line in other.stdout.split("\n") if line.startswith("──")]
        if other.returncode != 0 or same != steps:
            problems.append(f"{program.name} {options}: {other.stderr} {same}")
    if run([program, "--max-length", "3"]).stdout != run([program, "--prompt", "And the LORD"]).stdout:
        problems.append(f"{program.name}: --max-length 3 is not the text of three tokens")


def check_published(program, scratch):
    """./learn model shows a Llama, writes its text, and writes it and a mixture of experts to GGUF files; its copy of a
    Llama shows the same logits."""
    king_james, gguf = ROOT / "assets/king_james", scratch / "king_james.gguf"
    tokens = ["--tokens", "103,66,148"]
    shown = run([program, "--model", king_james, *tokens, "--gguf", gguf]).stdout
    again = run([program, "--model", gguf, *tokens]).stdout
    if "parameters: 1,771,200" not in shown or "next token" not in shown or shown.split("written")[0] != again:
        problems.append(f"{program.name}: {gguf} shows {again} instead of {shown}")
    folder = ROOT / "tests/fixtures/models/gpt2"
    sizes = [run([program, "--size", path]).stdout.partition(" tokens ──\n")[2] for path in (folder, folder / "config.json")]
    if len(sizes[0]) < 500 or sizes[0] != sizes[1]:
        problems.append(f"{program.name} --size of a folder and of its config.json: {sizes}")
    tokenizer = ["--tokenizer", king_james / "tokenizer.json"]
    text = run([program, "--model", ROOT / "assets/king_james_experts", *tokenizer, "--prompt", "And God", "--temperature", "0",
                "--max-new-tokens", "5", "--gguf", scratch / "experts.gguf", "--dtype", "q8_0"])
    if text.returncode != 0 or "active per token: 252,480" not in text.stdout or "And God" not in text.stdout or \
            "written: " not in text.stdout or not (scratch / "experts.gguf").exists():
        problems.append(f"{program.name}: exit {text.returncode}: {text.stdout} {text.stderr}")


def check_help(program):
    """--help lists each option with its limits and its default; --help --json lists those of the chapter as JSON."""
    common = "help plots save step only quiet json".split()
    text = run([program, "--help"]).stdout
    listed = {name: rest for name, rest in re.findall(r"^  (?:-h,)?--([\w-]+)(.*(?:\n {10,}.*)*)", text, re.M) if name not in common}
    described = {option["name"][2:]: option for option in map(json.loads, run([program, "--json", "--help"]).stdout.splitlines())}
    if "seed" not in listed or list(listed) != sorted(described, key=list(listed).index):
        problems.append(f"{program.name}: --help lists {sorted(listed)}, --help --json {sorted(described)}")
    for name, option in described.items():
        limits = f", {option['low']:.10g} to {option['high']:.10g}" if "low" in option else ""
        if option["kind"] == "choice":
            limits = f": {', '.join(option['choices'][:-1])} or {option['choices'][-1]}"
        default = f"={option['default']}" if "default" in option else ""
        if option["type"] != "option" or option["help"] + limits not in " ".join(listed[name].split()) or default not in listed[name]:
            problems.append(f"{program.name}: --help and --help --json describe --{name} in other words: {option}")


def titles_of_steps(text):
    return re.findall(r"^── \d+\. (.*) ──$", text, re.M)


# The programs whose --only and --quiet are compared with the whole output: the code is common to all. The second writes text.
WITH_SELECTION = ("05_gqa", "11_generation", "21_serving")


def check_selection(program, command, whole):
    """--only lists the steps if there is none with this number, in 80 columns, and prints one step of the run; --quiet prints
    text only."""
    titles = titles_of_steps(whole)
    beyond = run([*command, "--only", "999"])
    listed = [f"{number:3} {title}" for number, title in enumerate(titles, 1)]
    if beyond.returncode != 2 or beyond.stdout.split("\n")[:-1] != listed or \
            beyond.stderr != f"{program.name}: --only takes a step from 1 to {len(titles)}, not 999\n":
        problems.append(f"{program.name} --only 999: exit {beyond.returncode}: {beyond.stdout}{beyond.stderr}")
    for line in listed:  # with the number and the lines, a heading is longer by 4
        if len(line) > 76:
            problems.append(f"{program.name}: a heading of {len(line) - 4} characters: {line}")
    check_only(program, command, whole, 1)
    if program.name in WITH_SELECTION:
        check_only(program, command, whole, (len(titles) + 1) // 2)
        without = run([*command, "--only", "0"])
        if (without.returncode, without.stdout, without.stderr) != (0, beyond.stdout, ""):
            problems.append(f"{program.name} --only 0: exit {without.returncode}: {without.stdout}{without.stderr}")
        check_quiet(program, command, whole)


def check_only(program, command, whole, number):
    steps = ["\n── " + text for text in whole.split("\nFigures:")[0].split("\n── ")[1:]]
    only = run([*command, "--only", str(number)])
    if only.returncode != 0 or only.stderr or only.stdout.rstrip() != steps[number - 1].rstrip():
        problems.append(f"{program.name} --only {number}: exit {only.returncode}: {only.stdout}{only.stderr}")


def check_quiet(program, command, whole):
    quiet = run([*command, "--quiet"])
    generated = re.search(r"── \d+\. (?:The generated text|Greedy generation) ──\n(.*?)(?:tokens generated|model  +tokens per)", whole, re.S)
    if quiet.returncode != 0 or quiet.stderr or quiet.stdout != (generated[1] if generated else ""):
        problems.append(f"{program.name} --quiet: exit {quiet.returncode}: {quiet.stdout}{quiet.stderr}")


def numbers(file):
    """The shape and the elements of a .npy file of float32 or int64 in row-major order."""
    content = file.read_bytes()
    start = 10 + struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10:start].decode())
    return list(header["shape"]), array.array({"<f4": "f", "<i8": "q"}[header["descr"]], content[start:])


def check_json(program, command, whole, tensors, plots):
    """--json with the default's seed prints the same steps, tensors, values, tables, text and figures as lines of JSON."""
    result = run([*command, "--json", "--seed", "77"])
    events = [json.loads(line) for line in result.stdout.splitlines()]
    of_type = lambda *types: [event for event in events if event["type"] in types]
    if result.returncode != 0 or result.stderr or len(events) == 0:
        problems.append(f"{program.name} --json: exit {result.returncode}: {result.stderr}")
    if [event["title"] for event in of_type("step")] != titles_of_steps(whole):
        problems.append(f"{program.name} --json: other steps than in the text")
    shown = {event["name"]: event for event in of_type("tensor")}
    if set(shown) != {file.stem for file in tensors.iterdir()}:
        problems.append(f"{program.name} --json: other tensors than with --save")
    for name, event in shown.items():
        shape, saved = numbers(tensors / f"{name}.npy")
        values = array.array(saved.typecode, (float(value) if saved.typecode == "f" else int(value) for value in event.get("values", [])))
        if event["shape"] != shape or ("values" in event and [*map(repr, values)] != [*map(repr, saved)]):  # NaN has no sign
            problems.append(f"{program.name} --json: {name} differs from the saved tensor")
    words = set(whole.split())
    for event in of_type("text", "value", "table"):
        texts = [event.get("text", "")] + [cell for row in event.get("rows", []) for cell in row]
        for text in texts:
            if not set(text.split()) <= words and not re.search(r"seconds|tokens/s|memory", str(event)):
                problems.append(f"{program.name} --json: a {event['type']} that the text does not have: {text}")
    if {event["name"] for event in of_type("figure")} != {file.stem.split("_", program.name.count("_") + 1)[-1] for file in plots.iterdir()}:
        problems.append(f"{program.name} --json: other figures than with --plots")
    for event in of_type("figure"):
        if not any(event.get(member) for member in ("values", "y")):
            problems.append(f"{program.name} --json: figure {event['name']} has no data")


def run_in_terminal(command, act=lambda output: None, **variables):
    """Runs the command in a terminal of 24 lines and 80 columns, and presses Enter at each prompt. act is called with the
    output so far. Returns the exit code and the output."""
    main_side, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variables
    process = subprocess.Popen(command, stdin=program_side, stdout=program_side, stderr=program_side, env=environment,
                               start_new_session=True)
    os.close(program_side)
    output, answered, end = b"", 0, time.time() + 60
    while time.time() < end:
        if select.select([main_side], [], [], 0.1)[0]:
            try:
                output += os.read(main_side, 65536)
            except OSError:  # the program has closed the terminal
                break
        if output.endswith(b"[Enter] ") and len(output) > answered:
            answered = len(output)
            os.write(main_side, b"\n")
        if signal_number := act(output.decode(errors="replace")):
            os.killpg(process.pid, signal_number)
            act = lambda output: None
    os.close(main_side)
    process.kill() if time.time() >= end else None
    return process.wait(), output.decode().replace("\r\n", "\n")


def check_terminal(program):
    """With --step no line leaves the screen before Enter was pressed; lines with colors are not wider than without them."""
    plain = run([program, "--plots", "none"]).stdout.split("\n")
    code, output = run_in_terminal([program, "--plots", "none", "--step"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for page in text.split("[Enter] "):
        page = page.removeprefix("\n\x1b[A\n\x1b[2K").removeprefix("\n\x1b[A\r\x1b[2K").lstrip("\n")
        height = sum(max(1, -(-len(line) // 80)) for line in page.split("\n")[:-1])
        if height > 23:
            problems.append(f"{program.name} --step: a page of {height} lines, which begins with {page[:60]!r}")
    if code != 0 or "[Enter] " not in text or "colors: " not in text or "── 1. " not in text:
        problems.append(f"{program.name} in a terminal: exit {code}, or no prompt, legend or number of a step")
    if any(len(line) > 80 for line in text.split("\n") if "colors: " in line):
        problems.append(f"{program.name} in a terminal: a legend that does not fit")
    if "\x1b[" in run_in_terminal([program, "--plots", "none"], NO_COLOR="1")[1] or "\x1b" in "".join(plain):
        problems.append(f"{program.name}: colors despite NO_COLOR, or in a pipe")


def check_sizes(program, scratch):
    """The demo runs with other sizes."""
    for sizes in ("--seq-len 1 --batch-size 1", "--hidden-size 96 --num-attention-heads 6 --num-key-value-heads 6",
                  "--hidden-size 20 --num-attention-heads 6 --num-key-value-heads 3 --head-dim 4",
                  "--seq-len 200", "--hidden-size 2 --num-attention-heads 1 --num-key-value-heads 1"):
        result = run([program, "--plots", "none", *sizes.split()])
        if result.returncode != 0 or result.stderr:
            problems.append(f"{program.name} {sizes}: exit {result.returncode}: {result.stderr}")
    check_own_options(program)
    if program.name in ("01_masking", "02_projections", "03_head_splitting", "05_gqa"):
        check_words(program, scratch)
    if program.name == "04_rope":
        check_rotated_pairs(program)


def check_costs(program, scratch):
    """The costs of the attention of a config.json: with key/value heads, and latent; a file without sizes is rejected."""
    file = scratch / "attention_config.json"
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": None}
    for keys, row in (({}, "model multi-head 8,192 32 524.3 68.7"),
                      ({"num_key_value_heads": 1, "head_dim": 64}, "model multi-query 128 32 8.2 1.1"),
                      ({"num_key_value_heads": 8, "model_type": "llama"}, "llama grouped-query 2,048 32 131.1 17.2"),
                      (latent, "model latent 576 32 36.9 4.8")):
        file.write_text(json.dumps({**sizes, **keys}))
        result = run([program, "--config", file, "--plots", "none"])
        if result.returncode != 0 or result.stderr or row not in re.sub(" +", " ", result.stdout):
            problems.append(f"{program.name} --config {keys}: exit {result.returncode}, no {row}: {result.stdout} {result.stderr}")
    for keys, message in (({"num_key_value_heads": 5}, "num_key_value_heads must divide num_attention_heads, 32"),
                          ({**latent, "v_head_dim": 0}, "v_head_dim"), ({**latent, "qk_rope_head_dim": None}, "qk_rope_head_dim"),
                          ({"hidden_size": -1}, "hidden_size")):
        file.write_text(json.dumps({**sizes, **keys}))
        expect_rejection([program, "--config", file], message)


def check_own_options(program):
    """The options of one chapter have the effect that OPTIONS lists; a choice takes each of its words."""
    for options, expected in OPTIONS.get(program.name, []):
        result = run([program, "--plots", "none", *options.split()])
        if result.returncode != 0 or result.stderr or not re.search(expected, result.stdout):
            problems.append(f"{program.name} {options}: exit {result.returncode}, no {expected}: {result.stderr}")
    for option in map(json.loads, run([program, "--json", "--help"]).stdout.splitlines()):
        for word in option.get("choices", []):
            result = run([program, "--plots", "none", option["name"], word])
            if result.returncode != 0 or result.stderr:
                problems.append(f"{program.name} {option['name']} {word}: exit {result.returncode}: {result.stderr}")


def check_words(program, scratch):
    """Shows the words of a text that chapter 11 writes; with their number and the last one in the titles."""
    folder = scratch / "other_words"
    run([program.parent / "11_generation", "--words", folder, "--prompt", "In the beginning God"])
    tokens = (folder / "tokens.txt").read_text().splitlines()
    result = run([program, "--words", folder, "--plots", "none"])
    columns = r"\nIn +-?\d.*\nthe +-?\d" if program.name != "03_head_splitting" else r"\n +In +the "
    if tokens != ["In", "the", "beg", "in", "n", "ing", "God"] or result.returncode != 0 or result.stderr or \
            ". 7 tokens: " not in result.stdout or not re.search(columns, result.stdout) or \
            program.name in ("03_head_splitting", "05_gqa") and '"God"' not in result.stdout:
        problems.append(f"{program.name} --words: exit {result.returncode}, {tokens}: {result.stderr}")
    shipped = run([program, "--words", ROOT / "assets/words", "--plots", "none"])
    if shipped.stdout != run([program, "--plots", "none"]).stdout:
        problems.append(f"{program.name} --words assets/words differs from the default")


def events_of(command):
    return [json.loads(line) for line in run([*command, "--json"]).stdout.splitlines()]


def check_rotated_pairs(program):
    """The parts of the pairs add up to the score, and a pair keeps its length when its angle changes."""
    rows = []
    for position in ("10", "1000"):
        tensors = {event["name"]: event for event in events_of([program, "--query-position", position]) if event["type"] == "tensor"}
        values, score = tensors["rotated_pairs"]["values"], tensors["said_and_lord"]["values"][1]
        rows.append([values[7 * i:7 * i + 7] for i in range(16)])
        if tensors["rotated_pairs"]["shape"] != [16, 7] or abs(sum(row[6] for row in rows[-1]) / 32 ** 0.5 - score) > 1e-3 or \
                abs(rows[-1][0][0] - float(position) * 57.29578) > 0.1:
            problems.append(f"{program.name} --query-position {position}: the rotated pairs do not give the score {score}")
    for near, far in zip(*rows):
        if abs(near[1] ** 2 + near[2] ** 2 - far[1] ** 2 - far[2] ** 2) > 1e-3 or near[3:6] != far[3:6]:
            problems.append(f"{program.name}: a rotated pair of another length, or another key: {near} {far}")


def check_models(program, scratch):
    """Runs each checkpoint of the fixtures; the model that --export writes has the same logits."""
    for model in sorted((ROOT / "tests/fixtures/09_full_model").iterdir()):
        if model.suffix == ".npy":
            continue
        common = ["--tokens", "3,16,0", "--plots", "none"]
        exported, saved, again = (scratch / f"{model.stem}_{name}" for name in ("exported", "saved", "again"))
        for command in (["--model", model, "--export", exported, "--save", saved], ["--model", exported, "--save", again]):
            result = run([program, *command, *common])
            if result.returncode != 0 or result.stderr:
                problems.append(f"{program.name} {command}: exit {result.returncode}: {result.stderr}")
                return
        if (saved / "logits.npy").read_bytes() != (again / "logits.npy").read_bytes():
            problems.append(f"{program.name}: {model.name} has different logits after --export")


def check_tokenizers(program, scratch):
    """Encodes a text with each tokenizer of the fixtures, and with one that it trains and exports."""
    text = "The café: 12\n<|im_end|> "
    for kind in sorted((ROOT / "tests/fixtures/10_tokenizer").iterdir()):
        result = run([program, "--tokenizer", kind, "--encode", text, "--plots", "none"])
        if result.returncode != 0 or result.stderr:
            problems.append(f"{program.name} {kind.name}: exit {result.returncode}: {result.stderr}")
    exported = scratch / "exported_tokenizer"
    for kind in (["--vocab-size", "40"], ["--byte-level", "--special-tokens", "<s> </s>"],
                 ["--byte-level", "--individual-digits"]):
        outputs = []
        for options in (["--train", scratch / "text", *kind, "--export", exported], ["--tokenizer", exported]):
            result = run([program, *options, "--encode", "12 345", "--plots", "none"])
            if result.returncode != 0 or result.stderr:
                problems.append(f"{program.name} {options}: exit {result.returncode}: {result.stderr}")
            outputs.append(result.stdout.split("──")[-1])  # without the step's title
        if outputs[0] != outputs[1]:
            problems.append(f"{program.name} {kind}: the exported tokenizer encodes differently")
    check_merges(program)


def check_merges(program):
    """With --encode, each row merges one pair of the row above it, and the last row of each word has its tokens."""
    for tokenizer, text in ((), "In the beginning banana"), (("--tokenizer", ROOT / "tests/fixtures/10_tokenizer/llama3"), "naive  cafe 12"), \
            (("--tokenizer", ROOT / "tests/fixtures/10_tokenizer/llama2"), "naïve café " * 100):
        events = events_of([program, *tokenizer, "--encode", text])
        tables = [event for event in events if event.get("headings") == ["word", "rank", "merge", "tokens"]]
        ids_and_tokens = [event["text"] for event in events if event.get("text", "").startswith("ids and tokens: ")]
        if len(tables) != 1 or len(ids_and_tokens) != 1:
            problems.append(f"{program.name} --encode {text}: {len(tables)} tables of merges")
            continue
        rows, tokens = tables[0]["rows"], []
        for above, (word, rank, merge, below) in zip([["", "", "", ""], *rows], rows):
            pair = merge.split(" + ")
            if word and above[3]:
                tokens += above[3].split(" ")
            if not word and (not rank or f" {above[3]} ".replace(f" {' '.join(pair)} ", f" {''.join(pair)} ", 1) != f" {below} "):
                problems.append(f"{program.name} --encode {text}: {above} {below} is not the merge {merge}")
        tokens += rows[-1][3].split(" ")
        expected = re.findall(r"\d+:(\S+)", ids_and_tokens[0])
        if len(text) < 100 and tokens != [token for token in expected if not token.startswith("<")]:
            problems.append(f"{program.name} --encode {text}: the merges give {tokens}, not {expected}")
        if len(text) > 100 and (len(rows) != 200 or events[-1].get("text") != "The table ends after 200 rows."):
            problems.append(f"{program.name} --encode: a table of {len(rows)} merges")


def check_generation(program, scratch):
    """Generates with each tokenizer of the fixtures; with and without a cache the text is the same."""
    exported = scratch / "exported"
    run([program.parent / "09_full_model", "--model", scratch / "model.bin", "--tokens", "1", "--export", exported, "--plots", "none"])
    without_speed = lambda text: re.sub(r"tokens per second: .*", "", text)
    for kind in ("gpt2", "llama3", "qwen", "smol", "llama2", "metaspace", "gpt_oss", "gemma"):
        shutil.copy(ROOT / "tests/fixtures/10_tokenizer" / kind / "tokenizer.json", exported)
        command = [program, "--model", exported, "--prompt", "The café: 12\n<|im_end|> ", "--max-new-tokens", "20"]
        texts = []
        for options in ((), ("--no-cache",), ("--temperature", "0", "--plots", "none"), ("--max-new-tokens", "0", "--top-k", "3"),
                        ("--max-new-tokens", "1", "--min-p", "0.1", "--repetition-penalty", "1.2")):
            result = run(command[:-2] + (command[-2:] if "--max-new-tokens" not in options else []) + list(options))
            if result.returncode != 0 or result.stderr or "The café: 12\n" not in result.stdout:
                problems.append(f"{program.name} {kind} {options}: exit {result.returncode}: {result.stderr}")
            texts.append(without_speed(result.stdout))
        if texts[0] != texts[1]:
            problems.append(f"{program.name} {kind}: the text differs without a cache")
    sampling = {"do_sample": False, "temperature": 0.01, "top_k": 1, "top_p": 0.01}
    (exported / "generation_config.json").write_text(json.dumps(sampling))
    if without_speed(run(command).stdout) != texts[0]:
        problems.append(f"{program.name} reads the sampling parameters of generation_config.json")
    (exported / "tokenizer.json").rename(scratch / "tokenizer.json")
    (exported / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(420))}))
    if "tokens generated: 0 (stopped by an EOS token)" not in run([*command, "--tokenizer", scratch / "tokenizer.json"]).stdout:
        problems.append(f"{program.name} does not stop at the EOS tokens of the model's folder if the tokenizer lies elsewhere")
    written = run([program, "--words", scratch / "words"])
    if written.returncode != 0 or written.stdout or not all(
            (scratch / "words" / file.name).stat().st_size == file.stat().st_size for file in (ROOT / "assets/words").iterdir()):
        problems.append(f"{program.name} --words does not write the files of assets/words: {written.stderr}")
    expect_rejection([program, "--words", scratch / "no_words", "--prompt", "And"], "words: 2 to 16 tokens can be shown, not 1")
    expect_rejection([program, "--words", scratch / "no_words", "--prompt", 17 * "And "], "words: 2 to 16 tokens can be shown, not ")
    check_inspection(program)
    expect_rejection([program, "--prompt", ""], "this model needs a --prompt to begin with: it has no BOS token")
    given = run([program, "--prompt", "And God said", "--plots", "none"])
    piped = subprocess.run([program, "--prompt", "-", "--plots", "none"], input="And God said\n", capture_output=True, text=True, timeout=120)
    if given.returncode != 0 or (piped.returncode, piped.stdout) != (0, given.stdout):
        problems.append(f"{program.name} --prompt - differs from the same --prompt: exit {piped.returncode}: {piped.stderr}")


def check_inspection(program):
    """With --inspect, the probabilities of the candidates are those of the table, before and after the sampling options, and
    the attention weights of each query add up to 1."""
    for options, kept in (("--temperature 0", 1), ("--top-k 3 --top-p 1", 3)):
        events = events_of([program, "--prompt", "And God said", "--max-new-tokens", "30", "--inspect", "20", *options.split()])
        tensors = {event["name"]: event for event in events if event["type"] == "tensor"}
        tables = {event["headings"][-1]: event for event in events if event["type"] == "table"}
        before, after = ([tensors[name]["values"][10 * i:10 * i + 10] for i in range(30)]
                         for name in ("candidate_probabilities", "sampled_probabilities"))
        for (position, token, p, other, other_p), row, first, second in zip(tables["p"]["rows"], tables["candidates"]["rows"], before, after):
            candidates = row[2].split(" ")
            if row[:2] != [position, token] or len(candidates) != 10 or first != sorted(first, reverse=True) or \
                    abs(first[candidates.index(token)] - float(p)) > 6e-4 or second[candidates.index(token)] == 0:
                problems.append(f"{program.name} --inspect {options}: candidates {row} {first} {second} of {token} {p}")
            if sum(1 for p in second if p > 0) != kept or abs(sum(second) - 1) > 1e-5 or second != sorted(second, reverse=True):
                problems.append(f"{program.name} --inspect {options}: sampled from {second}")
        length = 3 + 30
        for layer in range(4):
            weights = tensors[f"attentions_of_layer_{layer}"]
            if weights["shape"] != [1, 6, length, length]:
                problems.append(f"{program.name} --inspect: weights of shape {weights['shape']}")
            for row in range(6 * length):
                values = weights["values"][row * length:(row + 1) * length]
                if abs(sum(values) - 1) > 1e-4 or any(values[row % length + 1:]):
                    problems.append(f"{program.name} --inspect: row {row} of layer {layer} adds up to {sum(values)}")
        if len(tables["p of the generated token"]["rows"]) != 5 or not re.search("Attention weights of query 19 ", str(events)):
            problems.append(f"{program.name} --inspect 20: another position, or not 5 rows of the logit lens")


def check_progress(program, scratch):
    """--json has a progress event with step and loss for each step; log.jsonl has a line for each, and for each evaluation."""
    events = events_of([program, "--steps", "6", "--folder", scratch / "progress"])
    steps = [re.match(r"(\d+)/6 .* loss (\d+\.\d\d) ", event["text"]) for event in events if event["type"] == "progress" and event["text"]]
    if [step and int(step[1]) for step in steps] != [1, 2, 3, 4, 5, 6]:
        problems.append(f"{program.name} --json: no progress event for each step: {steps}")
    records = [json.loads(line) for line in (scratch / "progress/log.jsonl").read_text().splitlines()]
    expected = [kind for step in range(1, 7) for kind in ((step, "loss"), (step, "validation_loss"))]
    if [(record["step"], [*record][1]) for record in records] != expected or \
            any([*record] != ["step", "loss", "learning_rate", "grad_norm", "tokens", "seconds"] for record in records[::2]) or \
            [record["tokens"] for record in records[::2]] != [1024 * step for step in range(1, 7)]:
        problems.append(f"{program.name}: a log with other lines: {records}")
    shown = [(event["name"], event["text"]) for event in events if event["type"] == "value" and event["name"].startswith("step ")]
    for (name, text), step, evaluation in zip(shown, records[::2], records[1::2]):
        if name != f"step {step['step']}" or not text.startswith(f"loss {step['loss']:.3f}, validation loss {evaluation['validation_loss']:.3f}, "):
            problems.append(f"{program.name}: {name}: {text} is not what the log has: {step} {evaluation}")


def check_names(program, scratch):
    check_progress(program, scratch)
    check_default_folder(program)
    for options, moment in ((["--steps", "900"], r"── \d+\. Gradient norms"), (["--steps", "900"], r"step \d+: ")):
        check_interrupt(program, ["--folder", scratch / "interrupted", *options], moment, scratch / "interrupted")


def check_training(program, scratch):
    """A text is learned in 32 and in 16 bits; a run that was stopped or killed goes on as if it had not been."""
    learn = [program, "--text", scratch / "numbers", *SMALL]
    for name, option, size in (("float", [], 4), ("bfloat", ["--dtype", "bfloat16"], 2)):
        result = run([*learn, "--steps", "6", "--folder", scratch / name, *option])
        if result.returncode != 0 or result.stderr or not re.search(r"^step 6: loss \d", result.stdout, re.M):
            problems.append(f"{program.name} on a text, {name}: exit {result.returncode}: {result.stdout}{result.stderr}")
        expect_readable(program, scratch / name)
        count = int(re.search(r"^parameters: ([\d,]+)$", result.stdout, re.M)[1].replace(",", ""))
        if not 0 <= (scratch / name / "model.safetensors").stat().st_size - size * count < 4000:
            problems.append(f"{program.name}: a model in {name} does not take {size} bytes per parameter")

    learn += ["--steps", "600"]
    whole = run([*learn, "--folder", scratch / "whole"])
    for how in (signal.SIGINT, signal.SIGKILL):
        folder = scratch / how.name
        code, output = run_until([*learn, "--folder", folder], folder / "config.json", how)
        if code != (0 if how == signal.SIGINT else -how) or "step 600: loss" in output:
            problems.append(f"{program.name} after {how.name}: exit {code}: {output}")
        if ("Stopped and saved" in output) != (how == signal.SIGINT):
            problems.append(f"{program.name} after {how.name} says: {output}")
        expect_readable(program, folder)
        result = run([*learn, "--folder", folder, "--resume"])
        last = [re.findall(r"^step 600: .*", text, re.M) for text in (result.stdout, whole.stdout)]
        if result.returncode != 0 or result.stderr or [*map(without_speed, last[0])] != [*map(without_speed, last[1])] or \
                len(last[1]) != 1:
            problems.append(f"{program.name} --resume after {how.name}: {last[0]}, without a stop {last[1]} {result.stderr}")
        if contents(folder) != contents(scratch / "whole"):
            problems.append(f"{program.name}: a run that went on after {how.name} ends with other files")
    finished = run([*learn, "--folder", scratch / "whole", "--resume"])
    if finished.returncode != 0 or finished.stderr or "speed" in finished.stdout:
        problems.append(f"{program.name} --resume of a finished run: {finished.stdout}{finished.stderr}")
    if contents(scratch / "whole") != contents(scratch / "SIGINT"):
        problems.append(f"{program.name} --resume of a finished run changes its files")
    check_more_steps(learn, scratch)
    check_missed_evaluation(learn, scratch)
    check_kills(learn, scratch)
    check_documents(program, scratch)
    check_minutes(program, scratch)
    check_interrupts(program, scratch)
    with subprocess.Popen([*learn[:-1], "1000000", "--folder", scratch / "locked"], stdout=subprocess.DEVNULL) as first:
        while first.poll() is None and not (scratch / "locked/run.safetensors").exists():
            time.sleep(0.02)
        for options in ([], ["--resume"]):
            expect_rejection([*learn, "--folder", scratch / "locked", *options], "another run is writing to this folder")
        first.kill()


def check_more_steps(learn, scratch):
    """With more --steps, a finished run goes on with its last learning rate, also if it is stopped again."""
    folders = [scratch / name for name in ("more", "more_at_once")]
    shutil.copytree(scratch / "whole", folders[0])
    shutil.copytree(scratch / "whole", folders[1])
    learn = [option for option in learn if option not in ("--steps", "600")]
    expect_rejection([*learn, "--steps", "500", "--folder", folders[0], "--resume"], "--steps 500 (saved run: 600)")
    code, output = run_until([*learn, "--steps", "1400", "--folder", folders[0], "--resume", "--save-steps", "10"],
                             SimpleNamespace(exists=lambda: steps_done(folders[0]) > 650), signal.SIGKILL)
    expect_rejection([*learn, "--folder", folders[0]], f"({steps_done(folders[0])} of 1400 steps are done)")
    results = [run([*learn, "--folder", folders[0], "--resume"]),
               run([*learn, "--steps", "1400", "--folder", folders[1], "--resume"])]
    word = "The schedule of this run ends at step 600. Later steps have its last learning rate, 0.0002."
    for result in results:
        if result.returncode != 0 or result.stderr or word not in " ".join(result.stdout.split()) or "step 1400: loss" not in result.stdout:
            problems.append(f"--resume --steps 1400: exit {result.returncode}: {result.stdout}{result.stderr}")
    if code != -signal.SIGKILL or contents(folders[0]) != contents(folders[1]):
        problems.append(f"a run that was killed after its schedule ends with other files than without: {code} {output}")
    again = run([*learn, "--folder", folders[0], "--resume"])
    if "All 1400 steps of this run are done" not in again.stdout or contents(folders[0]) != contents(folders[1]):
        problems.append(f"--resume of a finished longer run: {again.stdout}{again.stderr}")


def check_missed_evaluation(learn, scratch):
    """A run that was stopped between a step and its evaluation, at 200 or at the end, evaluates it when it goes on."""
    folder = scratch / "missed"
    run_until([*learn, "--folder", folder, "--save-steps", "100"], SimpleNamespace(exists=lambda: steps_done(folder) == 200), signal.SIGKILL)
    for step in (steps_done(folder), 600):
        log = (folder / "log.jsonl").read_text()
        evaluation = re.search(rf'\{{"step":{step},"validation_loss":.*\n', log)
        if not evaluation:
            problems.append(f"the log of a run has no evaluation of step {step}: {log[-300:]}")
            return
        (folder / "log.jsonl").write_text(log.replace(evaluation[0], ""))
        result = run([*learn, "--folder", folder, "--resume"])
        if result.returncode != 0 or f"step {step}: loss" not in result.stdout or contents(folder) != contents(scratch / "whole"):
            problems.append(f"--resume of a run without the evaluation of step {step}: {result.stdout}{result.stderr}")


def saved_length(folder, name):
    """The length of a tensor in the checkpoint of a run; 0 if there is no checkpoint."""
    if not (folder / "run.safetensors").exists():
        return 0
    with open(folder / "run.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return header[name]["shape"][0]


def steps_done(folder):
    """The number of losses in the checkpoint of a training run."""
    return saved_length(folder, "losses")


def check_kills(learn, scratch):
    """A run that is killed at random moments, half of them while it writes a file, ends with the same files as one that is
    not. Every kill before the last steps counts; when a run ends, the next one begins."""
    generator, kills, during_writing, finished = random.Random(), 0, 0, 0
    folder, whole = scratch / "killed", contents(scratch / "whole")
    while kills < int(os.environ.get("KILLS", 20)) or finished == 0:
        options = ["--resume"] if (folder / "run.safetensors").exists() else []
        with subprocess.Popen([*learn, "--folder", folder, "--save-steps", "7", *options], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            if generator.random() < 0.5:
                time.sleep(generator.uniform(0, 1.2))
            else:
                end = time.time() + generator.uniform(0, 0.8)
                while process.poll() is None and (time.time() < end or not any(folder.glob("*.part"))):
                    pass
            process.kill()
            error = process.communicate(timeout=120)[1]
        if process.returncode == 0:
            finished += 1
            if contents(folder) != whole:
                problems.append(f"a run that was killed {kills} times ends with other files")
            shutil.rmtree(folder)
        elif process.returncode == -signal.SIGKILL:
            kills += 1
            during_writing += any(folder.glob("*.part"))
        else:
            problems.append(f"--resume after {kills} kills: exit {process.returncode}: {error.decode()}")
            return
    if during_writing == 0:
        problems.append(f"none of {kills} kills came while a file was written")
    print(f"a run was killed {kills} times, {during_writing} of them while it wrote a file; {finished} runs ended", file=sys.stderr)


def check_documents(program, scratch):
    """The files of a folder, a list of them and a text with separators give the same run, which does not resume across documents."""
    texts = [f"The square of {i} is {i * i}; its cube is {i ** 3}.\n" for i in range(60)]
    folder = scratch / "documents"
    folder.mkdir()
    for i, text in enumerate(texts):
        (folder / f"{i:02}").write_text(text)
    (folder / ".hidden").write_text("not read")
    (scratch / "in_one").write_text("<SEP>".join(texts) + "<SEP>")
    options = [option if option != "32" else "300" for option in SMALL] + ["--steps", "12"]
    runs = {"folder": ["--text", folder], "list": ["--text", ",".join(str(folder / f"{i:02}") for i in range(60))],
            "separators": ["--text", scratch / "in_one", "--document-separator", "<SEP>"]}
    for name, text in runs.items():
        result = run([program, *text, *options, "--folder", scratch / f"from_{name}"])
        tables = re.findall(r"^(within|across) documents +(\d+\.\d+)$", result.stdout, re.M)
        if result.returncode != 0 or result.stderr or "documents: 60\n" not in result.stdout or \
                [kind for kind, _ in tables] != ["within", "across"] or tables[0][1] == tables[1][1]:
            problems.append(f"{program.name} on documents of a {name}: exit {result.returncode}: {result.stdout}{result.stderr}")
        if contents(scratch / f"from_{name}") != contents(scratch / "from_folder"):
            problems.append(f"{program.name}: the documents of a {name} give another run than those of a folder")
    saved = json.loads((scratch / "from_folder/generation_config.json").read_text())
    tokenizer = json.loads((scratch / "from_folder/tokenizer.json").read_text())
    if [token["id"] for token in tokenizer["added_tokens"] if token["content"] == "<|endoftext|>"] != [saved["eos_token_id"]]:
        problems.append(f"{program.name}: generation_config.json has {saved} for <|endoftext|>")
    expect_readable(program, scratch / "from_folder")
    expect_rejection([program, *runs["folder"], *options, "--folder", scratch / "from_folder", "--resume", "--cross-documents"],
                   "another text: --cross-documents yes (saved run: no)")
    result = run([program, *runs["folder"], *options, "--folder", scratch / "across", "--cross-documents"])
    if result.returncode != 0 or "Attention crosses documents." not in result.stdout or "attention across documents" not in result.stdout:
        problems.append(f"{program.name} --cross-documents: exit {result.returncode}: {result.stdout}{result.stderr}")


def check_minutes(program, scratch):
    """--minutes is the time of the whole program, within 25 % on a busy machine, in which the learning rate decreases to its minimum,
    evaluations and the comparison included; with --resume, a finished run is continued for that time. (tests/apps/runs/runs.cpp has a clock.)"""
    learn = [program, "--text", write_pages(scratch), *SMALL_TEXT, "--folder", scratch / "minutes"]
    steps = 0
    for options in ([], ["--resume"]):
        start = time.time()
        result = run([*learn, "--minutes", "0.1", *options])
        seconds = time.time() - start
        last = re.findall(r"^step (\d+):", result.stdout, re.M)
        if result.returncode != 0 or result.stderr or not last or int(last[-1]) <= steps or not 4.5 <= seconds <= 7.5:
            problems.append(f"{program.name} --minutes 0.1 {options}: {seconds:.1f} s, steps {last} after {steps}: {result.stderr}")
        if not 2 <= len(last) <= 6 or not re.search(r"^this model +\d", result.stdout, re.M):
            problems.append(f"{program.name} --minutes 0.1 {options}: evaluations {last}, or no comparison: {result.stdout[-300:]}")
        records = [json.loads(line) for line in (scratch / "minutes/log.jsonl").read_text().splitlines()]
        rates = [record["learning_rate"] for record in records if "learning_rate" in record]
        if len(rates) != int(last[-1]) or max(rates) < 0.0019 or not 0.0002 <= rates[-1] <= 0.00021:
            problems.append(f"{program.name} --minutes 0.1 {options}: learning rates {rates[:3]} ... {max(rates)} ... {rates[-3:]}")
        steps = int(last[-1]) if last else 0


def check_interrupts(program, scratch):
    file = ["--text", write_pages(scratch)]
    text = [*file, "--minutes", "0.1"]
    # However slow the machine is, the first report is not the last one.
    small = [*file, *SMALL_TEXT, "--steps", "6000"]
    for options, moment in ((text, r"── \d+\. Text"), (text, r"── \d+\. Training"), (small, r"step \d+: "), (text, r"── \d+\. Comparison")):
        check_interrupt(program, ["--folder", scratch / "interrupted", *options], moment, scratch / "interrupted")


def check_interrupt(program, options, moment, folder):
    """Ctrl-C ends the program soon (2 s leave room for a busy machine), whatever it is doing; what was trained is saved."""
    shutil.rmtree(folder, ignore_errors=True)
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while (line := process.stdout.readline()) and not re.match(moment, line):
            pass
        time.sleep(0.2)
        start = time.time()
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    seconds = time.time() - start
    if not line or seconds > 2 or process.returncode not in (0, 2, -signal.SIGINT):
        problems.append(f"{program.name} {options}: exit {process.returncode}, {seconds:.1f} s after Ctrl-C at {moment}: {output[-300:]}")
    saved = (folder / "run.safetensors").exists()
    if moment.startswith("step") and not (saved and "Stopped and saved" in output):
        problems.append(f"{program.name} {options}: nothing is saved at {moment}: {output[-300:]}")


def check_experiment(program, scratch):
    """The experiments with a short text and a few steps, of which one writes a model; all of them end after Ctrl-C."""
    short, trained = scratch / "short.txt", scratch / "trained_experts"
    short.write_text((ROOT / "assets/data/king_james_held_out.txt").read_text()[:20000])
    for options, shown in ((["attention-sinks", "--text", short, "--steps", "2", "--num-seeds", "1"], "learned sinks"),
                           (["longer-contexts", "--text", short, "--steps", "2", "--factor", "2", "--train-len", "300"], " 511\nnone "),
                           (["experts", "--text", short, "--steps", "2", "--num-seeds", "1", "--export", trained], "4 of 16"),
                           (["latent-attention", "--text", short, "--steps", "2", "--num-seeds", "1"], "latent, 32 cached, equal parameters"),
                           (["linear-attention", "--text", short, "--steps", "2", "--num-seeds", "1"], "gated delta rule"),
                           (["multi-token-prediction", "--text", short, "--steps", "2"], "validation loss"),
                           (["recall", "--steps", "2", "--num-seeds", "1"], "gated delta rule")):
        result = run([program, "--name", *options, "--plots", scratch / "experiment_plots"])
        if result.returncode != 0 or result.stderr or shown not in result.stdout:
            problems.append(f"{program.name} {options}: exit {result.returncode}: {result.stdout[-300:]} {result.stderr}")
    written = run([program.parent / "model", "--model", trained, "--tokenizer", ROOT / "assets/king_james/tokenizer.json", "--prompt", "And God",
                   "--max-new-tokens", "3"])
    if written.returncode != 0 or "And God" not in written.stdout:
        problems.append(f"model {trained}: exit {written.returncode}: {written.stdout[-300:]} {written.stderr}")
    for options, moment in ((["ablations"], r"── \d+\. Norm"), (["mup"], r"── \d+\. Coordinate"), (["scaling-law", "--text", short], r"── \d+\. A scaling law"),
                            (["longer-contexts", "--text", ROOT / "assets/data/king_james_held_out.txt", "--factor", "2", "--train-len", "400"],
                             r"── \d+\. Fine-tuning")):
        check_interrupt(program, ["--name", *options, "--plots", "none"], moment, scratch / "interrupted")


def default_runs(program):
    return set((program.parent / "models").glob("names*"))


def check_default_folder(program):
    """Without --folder, a finished run is kept, and an interrupted one is rejected until it is resumed."""
    before = default_runs(program)
    run([program, "--steps", "5", "--plots", "none"])
    first = default_runs(program) - before
    if len(first) != 1:
        problems.append(f"{program.name} without --folder writes to {first}; is the run of an earlier test interrupted?")
        return
    kept = contents(min(first))
    new_model = SimpleNamespace(exists=lambda: any((folder / "config.json").exists() for folder in default_runs(program) - before - first))
    code, output = run_until([program, "--steps", "400", "--plots", "none"], new_model, signal.SIGINT)
    second = default_runs(program) - before - first
    expect_rejection([program, "--steps", "400", "--plots", "none"], "holds a checkpoint: --resume continues its run (")
    result = run([program, "--plots", "none", "--resume"])
    if code != 0 or "Stopped and saved" not in output or result.returncode != 0 or "step 400: loss" not in result.stdout:
        problems.append(f"{program.name} without --folder: {code} {output[-300:]}, resumed: {result.stdout[-300:]}{result.stderr}")
    if len(second) != 1 or default_runs(program) != before | first | second or contents(min(first)) != kept:
        problems.append(f"{program.name} without --folder overwrites a finished run: {first} {second}")


def write_pages(scratch):
    """All pages of the tutorial in one text of 1 MB."""
    file = scratch / "pages"
    file.write_text("".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
    return file


def run_until(command, file, how):
    """Sends the signal as soon as the file exists. Returns the exit code and the output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not file.exists():
            time.sleep(0.02)
        process.send_signal(how)
        output = process.communicate(timeout=120)[0]
    return process.returncode, output


def expect_readable(program, folder):
    """Chapter 09 reads the model in the folder, and chapter 11 generates with it."""
    for command in (["09_full_model", "--model", folder, "--tokens", "1"],
                    ["11_generation", "--model", folder, "--prompt", "12 ", "--max-new-tokens", "3"]):
        result = run([program.parent / command[0], *command[1:], "--plots", "none"])
        if result.returncode != 0 or result.stderr:
            problems.append(f"{command}: exit {result.returncode}: {result.stderr}")


def check_timing(program, scratch):
    """With timing it prints more and draws the roofline; with --model it only generates."""
    result = run([program, "--plots", scratch / "timing"])
    if result.returncode != 0 or result.stderr or "tokens per second" not in result.stdout or max(map(len, result.stdout.split("\n"))) > 100:
        problems.append(f"{program.name} with timing: exit {result.returncode}: {result.stderr}, or a wide line")
    if not (scratch / "timing" / f"{program.name}_roofline.svg").exists():
        problems.append(f"{program.name} draws no roofline")
    tokenizer = ROOT / "tests/fixtures/10_tokenizer/gpt2/tokenizer.json"
    result = run([program, "--model", scratch / "model.bin", "--tokenizer", tokenizer, "--prompt", "a b", "--max-new-tokens", "999"])
    if result.returncode != 0 or result.stderr or result.stdout.count("──") != 2:
        problems.append(f"{program.name} --model: exit {result.returncode}: {result.stdout}{result.stderr}")


def check_export(program, scratch):
    """Exported files have the bytes of their type, are generated from and never overwritten, and keep their text."""
    texts = {}
    for dtype, least, most in (("float32", 6.9e6, 7.4e6), ("bfloat16", 3.5e6, 3.8e6), ("q8_0", 1.8e6, 2.1e6), ("q4_k", 1e6, 1.6e6)):
        file = scratch / f"{dtype}.gguf"
        result = run([program, "--export", file, "--dtype", dtype])
        size = file.stat().st_size if file.exists() else 0
        if result.returncode != 0 or result.stderr or not least <= size <= most:
            problems.append(f"{program.name} --export: {dtype}, {size} bytes, exit {result.returncode}: {result.stdout}{result.stderr}")
        if dtype == "q4_k" and "q5_0" not in result.stdout:
            problems.append(f"{program.name} --export does not say which tensors fall back: {result.stdout}")
        expect_rejection([program, "--export", file, "--dtype", dtype], "exists")
        result = run([program, "--model", file, "--no-timing", "--max-new-tokens", "20"])
        if result.returncode != 0 or result.stderr or "unto" not in result.stdout:
            problems.append(f"{program.name} --model {dtype}.gguf: exit {result.returncode}: {result.stdout}{result.stderr}")
        texts[dtype] = result.stdout.split("megabytes")[0]
    result = run([program, "--model", scratch / "q8_0.gguf", "--dtype", "q4_0", "--no-timing"])  # quantized again
    if result.returncode != 0 or result.stderr or "each token reads: 1.0" not in result.stdout:
        problems.append(f"{program.name} --model q8_0.gguf --dtype q4_0: exit {result.returncode}: {result.stdout}{result.stderr}")
    for cache_dtype in ("float32", "float16"):
        result = run([program, "--dtype", "q4_0", "--cache-dtype", cache_dtype, "--no-timing"])  # king_james
        if result.returncode != 0 or result.stderr or "each token reads: 1.0" not in result.stdout:
            problems.append(f"{program.name} --dtype q4_0: exit {result.returncode}: {result.stdout}{result.stderr}")
    if len({texts[dtype] for dtype in ("float32", "bfloat16", "q8_0")}) != 1:
        problems.append(f"{program.name}: the types generate different texts: {texts}")
    check_memory(program, scratch)


def check_memory(program, scratch):
    """A quantized model takes at most 1.2 times the memory of its file, beside its KV cache."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16,
             "num_key_value_heads": 16, "head_dim": 64}
    folder = scratch / "wide"
    folder.mkdir()
    king_james = ROOT / "assets/king_james"
    shutil.copy(king_james / "tokenizer.json", folder)
    config = json.loads((king_james / "config.json").read_text()) | sizes
    (folder / "config.json").write_text(json.dumps(config))
    hidden, width = sizes["hidden_size"], sizes["intermediate_size"]
    shapes = {"model.embed_tokens": (1024, hidden), "model.norm": (hidden,)}
    for layer in range(sizes["num_hidden_layers"]):
        for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
                            **{f"self_attn.{kind}_proj": (hidden, hidden) for kind in "qkvo"},
                            "mlp.gate_proj": (width, hidden), "mlp.up_proj": (width, hidden),
                            "mlp.down_proj": (hidden, width)}.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    header, size = {}, 0
    for name, shape in shapes.items():
        end = size + 2 * math.prod(shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [size, end]}
        size = end
    text = json.dumps(header).encode()
    weights = struct.pack("<4H", 0x3CA0, 0xBC20, 0x3C51, 0xBCD3)  # about 0.01, of both signs
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + weights * (size // len(weights)))

    file = scratch / "wide.gguf"
    result = run([program, "--model", folder, "--export", file, "--dtype", "q8_0"])
    if result.returncode != 0:
        problems.append(f"{program.name} --export of a wide model: {result.stderr}")
        return
    resident = {}
    for model in (scratch / "q8_0.gguf", file):
        child = subprocess.Popen([program, "--model", model, "--quiet", "--no-timing", "--max-new-tokens", "240"],
                                 stdout=subprocess.DEVNULL)
        resident[model] = 1024 * os.wait4(child.pid, 0)[2].ru_maxrss
    cache = 2 * 4 * 256 * sizes["num_hidden_layers"] * hidden
    more, allowed = resident[file] - resident[scratch / "q8_0.gguf"], 1.2 * file.stat().st_size + cache
    if more > allowed:
        problems.append(f"{program.name}: a file of {file.stat().st_size} bytes takes {more} bytes of memory, not {allowed}")


def check_learn(scratch):
    """Checks the commands of ./learn in a clone, and --reset with its backup."""
    clone = scratch / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    learn = clone / "learn"
    learn.write_bytes((ROOT / "learn").read_bytes())
    for slug in SLUGS:
        for number in re.findall(r"^// Exercise \d+\.(\d+) —", (ROOT / "chapters" / slug / "exercise.cpp").read_text(), re.M):
            for option in ("--hint", "--solution"):
                result = run([learn, "exercise", slug, option, number])
                if result.returncode != 0 or len(result.stdout) < 20 or "<" in result.stdout[:1]:
                    problems.append(f"./learn exercise {slug} {option} {number}: {result.stdout}{result.stderr}")
    file = clone / "chapters" / SLUGS[0] / "exercise.cpp"
    pristine = file.read_text()
    file.write_text(pristine + "// my work\n")
    run([learn, "exercise", "1", "--reset"])
    backups = list(file.parent.glob("exercise.cpp.before-reset-*"))
    if file.read_text() != pristine or [backup.read_text() for backup in backups] != [pristine + "// my work\n"]:
        problems.append("./learn exercise 1 --reset does not restore the file and keep a backup")
    if "nothing to reset" not in run([learn, "exercise", "1", "--reset"]).stdout:
        problems.append("./learn exercise 1 --reset: the second time must find nothing to reset")
    check_learn_help(learn, scratch)
    check_reading(learn)
    check_map(learn, clone)
    check_watch(learn, clone)
    check_site(learn)


def check_progress_of_builds(scratch):
    """Long commands show on one line of a terminal how far they are, and in a pipe a line every ten seconds; their other
    output goes to a file."""
    script = scratch / "progress.sh"
    script.write_text(f"""source {ROOT}/common/learn/progress.sh
        work() {{ printf '@1/8 a\\n'; sleep 5; printf '@2/8 b\\nan error\\n@6/8 c\\nthe end'; }}
        begin_progress building; work | follow_progress {scratch}/errors.txt; echo done""")
    code, text = run_in_terminal(["bash", str(script)])
    clear = "\r\x1b[2K"
    for part in (f"{clear}building: 1/8, 12 %{clear}", "building: 2/8, 25 %, 0:15 left", f"building: 6/8, 75 %, 0:01 left{clear}", f"{clear}done"):
        if code != 0 or part not in text or "\n" in text.removesuffix("\n"):
            problems.append(f"the progress of a build lacks {part!r}: {text!r}")
    if (scratch / "errors.txt").read_text() != "an error\nthe end\n":
        problems.append(f"the output of a build: {(scratch / 'errors.txt').read_text()!r}")
    script.write_text(script.read_text().replace("sleep 5", "sleep 11"))
    result = run(["bash", script])
    if result.stderr != "building: 1/8, 12 %, 1:10 left\n" and result.stderr != "building: 1/8, 12 %, 1:17 left\n":
        problems.append(f"the progress of a build in a pipe: {result.stderr!r}")


def check_site(learn):
    """./learn site rejects invalid options, and installs nothing that was not agreed to."""
    for options, message in [(["--bild"], "unknown option '--bild'"), (["--port"], "got ''"), (["--port", "80"], "got '80'"),
                             (["--port", "65536"], "got '65536'"), (["--build"], "nothing was installed: repeat the command with --yes")]:
        result = run([learn, "site", *options])
        if result.returncode != 2 or message not in result.stderr.strip().split("\n")[-1] or (learn.parent / "docs/node_modules").exists():
            problems.append(f"./learn site {' '.join(options)}: exit {result.returncode}: {result.stderr}")


def check_learn_help(learn, scratch):
    """./learn help fits into a terminal and names each command and experiment; a symbolic link to ./learn works, too."""
    text = run([learn, "help"]).stdout
    commands = re.findall(r"^    ([a-z_]+)\) ", learn.read_text().rpartition("case ")[2], re.M)
    experiments = re.split(r", | or ", EXPERIMENTS_REJECTED[0][1].rpartition("experiment ")[2])
    missing = [name for name in commands + experiments if not re.search(rf"\b{name}\b", text)]
    if len(commands) < 15 or len(experiments) < 12 or missing or text.count("\n") > 23 or any(len(line) > 80 for line in text.split("\n")):
        problems.append(f"./learn help: without {missing}, {text.count(chr(10))} lines")
    link = scratch / "link_to_learn"
    link.symlink_to(learn)
    if run([link, "help"], cwd="/").stdout != text:
        problems.append("./learn through a symbolic link does not find its folder")


def check_reading(learn):
    """./learn read shows each page as text of 80 columns, with the paths of its figures and without folded hints."""
    for name in ("walk", "questions", "models", "contributing"):
        result = run([learn, "read", name])
        if result.returncode != 0 or not result.stdout.startswith("# ") or any(len(line) > 80 and line[0] != " " for line in result.stdout.split("\n")):
            problems.append(f"./learn read {name}: {result.stdout[:200]}{result.stderr}")
    for slug in SLUGS:
        page = (learn.parent / "docs" / f"{slug}.md").read_text()
        result = run([learn, "read", slug])
        text = result.stdout
        wide = [line for line in text.split("\n") if len(line) > 80 and not line.startswith("  ")]
        wide += [line for line in text.split("\n") if "13 train" in line and len(line) > 80]
        figures = re.findall(r"!\[[^]]*\]\(\.\./(assets/[^)]*)\)", page)
        prose = re.sub(r"^  .*$|`[^`]*`", "", text, flags=re.M)
        if result.returncode != 0 or result.stderr or wide or "\x1b" in text or re.search(r"</?(details|summary)|\]\(|\*\*", prose):
            problems.append(f"./learn read {slug}: {result.stderr}, wide or unconverted lines: {wide[:3]}")
        sources = re.findall(r"<!--.*|<br/>|\\(?![nxdhsSp]\b)[a-zA-Z]{2,}.*", prose)
        if sources:
            problems.append(f"./learn read {slug} shows sources: {sources[:3]}")
        if missing := [figure for figure in figures if figure not in text]:
            problems.append(f"./learn read {slug}: without {missing}")
        folded = re.findall(r"^<details>.*</summary>\n+(.*)", page.split("\n## Exercises")[1], re.M)
        if not folded or any(hint in " ".join(text.split()) for hint in folded) or re.search(r"^[|:-][-:| ]+$", prose, re.M):
            problems.append(f"./learn read {slug} shows a folded hint, or the line below the headings of a table")
        hints = len(re.findall(r"^Hint: \./learn exercise \d+ --hint \d+$", text, re.M))
        if hints != len(re.findall(r"^### Exercise", page, re.M)):
            problems.append(f"./learn read {slug}: {hints} hints")
        code, text = run_in_terminal([learn, "read", slug], PAGER="cat")
        if code != 0 or not text.startswith(f"\x1b[1m# {slug[:2]}") or "\x01" in text or "\x02" in text or \
                any(line.count("\x1b[1m") != line.count("\x1b[0m") for line in text.split("\n")):
            problems.append(f"./learn read {slug} in a terminal: {text[:200]}")


def check_map(learn, clone):
    """The map has the chapters that were run and what comes next; a run in a terminal ends with what comes next."""
    build = clone / "build"
    build.mkdir(exist_ok=True)
    (build / "CMakeCache.txt").write_text(f"CMAKE_PROJECT_NAME:STATIC=x\nCMAKE_HOME_DIRECTORY:INTERNAL={clone}\nCMAKE_GENERATOR:INTERNAL=Ninja\n"
                                          f"CMAKE_MAKE_PROGRAM:FILEPATH={shutil.which('ninja')}\n")
    (build / "build.ninja").write_text("rule script\n  command = printf '#!/bin/sh\\necho ran \"$$@\"\\n' >$out && chmod +x $out\n" +
                                       "".join(f"build {slug}: script ../chapters/{slug}/main.cpp\n" for slug in SLUGS) +
                                       "build walk: script ../chapters/apps/walk/main.cpp\n")
    questions = [re.search("— ([^?]*[?])", (clone / "chapters" / slug / "main.cpp").read_text())[1] for slug in SLUGS]
    count = len(re.findall(r"^// Exercise \d", (clone / "chapters" / SLUGS[0] / "exercise.cpp").read_text(), re.M))

    def expect(command, *parts, absent=()):
        code, text = run_in_terminal([learn, *command])
        if code != 0 or any(part not in text for part in parts) or any(part in text for part in absent):
            problems.append(f"./learn {command}: exit {code}, expected {parts}, not {absent}: {text}")

    expect(["list"], f"   - {SLUGS[0]} ", "\nnext: ./learn read 1, then ./learn 1\n", *SLUGS, *questions)
    expect([], "./learn walk: what happens", "ran --step\n\nnext: ./learn walk", "then ./learn read 1", absent=[SLUGS[1]])
    expect([], f"   - {SLUGS[0]} ", "\nnext: ./learn read 1, then ./learn 1\n", absent=["ran"])
    code, text = run_in_terminal([learn, "list"])
    if text.count("\n") > 23:
        problems.append(f"./learn list: {text.count(chr(10))} lines in a terminal of 24")
    expect(["1"], "ran\n", "./learn 1 --step shows one step after the other", "\nnext: ./learn exercise 1, then\n")
    expect([], f" 0/{count} {SLUGS[0]} ", absent=["ran"])
    expect(["1", "--step"], f"ran --step\n\nnext: ./learn exercise 1, then\n      ./learn 2 — {questions[1]}\n")
    for option in ("--help", "--quiet", "--only"):
        expect(["1", option, "1"], f"ran {option} 1\n", absent=["next:"])
    expect(["2", "--help"], "ran --help\n")
    expect(["list"], f"   - {SLUGS[1]} ")  # --help is no run
    (build / "progress").mkdir(exist_ok=True)
    (build / "progress" / SLUGS[0]).write_text(f"{count} of {count}\n")
    expect(["list"], f" {count}/{count} {SLUGS[0]} ", f"\nnext: ./learn 2 — {questions[1]}\n")
    result = run([learn, "1"])
    if (result.returncode, result.stdout, "next" in result.stderr) != (0, "ran\n", False):
        problems.append(f"./learn 1 in a pipe: {result.stdout}{result.stderr}")
    if any(len(line) > 80 for line in run([learn, "list"], cwd="/").stdout.split("\n")):
        problems.append("./learn list: a line of more than 80 characters")


def check_watch(learn, clone):
    """./learn watch clears the screen before each run and shows at most 10 lines of the edits after it."""
    lesson, edits = clone / "chapters" / SLUGS[0] / "main.cpp", []

    def act(output):
        if not edits and "watching the files" in output:
            time.sleep(1.1)  # file times may have a resolution of a second
            edits.append(output)
            lesson.write_text(lesson.read_text() + "".join(f"// edit {i}\n" for i in range(20)))
        return signal.SIGINT if "more lines" in output else None

    code, text = run_in_terminal([learn, "watch", "1"], act)
    after = text.split("\x1b[H\x1b[2J")[-1]
    shown = after.split("Your edits")[-1].split("\n")[1:]
    if code != 0 or text.count("\x1b[H\x1b[2J") != 2 or not after.startswith("ran\n") or "+// edit 0" not in shown:
        problems.append(f"./learn watch 1: exit {code}: {text}")
    if len([line for line in shown if line and "^C" not in line]) != 10 or shown[9] != "... 12 more lines":
        problems.append(f"./learn watch 1 shows these edits: {shown}")


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
DROPPED_NOTE = r"\(From here on, the oldest messages are dropped, to leave room for the answers\.\)\n"
PLAIN_NOTE = "There is no chat template: the model only continues the text of each line.\n"


def check_fine_tuning(program, scratch):
    """The shipped base model and adapter answer held-out questions; every method trains, saves what ./learn chat reads, and
    gives the same bytes with the same seed."""
    questions = WORDNET / "questions.jsonl"
    asked = run([program, "--model", WORDNET, "--adapter", ROOT / "assets/wordnet_answers", "--test", questions])
    correct = dict(re.findall(r"^(\w+) +\d+ +(\d+\.\d) ", asked.stdout, re.M))
    if asked.returncode != 0 or asked.stderr or min(float(correct.get(task, 0)) for task in ("sum", "spell", "larger")) < 60:
        problems.append(f"{program.name}: the shipped adapter answers {correct}: {asked.stderr}")

    def train(name, *options):
        folder = scratch / name
        result = run([program, "--model", WORDNET, "--folder", folder, "--batch-size", "4", "--plots", "none", *options])
        if result.returncode != 0 or result.stderr:
            problems.append(f"{program.name} {options}: exit {result.returncode}: {result.stderr}")
        return folder

    sft = train("sft", "--train", questions, "--steps", "3")
    if {file.name for file in sft.iterdir()} != {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"}:
        problems.append(f"{program.name} saved {list(sft.iterdir())}")
    if contents(train("again", "--train", questions, "--steps", "3")) != contents(sft):
        problems.append(f"{program.name}: two runs of SFT with the same seed differ")
    if contents(train("tested", "--train", questions, "--steps", "3", "--test", questions, "--test-questions", "1")) != contents(sft):
        problems.append(f"{program.name}: --test changes what is trained")
    for name, options in (("seed", ["--seed", "5"]), ("everything", ["--loss-on-everything"])):
        if contents(train(name, "--train", questions, "--steps", "3", *options)) == contents(sft):
            problems.append(f"{program.name} {options} changes nothing")
    pairs = train("pairs.jsonl", "--method", "sample", "--adapter", sft, "--train", questions, "--steps", "3")
    lines = [json.loads(line) for line in pairs.read_text().splitlines()]
    if not lines or any(line["chosen"] == line["rejected"] for line in lines):
        problems.append(f"{program.name} --method sample wrote {lines[:3]}")
    answers = ROOT / "assets/wordnet_answers"
    for name, adapter, options in (("dpo", sft, ["--train", pairs]), ("grpo", answers, ["--train", questions, "--task", "backward"])):
        if contents(train(name, "--method", name, "--adapter", adapter, "--steps", "2", *options)) == contents(adapter):
            problems.append(f"{program.name} --method {name} changes nothing")
    # A task that this adapter solves now and then, so that the rewards of a group differ on every processor.
    grpo = ["--method", "grpo", "--adapter", answers, "--steps", "2", "--train", questions, "--task", "backward"]
    kinds = [contents(train(f"loss_{kind}", *grpo, "--loss-type", kind)) for kind in ("grpo", "dapo", "dr_grpo")]
    if any(one == other for one, other in itertools.combinations(kinds, 2)):
        problems.append(f"{program.name} --loss-type changes nothing")
    long_message = {"role": "user", "content": "What is 1 + 2? " * 300}
    answer = {"role": "assistant", "content": "3"}
    (scratch / "long_pairs.jsonl").write_text(pairs.read_text() + json.dumps(
        {"prompt": [long_message], "chosen": [answer], "rejected": [answer | {"content": "4"}]}) + "\n")
    (scratch / "long_questions.jsonl").write_text(questions.read_text() + json.dumps({"messages": [long_message, answer]}) + "\n")
    for method, data in (("dpo", "long_pairs.jsonl"), ("grpo", "long_questions.jsonl")):
        result = run([program, "--model", WORDNET, "--adapter", answers, "--method", method, "--train", scratch / data, "--steps", "1",
                      "--batch-size", "2", "--group-size", "2", "--max-new-tokens", "4", "--folder", scratch / f"long_{method}", "--plots", "none"])
        if result.returncode != 0 or not re.search(r"^left out, longer than \d+ tokens: 1$", result.stdout, re.M):
            problems.append(f"{program.name} --method {method} with a conversation that is too long: {result.stdout[-300:]}{result.stderr}")
    full = train("full", "--train", questions, "--steps", "1", "--full")
    half = train("half", "--train", questions, "--steps", "1", "--full", "--dtype", "bfloat16")
    if not 0 <= 2 * (half / "model.safetensors").stat().st_size - (full / "model.safetensors").stat().st_size < 10000:
        problems.append(f"{program.name} --dtype bfloat16 does not halve the file")
    for options in (["--model", WORDNET, "--adapter", sft], ["--model", full]):
        if "<|im_start|>user\nHear<|im_end|>" not in chat_answers([program.parent / "chat", *options, "--max-new-tokens", "4"], "Hear\n/template\n"):
            problems.append(f"chat {options} does not use the saved chat template")

    check_fine_tuning_checkpoints(program, scratch, sft, pairs)


def check_fine_tuning_checkpoints(program, scratch, adapter, pairs):
    """A run that is killed and stopped by Ctrl-C ends with the same files as one that is not; its folder is its own."""
    questions = WORDNET / "questions.jsonl"
    for name, data, options in (("sft", questions, []), ("full", questions, ["--full"]), ("dpo", pairs, ["--adapter", adapter, "--rpo-alpha", "1"]),
                                ("grpo", questions, ["--adapter", adapter, "--task", "sum", "--group-size", "2"])):
        folder = scratch / f"broken_{name}"
        command = [program, "--model", WORDNET, "--method", name if name != "full" else "sft", "--train", data, "--steps", "6", "--batch-size",
                   "4", "--max-new-tokens", "8", "--save-steps", "1", "--plots", "none", *options]
        whole = run([*command, "--folder", scratch / f"whole_{name}"])
        if whole.returncode != 0:
            problems.append(f"{program.name} {name}: exit {whole.returncode}: {whole.stderr}")
        resume = [*command, "--folder", folder]
        for how in (signal.SIGKILL, signal.SIGINT):
            before = num_reports(folder)
            with subprocess.Popen(resume, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                while process.poll() is None and num_reports(folder) <= before:
                    time.sleep(0.005)
                process.send_signal(how)
                output = process.communicate(timeout=60)[0]
            if not num_reports(folder) or (how == signal.SIGINT and "Stopped and saved after the last complete step." not in output):
                problems.append(f"{program.name} {name}: {how.name}: {output[-300:]}")
            resume = [*command, "--folder", folder, "--resume"]
        ended = run(resume)
        if ended.returncode != 0 or contents(folder) != contents(scratch / f"whole_{name}"):
            problems.append(f"{program.name} {name}: a run that was stopped ends with other files: {ended.stdout[-200:]}{ended.stderr}")

    endless = [program, "--model", WORDNET, "--train", questions, "--folder", scratch / "stopped", "--steps", "100000", "--plots", "none"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not (scratch / "stopped/run.safetensors").exists():
            time.sleep(0.02)
        expect_rejection([*endless, "--resume"], "another run is writing to this folder")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
    if process.returncode != 0 or not (scratch / "stopped/adapter_config.json").exists():
        problems.append(f"{program.name}: Ctrl-C: exit {process.returncode}: {output}")
    expect_rejection(endless, "holds a checkpoint: --resume continues its run")
    expect_rejection([*endless, "--resume", "--seed", "5"], "this run has other options or another text: --seed 5 (saved run: 77)")

    def without_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
    full = run([program, "--model", WORDNET, "--train", questions, "--folder", scratch / "full_disk", "--plots", "none"], preexec_fn=without_room)
    if full.returncode != 2 or "run.safetensors: File too large" not in full.stderr or list((scratch / "full_disk").iterdir()):
        problems.append(f"{program.name} without room: exit {full.returncode}: {full.stdout[-200:]}{full.stderr}")


def num_reports(folder):
    """The number of reported values in the checkpoint of a fine-tuning run."""
    return saved_length(folder, "reports")


def write_chat_model(folder):
    """King James with ChatML: the last two tokens become <|im_start|> and <|im_end|>, and no position is too many."""
    shutil.copytree(ROOT / "assets/king_james", folder)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 100000}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < 1022}
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) in model["vocab"]]
    tokenizer["added_tokens"] = []
    for number, token in ((1022, "<|im_start|>"), (1023, "<|im_end|>")):
        model["vocab"][token] = number
        tokenizer["added_tokens"].append({"id": number, "content": token, "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML, "eos_token": "<|im_end|>"}))
    return folder


def write_gemma_model(folder):
    """The Gemma 3 of the tests (random weights, windows of 5 tokens) with the 419 tokens of the tokenizer of Gemma's kind. Its 31
    tokens become the last ones; all others have a half of their embeddings, so that they are read, but not written."""
    shutil.copytree(ROOT / "tests/fixtures/17_long_context/gemma3_text", folder)
    shutil.copy(ROOT / "tests/fixtures/10_tokenizer/gemma/tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>"}))
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 419, "max_position_embeddings": 4096}
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
    embed["shape"], embed["data_offsets"] = [419, 20], [len(numbers), len(numbers) + 2 * len(rows)]
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + numbers + struct.pack(f"<{len(rows)}H", *rows))
    return folder


def write_adapter(folder, value):
    """A LoRA adapter of rank 1 of all q_proj, in PEFT's format. Each of its numbers is the value."""
    folder.mkdir()
    header, size = {}, 0
    for layer, (part, shape) in itertools.product(range(4), (("A", [1, 192]), ("B", [192, 1]))):
        header[f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [size, size + 768]}
        size += 768
    text = json.dumps(header).encode()
    numbers = struct.pack("<f", value) * (size // 4)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + numbers)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def talk_in_terminal(command, script):
    """Runs the command in a terminal. The script is a list of patterns to wait for, in the output since the last keys, and of
    keys to press then. Returns the exit code and the output."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)
    output, seen, end = b"", 0, time.time() + 60
    for pattern, keys in [*script, (None, b"")]:
        while time.time() < end and not (pattern and re.search(pattern, output[seen:].decode(errors="replace"))):
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    output += os.read(terminal, 65536)
                except OSError:  # the program has closed the terminal
                    end = 0
        seen = len(output)
        if pattern and end:
            os.write(terminal, keys)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), output.decode(errors="replace").replace("\r\n", "\n")


def chat_answers(command, lines, note=""):
    """The output for these lines of standard input. The program must end well, and say only the note."""
    result = subprocess.run(command, input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    said = result.stderr.replace("(--max-new-tokens ended the answer.)\n", "")
    if result.returncode != 0 or not re.fullmatch(note, said):
        problems.append(f"{' '.join(map(str, command))}: exit {result.returncode}, expected the note {note!r}, got: {result.stderr}")
    return result.stdout


def check_shipped_chat(program):
    """Without options, the shipped model answers: greetings, calculations in other words by its calculator, questions that refer to
    the one before, and that it does not know something. None of its words is on the list of bad words."""
    expected = {"Hello!": "Hello. Ask me for a sum, a difference or the letters of a word.",
                "What can you do?": "I am a small language model of this tutorial. I can add, subtract, compare numbers and spell words.",
                "What is 21 + 34?": "21 + 34 = 55", "And 5 more?": "55 + 5 = 60", "what's 9 plus 9?": "9 + 9 = 18",
                "12 + 13 + 14": "12 + 13 + 14 = 39", "132 - 44": "132 - 44 = 88", "9 - 15": "9 - 15 = -6",
                "What is 345 + 218?": "345 + 218 = 563", "128 times 64": "128 * 64 = 8192",
                "What is a rose?": "I do not know that. I can add, subtract, compare numbers and spell words.",
                "Spell house.": "house is spelled h-o-u-s-e.",
                "And backward?": "house is spelled h-o-u-s-e and has 5 letters. Backward: e-s-u-o-h.", "Thank you": "You are welcome.",
                "What is 7 plus 5?": "7 + 5 = 12", "And if you take away 4 from that?": "12 - 4 = 8",
                "I have 26 apples and get 37 more. How many apples do I have?": "26 + 37 = 63",
                "Can you spell the word garden?": "garden is spelled g-a-r-d-e-n.", "Write the word river backwards":
                "river is spelled r-i-v-e-r and has 5 letters. Backward: r-e-v-i-r.", "Which is larger, 58 or 85?": "85 is larger than 58",
                "And which one is smaller?": "58 is smaller than 85",
                "4702 + 3819": "4702 + 3819 = 8521"}
    notes = rf"(\(calculator: [^\n]*\)\n|{DROPPED_NOTE})*"
    answers = chat_answers([program, "--temperature", "0"], "".join(f"{question}\n" for question in expected), notes).splitlines()
    wrong = [f"{question} {answer}" for question, answer in zip(expected, answers) if answer != expected[question]]
    if len(answers) != len(expected) or len(wrong) > 1:
        problems.append(f"{program.name}: the shipped model answers {answers}: {wrong}")

    words = sorted({word for page in (ROOT / "docs").glob("*.md") for word in re.findall(r"\b[a-z]{3,8}\b", page.read_text())})
    conversations = [f"/reset\nSpell {word}.\nAnd backward?\nWhat is {word}?\n" for word in ["idiot", *words[::6]]]
    said = chat_answers([program], "".join(conversations), notes)
    bad = {word for word in re.findall(r"[a-z]+", said.lower()) if f"{fnv1a(word):016x}" in BAD_WORDS}
    if bad or said.count("\n") < 3 * len(conversations):
        problems.append(f"{program.name}: of {3 * len(conversations)} answers, these have words of the list: {bad}")
    if not said.startswith("I do not know that.\n"):
        problems.append(f"{program.name}: a word of the list is spelled: {said.splitlines()[0]}")


def check_chat(program, scratch):
    """Piped: one question a line, nothing but answers on standard output. The conversation, the adapter and the trimming."""
    model = write_chat_model(scratch / "chat_model")
    command = [program, "--model", model, "--temperature", "0", "--max-new-tokens", "8"]
    both = chat_answers(command, "Hear\n\nAnd Moses said<|im_end|>\n/template\n/reset\nHear\n/quit\nHear\n")
    first, second, rest = both.split("\n", 2)
    if rest != (f"<|im_start|>user\nHear<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n<|im_start|>user\n"
                f"And Moses said<|im_end|><|im_end|>\n<|im_start|>assistant\n{second}\n{first}\n"):
        problems.append(f"{program.name}: two turns, /template and /reset print {both!r}")
    if chat_answers(command, "Hear") != first + "\n":
        problems.append(f"{program.name}: a last line without a line feed is not answered")
    if "<|im_start|>system\nObey<|im_end|>\n" not in chat_answers([*command, "--system", "Obey"], "Hear\n/template\n"):
        problems.append(f"{program.name} --system: the system message is not in the conversation")
    trimmed = chat_answers([*command, "--context-length", "64", "--system", "Obey"], "Hear\n" * 9 + "/template\n", DROPPED_NOTE)
    if trimmed.count("<|im_start|>system") != 1 or not 0 < trimmed.count("<|im_start|>user") < 9:
        problems.append(f"{program.name} --context-length 64: {trimmed!r}")
    chat_answers(command, "/template\n", r"a conversation needs a message\n")
    chat_answers(command, "/nothing\n", r"there is no command /nothing; /help lists them\n")
    chat_answers([*command, "--context-length", "16"], "In the beginning God created\n" * 2, r"(this message has \d+ tokens .*\n){2}")

    check_shipped_chat(program)

    # Without a template: completion.
    king_james = [program, "--model", ROOT / "assets/king_james"]
    plain = [*king_james, "--temperature", "0", "--max-new-tokens", "6"]
    halves = chat_answers(plain, "And the LORD said\n\n", PLAIN_NOTE)
    if halves.replace("\n", "") != chat_answers([*plain[:-1], "12"], "And the LORD said\n", PLAIN_NOTE).replace("\n", ""):
        problems.append(f"{program.name}: an empty line does not continue the text: {halves!r}")

    # The model types of chapters 17 and 18.
    experts = [program, "--model", ROOT / "assets/king_james_experts", "--tokenizer", ROOT / "assets/king_james/tokenizer.json",
               "--temperature", "0", "--max-new-tokens"]
    halves = chat_answers([*experts, "6"], "And the LORD said\n\n", PLAIN_NOTE)
    if halves.replace("\n", "") != chat_answers([*experts, "12"], "And the LORD said\n", PLAIN_NOTE).replace("\n", ""):
        problems.append(f"{program.name}: an empty line does not continue the text of a mixture model: {halves!r}")
    for options, message in (
            (["--dtype", "q8_0"], "config.json: --dtype q8_0 is not supported for model_type mixtral; supported: float32"),
            (["--cache-dtype", "float16"], "a cache of float16 is not supported for this model type; supported: float32"),
            (["--adapter", ROOT / "assets/wordnet_answers"], "config.json: --adapter is not supported for model_type mixtral")):
        expect_rejection([*experts, "6", *options], message)
    gemma = ["--model", write_gemma_model(scratch / "gemma"), "--temperature", "0", "--repetition-penalty", "2", "--max-new-tokens", "8"]
    answers = chat_answers([program, *gemma, "--template", "gemma3", "--system", "Obey"], "Hear\n\nThe cat\n/template\n")
    one, two, conversation = answers.split("\n", 2)
    prompt = conversation.removesuffix(two + "\n")
    if not prompt.startswith("<bos><start_of_turn>user\nObey\n\nHear<end_of_turn>\n<start_of_turn>model\n" + one) or one == two:
        problems.append(f"{program.name} --template gemma3: {answers!r}")
    written = run([program.parent / "17_long_context", *gemma, "--prompt", prompt.removeprefix("<bos>"), "--plots", "none"]).stdout
    if f"\nmodel\n{two}\ntokens generated" not in written:
        problems.append(f"{program.name} --template gemma3: the second answer is {two!r}, but chapter 17 writes {written!r}")

    expect_rejection([program, *gemma, "--template", "gemma3", "--calculator"],
                     "tool calls are not implemented for the chat template Gemma 3")

    # Adapters, and GGUF files.
    zero, other = write_adapter(scratch / "zero_adapter", 0), write_adapter(scratch / "other_adapter", 0.3)
    if chat_answers([*command, "--adapter", zero], "Hear\n") != first + "\n":
        problems.append(f"{program.name} --adapter: an adapter of zeros changes the answer")
    if chat_answers([*command, "--adapter", other], "Hear\n") == first + "\n":
        problems.append(f"{program.name} --adapter: an adapter does not change the answer")
    run([program.parent / "16_quantization", "--model", model, "--export", scratch / "chat.gguf", "--dtype", "q8_0", "--plots", "none"])
    gguf = [program, "--model", scratch / "chat.gguf", *command[3:]]
    if "<|im_start|>user" not in chat_answers([*gguf, "--template", "chatml"], "Hear\n/template\n"):
        problems.append(f"{program.name} does not chat with a GGUF file")
    for options, message in (
            (gguf[1:] + ["--adapter", zero], "chat.gguf: --adapter needs a model folder"),
            ([*king_james[1:], "--system", "Obey"], "--system needs a chat template, which this model does not have"),
            ([*king_james[1:], "--calculator"], "--calculator needs a chat template, which this model does not have"),
            (["--template", "alpaca"], "--template takes chatml, llama3, gemma, gemma3, qwen3 or none, not 'alpaca'"),
            (["--template", "llama3"], "the tokenizer has no special token <|eot_id|>, which the format Llama 3 needs"),
            (["--temperature", "0.001"], "--temperature takes 0, or a number from 0.01 to 100, not 0.001"),
            (["--model", scratch / "no_model"], "no_model")):
        expect_rejection([program, *options], message)
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML + " "}))
    expect_rejection(command, "tokenizer_config.json: chat_template is a variant of ChatML or Qwen3, not one of the known templates")
    if "<|im_start|>" in chat_answers([*command, "--template", "none"], "Hear\n", PLAIN_NOTE):
        problems.append(f"{program.name} --template none: writes special tokens")
    (model / "tokenizer_config.json").unlink()

    code, output = talk_in_terminal([str(program)], [("> $", b"Spell house.\n"), (r"house[^>]*> $", b"\x04")])
    if code != 0 or "What is 47 + 38?" not in output or "h-o-u-s-e" not in output:
        problems.append(f"{program.name}: in a terminal, the shipped model begins with {output!r}")

    # Ctrl-C stops an answer; at the prompt, the second one ends the program.
    endless = [program, "--model", model, "--context-length", "50000", "--max-new-tokens", "50000"]
    code, output = talk_in_terminal(endless, [("> $", b"And the LORD\n"), (r"LORD\s+[^>]{40}", b"\x03"), (r"\(stopped\)\s+> $", b"In the\n"),
                                              (r"the\s+[^>]{40}", b"\x03"), (r"\(stopped\)\s+> $", b"\x03"), (r"program\.\)\s+> $", b"\x03")])
    if code != 0 or output.count("(stopped)") != 2 or output.count("(Ctrl-C again, Ctrl-D or /quit ends the program.)") != 1:
        problems.append(f"{program.name}: Ctrl-C: exit {code}: {output}")
    with subprocess.Popen(endless, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        process.stdin.write("And the LORD\n" * 9)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    if process.returncode != 0:
        problems.append(f"{program.name} in a pipe: exit {process.returncode} after Ctrl-C")
    code, output = talk_in_terminal(list(map(str, king_james)), [("> $", b"/help\n"), (r"/quit[^>]*> $", b"\x04")])
    if code != 0 or not output.startswith(f"Talking with {king_james[2]}; /help lists the commands.\n{PLAIN_NOTE}> /help\n") or not output.endswith("> \n"):
        problems.append(f"{program.name}: Ctrl-D: exit {code}: {output!r}")


def main():
    build = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        if sys.argv[2:] in ([], ["chat"]):
            check_chat(build / "chat", Path(name))
        for app, check in {"walk": check_walk, "model": check_published, "train": check_training, "fine_tune": check_fine_tuning,
                           "experiment": check_experiment}.items():
            if sys.argv[2:] in ([], [app]):
                check_rejections(build / app, Path(name))
                check_help(build / app)
                check(build / app, Path(name))
        for slug in [name for name in sys.argv[2:] if name in SLUGS] or ([] if sys.argv[2:] else SLUGS):
            runs = default_runs(build / slug) if slug == "13_training" else set()
            check_rejections(build / slug, Path(name))
            check_good(build / slug, Path(name))
            for folder in default_runs(build / slug) - runs if slug == "13_training" else []:
                shutil.rmtree(folder)
        if sys.argv[2:] in ([], ["learn"]):
            check_terminal(build / "01_masking")
            check_terminal(build / "05_gqa")
            check_learn(Path(name))
            check_progress_of_builds(Path(name))
            for arguments, message in LEARN_REJECTED:
                expect_rejection([ROOT / "learn", *arguments.split()], message)
    for problem in problems:
        print(problem)
    print(f"processor seconds: {sum(os.times()[:4]):.1f}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
