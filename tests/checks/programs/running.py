"""Runs the programs, and reads what they leave in a folder."""

import array
import ast
import json
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = re.findall(r"^(\d\w+) \|", (ROOT / "chapters/contents.txt").read_text(), re.M)
MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(command, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=120, **kwargs)


def output_of(command):
    """What a command prints. It must end well, and print nothing on standard error."""
    result = run(command)
    assert result.returncode == 0 and not result.stderr, \
        f"{text_of(command)}: exit {result.returncode}: {result.stdout[-300:]}{result.stderr}"
    return result.stdout


def events_of(command):
    return [json.loads(line) for line in run([*command, "--json"]).stdout.splitlines()]


def text_of(command):
    return " ".join(map(str, command))


def trouble_with_rejection(command, message):
    """An invalid command prints one line on standard error, which has the message, nothing
    else, and ends with exit code 2. Returns what is different, or None."""
    result = run(command)
    lines = result.stderr.strip().split("\n")
    if result.returncode == 2 and len(lines) == 1 and message in lines[0] and not result.stdout:
        return None
    return (f"{text_of(command)}: exit {result.returncode}, standard output "
            f"{len(result.stdout)} characters, expected one line with \"{message}\", "
            f"got: {result.stderr}")


def expect_rejection(command, message):
    trouble = trouble_with_rejection(command, message)
    assert not trouble, trouble


def run_until(command, file, how):
    """Sends the signal as soon as the file exists. Returns the exit code and the output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        while process.poll() is None and not file.exists():
            time.sleep(0.02)
        process.send_signal(how)
        output = process.communicate(timeout=120)[0]
    return process.returncode, output


def contents(folder):
    """The files of a folder. The times in a log are left out, because they differ between equal
    runs."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    return {name: re.sub(rb',"seconds":[^}]*', b"", data) if name == "log.jsonl" else data
            for name, data in files.items()}


def without_speed(text):
    """The output without the speed of training, which differs between equal runs."""
    return re.sub(r", [\d,]+ tokens/s, \d+:\d\d left", "", text)


def titles_of_steps(text):
    return re.findall(r"^── \d+\. (.*) ──$", text, re.M)


def numbers_of(file):
    """The shape and the elements of a .npy file of float32 or int64 in row-major order."""
    content = file.read_bytes()
    start = 10 + struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10:start].decode())
    code = {"<f4": "f", "<i8": "q"}[header["descr"]]
    return list(header["shape"]), array.array(code, content[start:])


def saved_length(folder, name):
    """The length of a tensor in the checkpoint of a run; 0 if there is no checkpoint."""
    if not (folder / "run.safetensors").exists():
        return 0
    with open(folder / "run.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return header[name]["shape"][0]


def steps_done(folder):
    """The number of losses in the checkpoint of a training run."""
    return saved_length(folder, "losses")


def default_runs(program):
    """The folders that chapter 13's program writes to without --folder."""
    return set((program.parent / "models").glob("names*"))


def expect_readable(program, folder):
    """Chapter 09 reads the model in the folder, and chapter 11 generates with it."""
    build = program.parent
    output_of([build / "09_full_model", "--model", folder, "--tokens", "1", "--plots", "none"])
    output_of([build / "11_generation", "--model", folder, "--prompt", "12 ",
               "--max-new-tokens", "3", "--plots", "none"])
