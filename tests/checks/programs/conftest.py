"""The checks of the command lines of all programs and of ./learn: invalid input gives one line
on standard error and exit code 2; valid input gives the expected output and files. To run those
of some programs: pytest-3 tests/checks/programs --build build --program 05_gqa --program train
The environment variable KILLS is the number of times that a training run is killed (20)."""

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from inputs import Inputs
from running import CHAPTERS, ROOT, default_runs, run

PROGRAMS = [*CHAPTERS, "walk", "model", "train", "fine_tune", "experiment", "ask", "chat", "learn"]


def pytest_addoption(parser):
    parser.addoption("--build", type=lambda name: Path(name).resolve(), default=ROOT / "build",
                     help="the folder with the programs")
    parser.addoption("--program", action="append", choices=PROGRAMS,
                     help="check this program; without it, all are checked")


def pytest_configure(config):
    config.addinivalue_line("markers", "programs(*names): the programs that a test checks")


def pytest_generate_tests(metafunc):
    chosen = metafunc.config.getoption("program") or PROGRAMS
    tested = metafunc.definition.get_closest_marker("programs").args
    # Names of PROGRAMS, because pytest compares parameters of fixtures by identity.
    names = [name for name in PROGRAMS if name in chosen and name in tested]
    metafunc.parametrize("program", names or [None], indirect=True, scope="session")


def pytest_collection_modifyitems(items):
    """All tests of a program follow each other. Those of a program that is not chosen go."""
    name = lambda item: item.callspec.params["program"]
    items[:] = sorted(filter(name, items), key=lambda item: PROGRAMS.index(name(item)))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"processor seconds: {sum(os.times()[:4]):.1f}")


@pytest.fixture(scope="session", autouse=True)
def program(request):
    """The path of the program."""
    os.chdir(ROOT)
    build = request.config.getoption("build")
    path = ROOT / "learn" if request.param == "learn" else build / request.param
    before = default_runs(path)
    yield path
    for folder in default_runs(path) - before if request.param == "13_training" else []:
        shutil.rmtree(folder)


@pytest.fixture
def tmp_path():
    """As pytest's own, but deleted after the test."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def scratch(program):
    """A folder for what several tests of a program read."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def inputs(program, scratch):
    return Inputs(program, scratch)


# What makes the run of a program without options short, and equal each time.
SHORT_RUN = {"13_training": "--steps 12",
             "14_fine_tuning": "--base-steps 20 --sft-steps 10 --grpo-steps 6",
             "15_fast": "--no-timing", "16_quantization": "--no-timing",
             "25_encoders": "--steps 20", "27_vision": "--steps 20"}


@pytest.fixture(scope="session")
def default_run(program, scratch):
    """A run of a chapter's program without options: its result, saved tensors and figures."""
    command = [program, *SHORT_RUN.get(program.name, "").split()]
    tensors, plots = scratch / "tensors", scratch / "plots"
    result = run([*command, "--save", tensors, "--plots", plots])
    return SimpleNamespace(command=command, result=result, text=result.stdout, tensors=tensors,
                           plots=plots)
