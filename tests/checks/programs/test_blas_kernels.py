"""OpenBLAS before 0.3.25 takes several of Intel's processors for a Pentium 4 (findings/openblas_newer_intel.sh): a
program then begins again with the kernels of this processor, unless the user has chosen some."""

import os
import subprocess
from pathlib import Path

import pytest

from inputs import SMALL
from running import run, steps_done
from test_train_ranks import AS_ROOT, MPIRUN

CPUINFO = Path("/proc/cpuinfo").read_text()
BEST = "SkylakeX" if " avx512vl " in CPUINFO else "Haswell"
pytestmark = [pytest.mark.programs("02_projections", "train"),
              pytest.mark.skipif(" avx2 " not in CPUINFO, reason="no kernels for AVX2")]

# An OpenBLAS that has chosen kernels for a Pentium 4. Each program that begins prints a line.
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static const char* chosen(void) { return getenv("OPENBLAS_CORETYPE"); }
__attribute__((constructor)) static void begin(void) {
    fprintf(stderr, "begins: %s\\n", chosen() ? chosen() : "not set");
}
const char* openblas_get_corename(void) { return chosen() ? chosen() : "Prescott"; }
"""


@pytest.fixture
def pentium(tmp_path):
    source, library = tmp_path / "pentium.c", tmp_path / "pentium.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    return {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"} | {"LD_PRELOAD": str(library)}


def test_a_program_begins_again_with_kernels_of_the_processor(program, pentium):
    plain = run([program, "--help"])
    result = run([program, "--help"], env=pentium)
    assert result.stderr == f"begins: not set\nbegins: {BEST}\n"
    assert (result.returncode, result.stdout) == (0, plain.stdout)


def test_kernels_that_the_user_has_chosen_are_left_alone(program, pentium):
    result = run([program, "--help"], env=pentium | {"OPENBLAS_CORETYPE": "Prescott"})
    assert result.stderr == "begins: Prescott\n"
    assert result.returncode == 0


@pytest.mark.skipif(not MPIRUN, reason="needs mpirun: openmpi-bin")
def test_a_rank_begins_again_before_mpi_does(program, pentium, inputs, tmp_path):
    if program.name != "train":
        pytest.skip("has no ranks")
    result = run([MPIRUN, "-n", "2", program, "--text", inputs["numbers"], *SMALL, "--steps", "2", "--folder", tmp_path / "run"],
                 env=pentium | AS_ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f"begins: {BEST}\n") == 2
    assert steps_done(tmp_path / "run") == 2
