"""The options of all programs: which values they reject, and what --help says of them."""

import json
import re

import pytest

from rejected import (BASIC_REJECTED, GENERATION_REJECTED, MODEL_REJECTED, OWN_REJECTED,
                      SIZES_REJECTED, TOKENIZER_REJECTED)
from rejected_by_apps import (ASK_REJECTED, EXPERIMENTS_REJECTED, FINE_TUNE_REJECTED,
                              PUBLISHED_REJECTED, TRAIN_REJECTED, WALK_REJECTED)
from rejected_by_later_chapters import (ENCODERS_REJECTED, EXPERTS_REJECTED, FAST_REJECTED,
                                        FINE_TUNING_REJECTED, LATENT_REJECTED,
                                        LONG_CONTEXT_REJECTED, MESH_REJECTED, PARALLEL_REJECTED,
                                        QUANTIZATION_REJECTED, SERVING_REJECTED,
                                        SPECULATION_REJECTED, STRUCTURED_REJECTED,
                                        TRAINING_REJECTED, VISION_REJECTED)
from running import CHAPTERS, run, trouble_with_rejection

REJECTED = {
    "09_full_model": MODEL_REJECTED, "10_tokenizer": TOKENIZER_REJECTED,
    "11_generation": GENERATION_REJECTED, "12_gradients": BASIC_REJECTED,
    "13_training": TRAINING_REJECTED, "14_fine_tuning": FINE_TUNING_REJECTED,
    "15_fast": FAST_REJECTED, "16_quantization": QUANTIZATION_REJECTED,
    "17_long_context": LONG_CONTEXT_REJECTED, "18_experts": EXPERTS_REJECTED,
    "19_latent_attention": LATENT_REJECTED, "20_linear_attention": BASIC_REJECTED,
    "21_serving": SERVING_REJECTED, "22_speculation": SPECULATION_REJECTED,
    "23_structured_output": STRUCTURED_REJECTED, "24_parallel": PARALLEL_REJECTED,
    "25_encoders": ENCODERS_REJECTED, "26_encoder_decoder": BASIC_REJECTED,
    "27_vision": VISION_REJECTED, "28_model_parallel": MESH_REJECTED,
    "walk": WALK_REJECTED, "model": PUBLISHED_REJECTED,
    "train": TRAIN_REJECTED, "fine_tune": FINE_TUNE_REJECTED,
    "experiment": EXPERIMENTS_REJECTED, "ask": ASK_REJECTED}

# test_chat.py and test_learn.py have their own.
pytestmark = pytest.mark.programs(*CHAPTERS, "walk", "model", "train", "fine_tune",
                                  "experiment", "ask")


def test_invalid_options_are_rejected_and_change_no_file(program, inputs):
    before = inputs.state()
    table = REJECTED.get(program.name, SIZES_REJECTED + OWN_REJECTED.get(program.name, []))
    commands = [([program, *options.format(**inputs.names).split()], message)
                for options, message in table]
    troubles = [trouble_with_rejection(*command) for command in commands]
    assert not any(troubles), "\n".join(filter(None, troubles))
    assert inputs.state() == before


def options_of_chapter(program):
    """What --help says of each option that not all programs have."""
    common = "help plots save step only quiet json".split()
    text = run([program, "--help"]).stdout
    found = re.findall(r"^  (?:-h,)?--([\w-]+)(.*(?:\n {10,}.*)*)", text, re.M)
    return {name: rest for name, rest in found if name not in common}


def test_help_lists_limits_and_defaults_and_has_the_same_as_json(program):
    listed = options_of_chapter(program)
    lines = run([program, "--json", "--help"]).stdout.splitlines()
    described = {option["name"][2:]: option for option in map(json.loads, lines)}
    assert "seed" in listed
    assert list(listed) == sorted(described, key=list(listed).index)
    for name, option in described.items():
        limits = f", {option['low']:.10g} to {option['high']:.10g}" if "low" in option else ""
        if option["kind"] == "choice":
            limits = f": {', '.join(option['choices'][:-1])} or {option['choices'][-1]}"
        default = f"={option['default']}" if "default" in option else ""
        assert option["type"] == "option"
        assert option["help"] + limits in " ".join(listed[name].split())
        assert default in listed[name]
