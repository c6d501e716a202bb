"""Chapter 13's program: the log of its run, its folder, and Ctrl-C."""

import json
import re
import signal
from types import SimpleNamespace

import pytest

from running import contents, default_runs, events_of, expect_rejection, run, run_until
from terminal import expect_interrupt

pytestmark = pytest.mark.programs("13_training")

STEPS = range(1, 7)


@pytest.fixture(scope="module")
def six_steps(program, scratch):
    """The JSON events of a run of six steps, and the records of its log."""
    folder = scratch / "progress"
    events = events_of([program, "--steps", "6", "--folder", folder])
    lines = (folder / "log.jsonl").read_text().splitlines()
    return events, [json.loads(line) for line in lines]


def test_json_has_a_progress_event_with_step_and_loss_for_each_step(six_steps):
    texts = [event["text"] for event in six_steps[0] if event["type"] == "progress"]
    steps = [re.match(r"(\d+)/6 .* loss (\d+\.\d\d) ", text) for text in texts if text]
    assert [step and int(step[1]) for step in steps] == [*STEPS]


def test_the_log_has_a_line_for_each_step_and_each_evaluation(six_steps):
    records = six_steps[1]
    expected = [kind for step in STEPS for kind in ((step, "loss"), (step, "validation_loss"))]
    assert [(record["step"], [*record][1]) for record in records] == expected
    for record in records[::2]:
        assert [*record] == ["step", "loss", "learning_rate", "grad_norm", "tokens", "seconds"]
    assert [record["tokens"] for record in records[::2]] == [1024 * step for step in STEPS]


def test_the_output_has_the_losses_of_the_log(six_steps):
    events, records = six_steps
    shown = [(event["name"], event["text"]) for event in events
             if event["type"] == "value" and event["name"].startswith("step ")]
    for (name, text), step, evaluation in zip(shown, records[::2], records[1::2]):
        assert name == f"step {step['step']}"
        assert text.startswith(f"loss {step['loss']:.3f}, "
                               f"validation loss {evaluation['validation_loss']:.3f}, ")


def test_without_folder_no_run_is_overwritten(program):
    """A finished run is kept, and an interrupted one is rejected until it is resumed."""
    before = default_runs(program)
    run([program, "--steps", "5", "--plots", "none"])
    first = default_runs(program) - before
    assert len(first) == 1, "is the run of an earlier test interrupted?"
    kept = contents(min(first))
    new_model = SimpleNamespace(exists=lambda: any(
        (folder / "config.json").exists() for folder in default_runs(program) - before - first))
    longer = [program, "--steps", "400", "--plots", "none"]
    code, output = run_until(longer, new_model, signal.SIGINT)
    second = default_runs(program) - before - first
    assert code == 0 and "Stopped and saved" in output
    expect_rejection(longer, "holds a checkpoint: --resume continues its run (")
    resumed = run([program, "--plots", "none", "--resume"])
    assert resumed.returncode == 0 and "step 400: loss" in resumed.stdout
    assert len(second) == 1 and default_runs(program) == before | first | second
    assert contents(min(first)) == kept


@pytest.mark.parametrize("moment", (r"── \d+\. Gradient norms", r"step \d+: "))
def test_ctrl_c_ends_it_soon(program, moment, tmp_path):
    folder = tmp_path / "interrupted"
    expect_interrupt([program, "--folder", folder, "--steps", "900"], moment, folder)
