"""Two faults of OpenBLAS, which a library in front of it imitates. Its serial build is not thread-safe
(findings/openblas_serial_in_threads.sh), so programs reject it. Before 0.3.25, it detects several of Intel's processors as
a Pentium 4 (findings/openblas_newer_intel.sh), so a program restarts with the kernels of its processor, unless the user has
selected some."""

import os
import subprocess
from pathlib import Path

import pytest

from inputs import SMALL
from running import AS_ROOT, MPIRUN, run, steps_done

CPUINFO = Path("/proc/cpuinfo").read_text()
BEST = "SkylakeX" if " avx512vl " in CPUINFO else "Haswell"
has_avx2 = pytest.mark.skipif(" avx2 " not in CPUINFO, reason="a processor without AVX2")

SERIAL = "int openblas_get_parallel(void) { return 0; }\n"
# Each start of a program prints a line.
PENTIUM = """
#include <stdio.h>
#include <stdlib.h>
static const char* selected(void) { return getenv("OPENBLAS_CORETYPE"); }
__attribute__((constructor)) static void start(void) {
    fprintf(stderr, "starts: %s\\n", selected() ? selected() : "not set");
}
const char* openblas_get_corename(void) { return selected() ? selected() : "Prescott"; }
"""


@pytest.fixture
def preloaded(tmp_path):
    """preloaded(CODE): the environment in which programs load a library of this C code first."""
    def environment(code):
        source, library = tmp_path / "library.c", tmp_path / "library.so"
        source.write_text(code)
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
        rest = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
        return rest | {"LD_PRELOAD": str(library)}
    return environment


# Chapter 15's program starts a thread pool, chapter 24's starts ranks.
@pytest.mark.programs("15_fast", "24_parallel")
def test_the_serial_build_of_openblas_is_rejected(program, preloaded):
    result = run([program, "--plots", "none"], env=preloaded(SERIAL))
    assert result.returncode == 2
    assert result.stderr.startswith(f"{program.name}: this OpenBLAS is the serial build")
    assert result.stderr.count("\n") == 1


@has_avx2
@pytest.mark.programs("02_projections", "train")
def test_a_program_restarts_with_the_kernels_of_its_processor(program, preloaded):
    plain = run([program, "--help"])
    result = run([program, "--help"], env=preloaded(PENTIUM))
    assert result.stderr == f"starts: not set\nstarts: {BEST}\n"
    assert (result.returncode, result.stdout) == (0, plain.stdout)


@has_avx2
@pytest.mark.programs("02_projections", "train")
def test_kernels_that_the_user_has_selected_are_kept(program, preloaded):
    result = run([program, "--help"], env=preloaded(PENTIUM) | {"OPENBLAS_CORETYPE": "Prescott"})
    assert result.stderr == "starts: Prescott\n"
    assert result.returncode == 0


@has_avx2
@pytest.mark.skipif(not MPIRUN, reason="needs mpirun: openmpi-bin")
@pytest.mark.programs("train")
def test_a_rank_restarts_before_it_initializes_mpi(program, preloaded, inputs, tmp_path):
    command = [MPIRUN, "-n", "2", program, "--text", inputs["numbers"], *SMALL, "--steps", "2"]
    result = run([*command, "--folder", tmp_path / "run"], env=preloaded(PENTIUM) | AS_ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f"starts: {BEST}\n") == 2
    assert steps_done(tmp_path / "run") == 2
