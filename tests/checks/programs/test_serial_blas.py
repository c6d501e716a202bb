"""The serial build of OpenBLAS, which is not thread-safe (findings/openblas_serial_in_threads.sh),
is rejected: by chapter 15's program before it starts a thread pool, by chapter 24's before its
ranks."""

import os
import subprocess

import pytest

from running import run

pytestmark = pytest.mark.programs("15_fast", "24_parallel")


def test_the_serial_build_of_openblas_is_rejected(program, tmp_path):
    source, library = tmp_path / "serial.c", tmp_path / "serial.so"
    source.write_text("int openblas_get_parallel(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    result = run([program, "--plots", "none"], env=os.environ | {"LD_PRELOAD": str(library)})
    assert result.returncode == 2
    assert result.stderr.startswith(f"{program.name}: this OpenBLAS is the serial build")
    assert result.stderr.count("\n") == 1
