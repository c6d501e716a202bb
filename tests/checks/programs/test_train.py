"""./learn train on texts and documents, and for a time."""

import json
import re
import time

import pytest

from inputs import SMALL, SMALL_TEXT, write_pages
from running import contents, expect_readable, expect_rejection, output_of, run

pytestmark = pytest.mark.programs("train")


@pytest.mark.parametrize("options, size", (("", 4), ("--dtype bfloat16", 2)))
def test_a_text_is_learned_in_32_and_in_16_bits(program, inputs, options, size, tmp_path):
    folder = tmp_path / "model"
    output = output_of([program, "--text", inputs["numbers"], *SMALL, "--steps", "6",
                        "--folder", folder, *options.split()])
    assert re.search(r"^step 6: loss \d", output, re.M)
    expect_readable(program, folder)
    count = int(re.search(r"^parameters: ([\d,]+)$", output, re.M)[1].replace(",", ""))
    assert 0 <= (folder / "model.safetensors").stat().st_size - size * count < 4000


TWELVE_STEPS = [option if option != "32" else "300" for option in SMALL] + ["--steps", "12"]


@pytest.fixture(scope="module")
def documents(scratch):
    """60 documents in three forms: a folder, a list of files, and a text with separators."""
    texts = [f"The square of {i} is {i * i}; its cube is {i ** 3}.\n" for i in range(60)]
    folder = scratch / "documents"
    folder.mkdir()
    for i, text in enumerate(texts):
        (folder / f"{i:02}").write_text(text)
    (folder / ".hidden").write_text("not read")
    (scratch / "in_one").write_text("<SEP>".join(texts) + "<SEP>")
    files = ",".join(str(folder / f"{i:02}") for i in range(60))
    return {"folder": ["--text", folder], "list": ["--text", files],
            "separators": ["--text", scratch / "in_one", "--document-separator", "<SEP>"]}


@pytest.fixture(scope="module")
def document_runs(program, documents, scratch):
    """What a run on each form prints, and its folder."""
    folders = {name: scratch / f"from_{name}" for name in documents}
    return {name: (output_of([program, *documents[name], *TWELVE_STEPS, "--folder", folder]),
                   folder) for name, folder in folders.items()}


@pytest.mark.parametrize("form", ("folder", "list", "separators"))
def test_each_form_of_documents_gives_the_same_run(document_runs, form):
    output, folder = document_runs[form]
    assert "documents: 60\n" in output
    tables = re.findall(r"^(within|across) documents +(\d+\.\d+)$", output, re.M)
    assert [kind for kind, _ in tables] == ["within", "across"]
    assert tables[0][1] != tables[1][1]
    assert contents(folder) == contents(document_runs["folder"][1])


def test_the_model_stops_at_the_separator_of_documents(program, document_runs):
    folder = document_runs["folder"][1]
    saved = json.loads((folder / "generation_config.json").read_text())
    tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    ids = [token["id"] for token in tokens if token["content"] == "<|endoftext|>"]
    assert ids == [saved["eos_token_id"]]
    expect_readable(program, folder)


def test_attention_may_cross_documents(program, documents, document_runs, tmp_path):
    command = [program, *documents["folder"], *TWELVE_STEPS, "--cross-documents", "--folder"]
    expect_rejection([*command, document_runs["folder"][1], "--resume"],
                     "another text: --cross-documents yes (saved run: no)")
    across = run([*command, tmp_path / "across"])
    assert across.returncode == 0, across.stderr
    assert "Attention crosses documents." in across.stdout
    assert "attention across documents" in across.stdout


def test_minutes_is_the_time_of_the_whole_program(program, tmp_path):
    """Within 25 % on a busy machine, evaluations and the comparison included. In this time the
    learning rate decreases to its minimum; with --resume, a finished run is continued for it.
    (tests/apps/runs/runs.cpp has a clock.)"""
    folder, steps = tmp_path / "run", 0
    command = [program, "--text", write_pages(tmp_path), *SMALL_TEXT, "--folder", folder]
    for options in ([], ["--resume"]):
        start = time.time()
        output = output_of([*command, "--minutes", "0.1", *options])
        assert 4.5 <= time.time() - start <= 7.5
        last = re.findall(r"^step (\d+):", output, re.M)
        assert last and int(last[-1]) > steps
        steps = int(last[-1])
        assert 2 <= len(last) <= 6  # evaluations
        assert re.search(r"^this model +\d", output, re.M)  # in the comparison
        records = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
        rates = [record["learning_rate"] for record in records if "learning_rate" in record]
        assert len(rates) == steps
        assert max(rates) >= 0.0019 and 0.0002 <= rates[-1] <= 0.00021
