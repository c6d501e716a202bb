"""./learn train: a run that was stopped or killed goes on as if it had not been."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from inputs import SMALL, SMALL_TEXT, write_pages
from running import (contents, expect_readable, expect_rejection, output_of, run, run_until,
                     steps_done, without_speed)
from terminal import expect_interrupt

pytestmark = pytest.mark.programs("train")


@pytest.fixture(scope="module")
def learn(program, inputs):
    """A command that trains for less than a second."""
    return [program, "--text", inputs["numbers"], *SMALL, "--steps", "600"]


@pytest.fixture(scope="module")
def whole(learn, scratch):
    """A run that is not stopped: its folder, and what it prints."""
    folder = scratch / "whole"
    return SimpleNamespace(folder=folder, text=run([*learn, "--folder", folder]).stdout)


def last_step(text):
    return [without_speed(line) for line in re.findall(r"^step 600: .*", text, re.M)]


@pytest.mark.parametrize("how", (signal.SIGINT, signal.SIGKILL))
def test_after_a_signal_it_resumes_with_the_same_result(program, learn, whole, how, tmp_path):
    folder = tmp_path / "run"
    code, output = run_until([*learn, "--folder", folder], folder / "config.json", how)
    assert code == (0 if how == signal.SIGINT else -how) and "step 600: loss" not in output
    assert ("Stopped and saved" in output) == (how == signal.SIGINT)
    expect_readable(program, folder)
    resumed = output_of([*learn, "--folder", folder, "--resume"])
    assert last_step(resumed) == last_step(whole.text) and len(last_step(whole.text)) == 1
    assert contents(folder) == contents(whole.folder)


def test_resume_of_a_finished_run_changes_nothing(learn, whole):
    before = contents(whole.folder)
    finished = output_of([*learn, "--folder", whole.folder, "--resume"])
    assert "speed" not in finished
    assert contents(whole.folder) == before


def test_with_more_steps_a_finished_run_goes_on(learn, whole, tmp_path):
    """With its last learning rate, also if it is stopped again."""
    folder, at_once = tmp_path / "more", tmp_path / "more_at_once"
    shutil.copytree(whole.folder, folder)
    shutil.copytree(whole.folder, at_once)
    learn = learn[:-2]  # without --steps
    expect_rejection([*learn, "--steps", "500", "--folder", folder, "--resume"],
                     "--steps 500 (saved run: 600)")
    longer = [*learn, "--steps", "1400", "--resume", "--folder"]
    after_650 = SimpleNamespace(exists=lambda: steps_done(folder) > 650)
    code, output = run_until([*longer, folder, "--save-steps", "10"], after_650, signal.SIGKILL)
    assert code == -signal.SIGKILL, output
    expect_rejection([*learn, "--folder", folder],
                     f"({steps_done(folder)} of 1400 steps are done)")
    for command in ([*learn, "--folder", folder, "--resume"], [*longer, at_once]):
        text = output_of(command)
        assert ("The schedule of this run ends at step 600. Later steps have its last learning "
                "rate, 0.0002.") in " ".join(text.split())
        assert "step 1400: loss" in text
    assert contents(folder) == contents(at_once)
    again = run([*learn, "--folder", folder, "--resume"])
    assert "All 1400 steps of this run are done" in again.stdout, again.stderr
    assert contents(folder) == contents(at_once)


def test_a_missed_evaluation_is_made_when_the_run_goes_on(learn, whole, tmp_path):
    """It was stopped between a step and its evaluation, at 200 or at the end."""
    folder = tmp_path / "missed"
    at_200 = SimpleNamespace(exists=lambda: steps_done(folder) == 200)
    run_until([*learn, "--folder", folder, "--save-steps", "100"], at_200, signal.SIGKILL)
    for step in (steps_done(folder), 600):
        log = (folder / "log.jsonl").read_text()
        evaluation = re.search(rf'\{{"step":{step},"validation_loss":.*\n', log)
        assert evaluation, log[-300:]
        (folder / "log.jsonl").write_text(log.replace(evaluation[0], ""))
        result = run([*learn, "--folder", folder, "--resume"])
        assert result.returncode == 0 and f"step {step}: loss" in result.stdout, result.stderr
        assert contents(folder) == contents(whole.folder)


def kill_at_random(process, folder, generator):
    """Half of the time, while the run writes a file."""
    if generator.random() < 0.5:
        time.sleep(generator.uniform(0, 1.2))
    else:
        end = time.time() + generator.uniform(0, 0.8)
        while process.poll() is None and (time.time() < end or not any(folder.glob("*.part"))):
            pass
    process.kill()
    return process.communicate(timeout=120)[1]


def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_files(learn, whole,
                                                                         tmp_path):
    """Every kill before the last steps counts; when a run ends, the next one begins."""
    generator, kills, during_writing, finished = random.Random(), 0, 0, 0
    folder, expected = tmp_path / "killed", contents(whole.folder)
    while kills < int(os.environ.get("KILLS", 20)) or finished == 0:
        options = ["--resume"] if (folder / "run.safetensors").exists() else []
        command = [*learn, "--folder", folder, "--save-steps", "7", *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            error = kill_at_random(process, folder, generator)
        if process.returncode == 0:
            finished += 1
            assert contents(folder) == expected, f"after {kills} kills"
            shutil.rmtree(folder)
        else:
            assert process.returncode == -signal.SIGKILL, \
                f"--resume after {kills} kills: exit {process.returncode}: {error.decode()}"
            kills += 1
            during_writing += any(folder.glob("*.part"))
    assert during_writing > 0, f"none of {kills} kills came while a file was written"


# However slow the machine is, the first report is not the last one.
MANY_STEPS = [*SMALL_TEXT, "--steps", "6000"]


@pytest.mark.parametrize("options, moment", (
    (["--minutes", "0.1"], r"── \d+\. Text"), (["--minutes", "0.1"], r"── \d+\. Training"),
    (MANY_STEPS, r"step \d+: "), (["--minutes", "0.1"], r"── \d+\. Comparison")))
def test_ctrl_c_ends_it_soon(program, options, moment, tmp_path):
    folder = tmp_path / "interrupted"
    command = [program, "--folder", folder, "--text", write_pages(tmp_path), *options]
    expect_interrupt(command, moment, folder)


def test_two_runs_do_not_write_to_one_folder(learn, tmp_path):
    folder = tmp_path / "locked"
    endless = [*learn[:-1], "1000000", "--folder", folder]
    with subprocess.Popen(endless, stdout=subprocess.DEVNULL) as first:
        try:
            while first.poll() is None and not (folder / "run.safetensors").exists():
                time.sleep(0.02)
            for options in ([], ["--resume"]):
                expect_rejection([*learn, "--folder", folder, *options],
                                 "another run is writing to this folder")
        finally:
            first.kill()
