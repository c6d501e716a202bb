"""./learn fine_tune: every method trains, saves what ./learn chat reads, and gives the same
bytes with the same seed."""

import itertools
import json
import re
import resource
import signal
import subprocess
import time

import pytest

from chatting import chat_answers
from inputs import WORDNET
from running import ROOT, contents, expect_rejection, run, saved_length

pytestmark = pytest.mark.programs("fine_tune")

QUESTIONS = WORDNET / "questions.jsonl"
ANSWERS = ROOT / "assets/wordnet_answers"


@pytest.fixture(scope="module")
def train(program, scratch):
    """A function that trains with options and returns the folder, which it names."""

    def train_with(name, *options):
        folder = scratch / name
        result = run([program, "--model", WORDNET, "--folder", folder, "--batch-size", "4",
                      "--plots", "none", *options])
        assert result.returncode == 0 and not result.stderr, f"{options}: {result.stderr}"
        return folder

    return train_with


@pytest.fixture(scope="module")
def sft(train):
    return train("sft", "--train", QUESTIONS, "--steps", "3")


@pytest.fixture(scope="module")
def pairs(train, sft):
    return train("pairs.jsonl", "--method", "sample", "--adapter", sft, "--train", QUESTIONS,
                 "--steps", "3")


@pytest.fixture(scope="module")
def full(train):
    return train("full", "--train", QUESTIONS, "--steps", "1", "--full")


def test_the_shipped_adapter_answers_held_out_questions(program):
    asked = run([program, "--model", WORDNET, "--adapter", ANSWERS, "--test", QUESTIONS])
    assert asked.returncode == 0 and not asked.stderr
    correct = dict(re.findall(r"^(\w+) +\d+ +(\d+\.\d) ", asked.stdout, re.M))
    assert min(float(correct.get(task, 0)) for task in ("sum", "spell", "larger")) >= 60


def test_an_adapter_is_three_files(sft):
    assert {file.name for file in sft.iterdir()} == \
        {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"}


@pytest.mark.parametrize("name, options", (("again", []), ("tested", [
    "--test", QUESTIONS, "--test-questions", "1"])))
def test_two_runs_with_the_same_seed_are_equal_also_with_a_test(train, sft, name, options):
    again = train(name, "--train", QUESTIONS, "--steps", "3", *options)
    assert contents(again) == contents(sft)


@pytest.mark.parametrize("name, options", (("seed", ["--seed", "5"]),
                                           ("everything", ["--loss-on-everything"])))
def test_options_change_what_is_trained(train, sft, name, options):
    other = train(name, "--train", QUESTIONS, "--steps", "3", *options)
    assert contents(other) != contents(sft)


def test_sample_writes_pairs(pairs):
    lines = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert lines and not any(line["chosen"] == line["rejected"] for line in lines)


def test_dpo_changes_the_adapter(train, sft, pairs):
    after = train("dpo", "--method", "dpo", "--adapter", sft, "--steps", "2", "--train", pairs)
    assert contents(after) != contents(sft)


# A task that this adapter solves now and then, so that the rewards of a group differ on every
# processor.
GRPO = ["--method", "grpo", "--adapter", ANSWERS, "--steps", "2", "--train", QUESTIONS,
        "--task", "backward"]


def test_grpo_changes_the_adapter(train):
    assert contents(train("grpo", *GRPO)) != contents(ANSWERS)


def test_each_loss_of_grpo_trains_something_else(train):
    kinds = [contents(train(f"loss_{kind}", *GRPO, "--loss-type", kind))
             for kind in ("grpo", "dapo", "dr_grpo")]
    assert not any(one == other for one, other in itertools.combinations(kinds, 2))


LONG_MESSAGE = {"role": "user", "content": "What is 1 + 2? " * 300}
ANSWER = {"role": "assistant", "content": "3"}


@pytest.mark.parametrize("method", ("dpo", "grpo"))
def test_a_conversation_that_is_too_long_is_left_out(program, pairs, method, tmp_path):
    file = tmp_path / "long.jsonl"
    if method == "dpo":
        line = {"prompt": [LONG_MESSAGE], "chosen": [ANSWER],
                "rejected": [ANSWER | {"content": "4"}]}
        file.write_text(pairs.read_text() + json.dumps(line) + "\n")
    else:
        line = {"messages": [LONG_MESSAGE, ANSWER]}
        file.write_text(QUESTIONS.read_text() + json.dumps(line) + "\n")
    result = run([program, "--model", WORDNET, "--adapter", ANSWERS, "--method", method,
                  "--train", file, "--steps", "1", "--batch-size", "2", "--group-size", "2",
                  "--max-new-tokens", "4", "--folder", tmp_path / "run", "--plots", "none"])
    assert result.returncode == 0, result.stderr
    assert re.search(r"^left out, longer than \d+ tokens: 1$", result.stdout, re.M)


def test_bfloat16_halves_the_file(train, full):
    half = train("half", "--train", QUESTIONS, "--steps", "1", "--full", "--dtype", "bfloat16")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (half, full)]
    assert 0 <= 2 * sizes[0] - sizes[1] < 10000


@pytest.mark.parametrize("kind", ("adapter", "model"))
def test_chat_uses_the_saved_chat_template(program, sft, full, kind):
    options = ["--model", WORDNET, "--adapter", sft] if kind == "adapter" else ["--model", full]
    said = chat_answers([program.parent / "chat", *options, "--max-new-tokens", "4"],
                        "Hear\n/template\n")
    assert "<|im_start|>user\nHear<|im_end|>" in said


def num_reports(folder):
    """The number of reported values in the checkpoint of a run."""
    return saved_length(folder, "reports")


def stop_after_a_report(command, folder, how):
    """Sends the signal after the next report. Returns the output."""
    before = num_reports(folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        while process.poll() is None and num_reports(folder) <= before:
            time.sleep(0.005)
        process.send_signal(how)
        return process.communicate(timeout=60)[0]


@pytest.mark.parametrize("kind", ("sft", "full", "dpo", "grpo"))
def test_a_run_that_is_killed_and_stopped_ends_with_the_same_files(program, sft, pairs, kind,
                                                                   tmp_path):
    options = {"sft": [], "full": ["--full"],
               "dpo": ["--adapter", sft, "--rpo-alpha", "1"],
               "grpo": ["--adapter", sft, "--task", "sum", "--group-size", "2"]}[kind]
    command = [program, "--model", WORDNET, "--method", "sft" if kind == "full" else kind,
               "--train", pairs if kind == "dpo" else QUESTIONS, "--steps", "6", "--batch-size",
               "4", "--max-new-tokens", "8", "--save-steps", "1", "--plots", "none", *options]
    whole = run([*command, "--folder", tmp_path / "whole"])
    assert whole.returncode == 0, whole.stderr
    folder = tmp_path / "broken"
    command += ["--folder", folder]
    stop_after_a_report(command, folder, signal.SIGKILL)
    assert num_reports(folder)
    output = stop_after_a_report([*command, "--resume"], folder, signal.SIGINT)
    assert num_reports(folder)
    assert "Stopped and saved after the last complete step." in output
    ended = run([*command, "--resume"])
    assert ended.returncode == 0, ended.stderr
    assert contents(folder) == contents(tmp_path / "whole")


def test_its_folder_is_its_own_and_ctrl_c_saves_the_adapter(program, tmp_path):
    folder = tmp_path / "stopped"
    endless = [program, "--model", WORDNET, "--train", QUESTIONS, "--folder", folder, "--steps",
               "100000", "--plots", "none"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        try:
            while process.poll() is None and not (folder / "run.safetensors").exists():
                time.sleep(0.02)
            expect_rejection([*endless, "--resume"], "another run is writing to this folder")
        finally:
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=60)[0]
    assert process.returncode == 0 and (folder / "adapter_config.json").exists(), output
    expect_rejection(endless, "holds a checkpoint: --resume continues its run")
    expect_rejection([*endless, "--resume", "--seed", "5"], "this run has other options or "
                     "another text: --seed 5 (saved run: 77)")


def test_without_room_it_says_so_and_leaves_no_file(program, tmp_path):
    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    folder = tmp_path / "full_disk"
    full_disk = run([program, "--model", WORDNET, "--train", QUESTIONS, "--folder", folder,
                     "--plots", "none"], preexec_fn=limit_files)
    assert full_disk.returncode == 2, full_disk.stdout[-200:]
    assert "run.safetensors: File too large" in full_disk.stderr
    assert not list(folder.iterdir())
