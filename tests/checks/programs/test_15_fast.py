"""Chapter 15's program, with what it measures."""

import os
import subprocess

import pytest

from running import output_of, run

pytestmark = pytest.mark.programs("15_fast")


def test_with_timing_it_prints_more_and_draws_the_roofline(program, tmp_path):
    output = output_of([program, "--plots", tmp_path])
    assert "tokens per second" in output
    assert max(map(len, output.split("\n"))) <= 100
    assert (tmp_path / f"{program.name}_roofline.svg").exists()


def test_with_model_it_only_generates(program, inputs):
    output = output_of([program, "--model", inputs["model"], "--tokenizer", inputs["tokenizer"],
                        "--prompt", "a b", "--max-new-tokens", "999"])
    assert output.count("──") == 2


def test_the_serial_build_of_openblas_is_rejected(program, tmp_path):
    """Its products are wrong if two threads compute (findings/openblas_serial_in_threads.sh)."""
    source, library = tmp_path / "serial.c", tmp_path / "serial.so"
    source.write_text("int openblas_get_parallel(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    result = run([program, "--plots", "none"], env=os.environ | {"LD_PRELOAD": str(library)})
    assert result.returncode == 2
    assert result.stderr.startswith(f"{program.name}: this OpenBLAS is the serial build")
    assert result.stderr.count("\n") == 1
