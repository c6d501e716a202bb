"""./learn train --masked-lm trains an encoder, and ./learn fine_tune trains it further: a classifier, and vectors
for search. What they write is read again, and interrupted runs end with the same bytes."""

import json
import random
import re
import signal
import subprocess
import time

import pytest

from inputs import WORDNET, write_short_text
from running import ROOT, contents, expect_rejection, run, saved_length

pytestmark = pytest.mark.programs("fine_tune")

SMALL = ["--hidden-size", "24", "--num-attention-heads", "4", "--vocab-size", "300", "--plots", "none"]


@pytest.fixture(scope="module")
def text(scratch):
    return write_short_text(scratch)


@pytest.fixture(scope="module")
def train(program, text):
    """The command that trains an encoder."""
    return [program.parent / "train", "--text", text, "--masked-lm", *SMALL]


@pytest.fixture(scope="module")
def encoder(train, scratch):
    folder = scratch / "encoder"
    result = run([*train, "--steps", "30", "--folder", folder])
    assert result.returncode == 0 and not result.stderr, result.stderr
    return folder


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def labels(scratch):
    """Texts of two kinds, which their words tell apart; every third one is of the first kind."""
    generator = random.Random(1)
    texts = {"war": "spear sword smote slew battle", "house": "bread wine table door mother"}
    kind = lambda n: "war" if n % 3 else "house"
    return write_lines(scratch / "labels.jsonl", [
        {"text": " ".join(generator.choices(texts[kind(n)].split(), k=5)), "label": kind(n), "id": n} for n in range(120)])


@pytest.fixture(scope="module")
def pairs(scratch, text):
    """The first words of a verse, and the verse."""
    verses = [line for line in text.read_text().splitlines() if len(line) < 150][:60]
    return write_lines(scratch / "queries.jsonl", [{"query": " ".join(verse.split()[:4]), "passage": verse} for verse in verses])


def table_row(output, name):
    """The numbers of a row."""
    return [float(number) for number in re.search(rf"^{re.escape(name)} +(.*)$", output, re.M)[1].split() if number != "to"]


def test_an_encoder_learns_masked_tokens(train, scratch):
    folder = scratch / "learned"
    result = run([*train, "--steps", "300", "--folder", folder, "--learning-rate", "0.01"])
    assert result.returncode == 0, result.stderr
    counting, encoder = (table_row(result.stdout, name) for name in ("counting tokens", "the encoder"))
    assert encoder[0] < counting[0] - 0.1 and encoder[1] > counting[1] + 1
    assert {file.name for file in folder.iterdir()} == \
        {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["ModernBertForMaskedLM"] and config["hidden_size"] == 24


def test_a_time_limit_ends_the_run(train, scratch):
    began = time.monotonic()
    result = run([*train, "--minutes", "0.1", "--folder", scratch / "timed"])
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - began < 15
    assert len(re.findall(r"^step \d+: loss", result.stdout, re.M)) > 1


@pytest.mark.parametrize("options, message", (
    (["--qk-norm"], "--qk-norm is not for --masked-lm"),
    (["--ranks", "2"], "--ranks is not for --masked-lm"),
    (["--context", "2"], "--context is not for --masked-lm"),
    (["--seq-len", "2"], "--seq-len 2: [CLS] and [SEP] leave no token")))
def test_what_masked_lm_does_not_have_is_rejected(train, scratch, options, message):
    expect_rejection([*train, "--folder", scratch / "rejected", *options], message)
    assert not (scratch / "rejected").exists()


def test_a_vocabulary_without_room_is_rejected(train, scratch):
    command = ["7" if option == "300" else option for option in train]
    expect_rejection([*command, "--folder", scratch / "rejected"],
                     "special tokens and characters are too many for a vocabulary of 7")


def test_a_classifier_learns_labels_and_names_them(program, encoder, labels, tmp_path):
    folder = tmp_path / "classifier"
    result = run([program, "--model", encoder, "--method", "classifier", "--train", labels, "--folder", folder,
                  "--steps", "60", "--batch-size", "8", "--learning-rate", "0.005", "--plots", "none"])
    assert result.returncode == 0 and not result.stderr, result.stderr
    assert table_row(result.stdout, "always war, the most common")[1] < 90
    assert table_row(result.stdout, "the classifier")[:2] == [12, 100]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["ModernBertForSequenceClassification"]
    assert config["id2label"] == {"0": "house", "1": "war"}
    shown = run([program.parent / "model", "--model", folder, "--tokens", "2,7,8,3"])
    assert shown.returncode == 0 and re.search(r"\b(war|house)\b", shown.stdout), shown.stdout


def test_contrastive_training_finds_passages_and_is_served(program, encoder, pairs, tmp_path):
    folder = tmp_path / "search"
    result = run([program, "--model", encoder, "--method", "contrastive", "--train", pairs, "--test", pairs, "--folder",
                  folder, "--steps", "80", "--batch-size", "16", "--learning-rate", "0.005", "--plots", "none"])
    assert result.returncode == 0 and not result.stderr, result.stderr
    before, after = (table_row(result.stdout, name)[1] for name in ("vectors, before training", "vectors"))
    assert after > before + 20
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["ModernBertModel"]
    assert json.loads((folder / "1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"] is True
    assert [module["path"] for module in json.loads((folder / "modules.json").read_text())] == ["", "1_Pooling", "2_Normalize"]
    # What it wrote is trained further.
    again = run([program, "--model", folder, "--method", "contrastive", "--train", pairs, "--test", pairs, "--folder",
                 tmp_path / "again", "--steps", "1", "--batch-size", "4", "--plots", "none"])
    assert again.returncode == 0, again.stderr
    assert table_row(again.stdout, "vectors, before training")[1] == after


def all_contents(folder):
    """The bytes of all files, also in folders inside."""
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def stop_when_saved(command, folder, name, how):
    """Sends the signal after the next step that is saved. Returns the output."""
    length = lambda: saved_length(folder, name)
    before = length()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and length() <= before:
            time.sleep(0.005)
        process.send_signal(how)
        return process.communicate(timeout=60)[0]


@pytest.mark.parametrize("kind", ("masked_lm", "classifier", "contrastive"))
def test_a_run_that_is_killed_and_stopped_ends_with_the_same_files(program, train, encoder, labels, pairs, kind, tmp_path):
    command = [*train, "--steps", "12"] if kind == "masked_lm" else \
        [program, "--model", encoder, "--method", kind, "--train", labels if kind == "classifier" else pairs, "--steps",
         "12", "--batch-size", "8", "--plots", "none"]
    command += ["--save-steps", "1"]
    whole = run([*command, "--folder", tmp_path / "whole"])
    assert whole.returncode == 0, whole.stderr
    folder = tmp_path / "broken"
    command += ["--folder", folder]
    stop_when_saved(command, folder, "reports", signal.SIGKILL)
    expect_rejection(command, "holds a checkpoint: --resume continues its run")
    expect_rejection([*command, "--resume", "--seed", "5"], "this run has other options")
    output = stop_when_saved([*command, "--resume"], folder, "reports", signal.SIGINT)
    assert "Stopped and saved after the last complete step." in output
    ended = run([*command, "--resume"])
    assert ended.returncode == 0, ended.stderr
    assert all_contents(folder) == all_contents(tmp_path / "whole")


def test_two_runs_with_the_same_seed_are_equal_and_others_differ(program, encoder, labels, tmp_path):
    command = [program, "--model", encoder, "--method", "classifier", "--train", labels, "--steps", "2", "--plots", "none"]
    for name, options in (("one", []), ("same", []), ("other", ["--seed", "5"])):
        assert run([*command, "--folder", tmp_path / name, *options]).returncode == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "same") != contents(tmp_path / "other")


BAD_LINES = (
    ("classifier", {"text": "a"}, 'label is neither a string nor an integer'),
    ("classifier", {"text": "", "label": "a"}, "text is empty"),
    ("classifier", {"text": "a", "label": 1.5}, 'label is neither a string nor an integer'),
    ("classifier", {"text": "a", "label": "b", "text_pair": "c"}, "text_pair"),
    ("classifier", {"text": "a", "label": "b"}, "all texts have the label b"),
    ("classifier", {"text": "spear " * 100, "label": "b"}, "no text has at most 64 tokens"),
    ("contrastive", {"query": "a"}, "passage"),
    ("contrastive", {"query": "a", "passage": ""}, "passage is empty"),
    ("contrastive", {"query": "a", "passage": "b"}, "--batch-size 32: a batch needs at least two different passages"))


@pytest.mark.parametrize("method, line, message", BAD_LINES)
def test_bad_data_are_rejected_with_their_line(program, encoder, tmp_path, method, line, message):
    file = write_lines(tmp_path / "data.jsonl", [line, line])
    expect_rejection([program, "--model", encoder, "--method", method, "--train", file, "--folder", tmp_path / "none"], message)
    assert not (tmp_path / "none").exists()


def test_models_and_methods_must_fit(program, encoder, labels, tmp_path):
    folder = ["--train", labels, "--folder", tmp_path / "none"]
    expect_rejection([program, "--model", encoder, *folder], f"--method sft: {encoder} is an encoder, which writes no text; "
                     "its methods are classifier and contrastive")
    expect_rejection([program, "--model", WORDNET, *folder, "--method", "classifier"],
                     "--method classifier needs an encoder, such as BERT, but")
    expect_rejection([program, "--model", encoder, *folder, "--method", "classifier", "--beta", "1"],
                     "--beta is not for the methods of encoders")
    unknown = write_lines(tmp_path / "test.jsonl", [{"text": "spear", "label": "peace"}])
    expect_rejection([program, "--model", encoder, *folder, "--method", "classifier", "--test", unknown],
                     "no text to train on has the label peace")
