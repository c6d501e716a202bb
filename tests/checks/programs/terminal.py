"""Runs programs in a terminal, and interrupts them."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time


def run_in_terminal(command, act=lambda output: None, columns=80, **variables):
    """Runs the command in a terminal of 24 lines and so many columns, and presses Enter at each
    prompt. act is called with the output so far. Returns the exit code and the output."""
    main_side, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(command, stdin=program_side, stdout=program_side,
                               stderr=program_side, env=environment | variables,
                               start_new_session=True)
    os.close(program_side)
    output, answered, end = b"", 0, time.time() + 60
    while time.time() < end:
        if select.select([main_side], [], [], 0.1)[0]:
            try:
                output += os.read(main_side, 65536)
            except OSError:  # the program has closed the terminal
                break
        if output.endswith(b"[Enter] ") and len(output) > answered:
            answered = len(output)
            os.write(main_side, b"\n")
        if signal_number := act(output.decode(errors="replace")):
            os.killpg(process.pid, signal_number)
            act = lambda output: None
    os.close(main_side)
    process.kill() if time.time() >= end else None
    return process.wait(), output.decode().replace("\r\n", "\n")


def talk_in_terminal(command, script):
    """Runs the command in a terminal. The script is a list of patterns to wait for, in the
    output since the last keys, and of keys to press then. Returns the exit code and the
    output."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)
    output, seen, end = b"", 0, time.time() + 60
    for pattern, keys in [*script, (None, b"")]:
        while time.time() < end and not (
                pattern and re.search(pattern, output[seen:].decode(errors="replace"))):
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    output += os.read(terminal, 65536)
                except OSError:  # the program has closed the terminal
                    end = 0
        seen = len(output)
        if pattern and end:
            os.write(terminal, keys)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code, output.decode(errors="replace").replace("\r\n", "\n")


def expect_interrupt(command, moment, folder):
    """Ctrl-C ends the program soon (2 s leave room for a busy machine), whatever it is doing;
    what was trained is saved."""
    shutil.rmtree(folder, ignore_errors=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        while (line := process.stdout.readline()) and not re.match(moment, line):
            pass
        time.sleep(0.2)
        start = time.time()
        process.send_signal(signal.SIGINT)
        limit = threading.Timer(60, process.kill)
        limit.start()
        output = process.communicate()[0]
        limit.cancel()
    seconds = time.time() - start
    assert line and seconds <= 2 and process.returncode in (0, 2, -signal.SIGINT), \
        f"exit {process.returncode}, {seconds:.1f} s after Ctrl-C at {moment}: {output[-300:]}"
    saved = (folder / "run.safetensors").exists()
    assert not moment.startswith("step") or (saved and "Stopped and saved" in output), \
        f"nothing is saved at {moment}: {output[-300:]}"
