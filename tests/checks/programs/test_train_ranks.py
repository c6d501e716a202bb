"""./learn train --ranks: processes that mpirun starts."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from inputs import SMALL
from running import (AS_ROOT, MPIRUN, contents, expect_readable, expect_rejection, output_of, run, run_until,
                     steps_done)
from terminal import run_in_terminal

pytestmark = [pytest.mark.programs("train"),
              pytest.mark.skipif(not MPIRUN, reason="needs mpirun: openmpi-bin")]


@pytest.fixture(scope="module")
def learn(program, inputs):
    return [program, "--text", inputs["numbers"], *SMALL]


@pytest.fixture(scope="module")
def whole(learn, scratch):
    """The folder of a run in one process."""
    output_of([*learn, "--steps", "120", "--folder", scratch / "in_one_process"])
    return scratch / "in_one_process"


def losses(folder):
    records = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [record.get("loss", record.get("validation_loss")) for record in records]


def expect_equal_runs(folder, whole):
    """Up to rounding: sums over ranks are added in another order."""
    assert losses(folder) == pytest.approx(losses(whole), abs=1e-4)
    assert contents(folder).keys() == contents(whole).keys()
    for name in ("config.json", "tokenizer.json"):
        assert contents(folder)[name] == contents(whole)[name]


def processes_of_ranks(launcher):
    """The process ids of the ranks, by rank."""
    children = lambda pid: Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {}
    for mpirun in children(launcher):
        for process in [mpirun, *children(mpirun)]:
            variables = Path(f"/proc/{process}/environ").read_text().split("\0")
            found |= {int(variable.split("=")[1]): int(process) for variable in variables
                      if variable.startswith("OMPI_COMM_WORLD_RANK=")}
    return found


def start(command, folder, steps):
    """Starts a run, and waits until the checkpoint has these steps."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True, env=os.environ | AS_ROOT)
    while process.poll() is None and steps_done(folder) < steps:
        time.sleep(0.02)
    return process


def finish(process):
    """The output and the errors; ranks that hang do not outlive the check."""
    try:
        return process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(10)
        raise


@pytest.mark.parametrize("zero", "03")
def test_two_ranks_learn_what_one_process_learns(program, learn, whole, zero, tmp_path):
    folder = tmp_path / "run"
    output = output_of([*learn, "--steps", "120", "--folder", folder, "--ranks", "2", "--zero",
                        zero])
    threads = max(1, os.cpu_count() // 2)
    assert re.search(rf"^ranks: 2 with {threads} threads? each, ZeRO stage {zero}$", output,
                     re.M)
    assert re.search(r"^command: mpirun\S* -n 2 .*--ranks 2", output, re.M)
    assert re.search(r"^step 120: .* tokens/s \([\d,]+ tokens/s per rank\), ", output, re.M)
    assert output.count("step 120: ") == 1 and "\x1b" not in output and "\r" not in output
    expect_equal_runs(folder, whole)
    expect_readable(program, folder)


@pytest.mark.parametrize("axes, mesh", (
    ("--ranks 2 --context 2", "data 1, pipeline 1, context 2, tensor 1"),
    ("--ranks 4 --tensor 2 --pipeline 2", "data 1, pipeline 2, context 1, tensor 2")))
def test_a_mesh_learns_what_one_process_learns(program, learn, whole, axes, mesh, tmp_path):
    folder = tmp_path / "run"
    output = output_of([*learn, "--steps", "120", "--folder", folder, *axes.split()])
    assert re.search(rf"^ranks: {axes[8]} with \d+ threads? each: {mesh}$", output, re.M)
    assert output.count("step 120: ") == 1
    expect_equal_runs(folder, whole)
    expect_readable(program, folder)


@pytest.mark.parametrize("ranks, others", (
    ("--ranks 2 --zero 1", "--ranks 3 --zero 2"),
    ("--ranks 2 --pipeline 2", "--ranks 2 --tensor 2")))
def test_ctrl_c_saves_and_other_ranks_resume(learn, whole, ranks, others, tmp_path):
    folder, copy = tmp_path / "run", tmp_path / "copy"
    code, output = run_until([*learn, "--steps", "120", "--folder", folder, *ranks.split()],
                             folder / "config.json", signal.SIGINT)
    assert code == 0 and "Stopped and saved" in output and "signal" not in output
    assert 0 < steps_done(folder) < 120
    shutil.copytree(folder, copy)
    output_of([*learn, "--resume", "--folder", folder])
    output_of([*learn, "--resume", "--folder", copy, *others.split()])
    expect_equal_runs(folder, whole)
    expect_equal_runs(copy, whole)


def test_in_a_terminal_ctrl_c_stops_it_and_there_is_progress(learn, tmp_path):
    act = lambda output: signal.SIGINT if "step 1000: " in output else None
    code, output = run_in_terminal([*learn, "--steps", "6000", "--folder", tmp_path / "run",
                                    "--ranks", "2"], act, columns=60)
    assert code == 0 and "Stopped and saved after" in output
    lines = re.findall(r"\r\x1b\[2K(\d+/6000 [^\r\n]*)", output)
    assert len(lines) > 100 and max(map(len, lines)) == 59


def test_a_signal_to_one_rank_stops_all_after_the_same_step(learn, tmp_path):
    """mpirun is started without ./learn train."""
    folder = tmp_path / "run"
    process = start([MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "3", *learn,
                     "--steps", "1000000", "--folder", folder, "--save-steps", "5"], folder, 10)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGUSR1)
    output, error = finish(process)
    assert process.returncode == 0 and not error
    assert "Stopped and saved after" in output and "\x1b" not in output


@pytest.mark.parametrize("ranks", ("--ranks 3", "--ranks 2 --pipeline 2"))
def test_a_rank_that_is_killed_ends_all_with_one_line(learn, ranks, tmp_path):
    folder = tmp_path / "run"
    command = [*learn, "--steps", "600", "--folder", folder]
    process = start([*command, "--save-steps", "5", *ranks.split()], folder, 10)
    before = time.time()
    os.kill(processes_of_ranks(process.pid)[1], signal.SIGKILL)
    error = finish(process)[1]
    assert process.returncode == 2 and time.time() - before < 10
    assert error == ("train: rank 1 was ended by signal 9 (Killed). With --resume, the same "
                     "command continues the run from its checkpoint.\n")
    assert 10 <= steps_done(folder) < 600
    output_of([*command, "--resume", "--ranks", "2"])
    assert steps_done(folder) == len(losses(folder)) - 6 == 600


@pytest.mark.parametrize("options, message", (
    ("--ranks 0", "--ranks takes an integer from 1 to 1024, not '0'"),
    ("--ranks -2", "not '-2'"),
    ("--ranks 9", "--ranks: 9 ranks for the 8 sequences of a step"),
    ("--zero 1", "--zero needs --ranks"),
    ("--ranks 2 --zero 4", "--zero takes an integer from 0 to 3, not '4'"),
    ("--ranks 2 --zero 1 --optimizer muon", "--zero excludes --optimizer muon"),
    ("--ranks 2 --only 1", "--ranks excludes --only"),
    ("--context 2", "--context needs --ranks"),
    ("--ranks 2 --tensor 0", "--tensor takes an integer from 1 to 1024, not '0'"),
    ("--ranks 4 --tensor 3", "--ranks: 4 ranks are not a multiple of 3 = 3 x 1 x 1 (--tensor, "
     "--pipeline, --context)"),
    ("--ranks 5 --tensor 5", "mesh: tensor=5, but so many ranks cannot share"),
    ("--ranks 9 --pipeline 9", "mesh: pipeline=9, but the model has"),
    ("--ranks 1000 --context 1000", "mesh: context=1000, which is 2000 chunks, but"),
    ("--ranks 18 --tensor 2", "mesh: data=9 (of 18 ranks), but a step has 8 sequences"),
    ("--ranks 2 --tensor 2 --zero 1", "--zero excludes --tensor, --pipeline and --context"),
    ("--ranks 2 --tensor 2 --optimizer muon", "--optimizer muon excludes --tensor"),
    ("--ranks 2 --context 2 --attention-dropout 0.1", "--attention-dropout excludes --tensor"),
    ("--ranks 2 --pipeline 2 --document-separator 7",
     "--tensor, --pipeline and --context need --cross-documents")))
def test_ranks_that_cannot_be_are_rejected_at_once(learn, options, message):
    expect_rejection([*learn, *options.split()], message)


def test_only_rank_0_has_a_folder(learn, tmp_path):
    folders = [tmp_path / "of_rank_0", tmp_path / "of_rank_1"]
    ranks = [["-n", "1", *learn, "--steps", "6", "--folder", folder] for folder in folders]
    result = run([MPIRUN, "--oversubscribe", *ranks[0], ":", *ranks[1]], env=os.environ | AS_ROOT)
    assert result.returncode == 0 and not result.stderr
    assert steps_done(folders[0]) == 6 and not folders[1].exists()


def test_an_error_of_the_ranks_is_one_line(program, learn, tmp_path):
    folder = tmp_path / "run"
    for command in ([program, "--text", tmp_path / "nothing", "--ranks", "2"],
                    [MPIRUN, "-q", "-n", "2", program, "--text", tmp_path / "nothing"],
                    [MPIRUN, "-q", "-n", "2", *learn, "--ranks", "3"],
                    [MPIRUN, "-q", "-n", "2", *learn, "--bogus"]):
        result = run([*command, "--folder", folder], env=os.environ | AS_ROOT)
        assert result.returncode == 2 and re.fullmatch(r"train: .*\n", result.stderr), result
        assert not folder.exists()
