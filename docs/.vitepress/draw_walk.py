#!/usr/bin/env python3
"""Writes assets/walk.svg: ./learn walk in a terminal, one step after the other, in a loop.

docs/.vitepress/draw_walk.py BUILD          writes the picture
docs/.vitepress/draw_walk.py BUILD --check  exits with 1 if the picture is not that of the program
"""
import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "assets/walk.svg"
COLUMNS, ROWS, SECONDS = 80, 19, 8
WIDTH, HEIGHT, MARGIN = 7.8, 18, 14  # of a character, and of the frame around the text
ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


def printed_in_terminal(program):
    """What the program prints in a terminal of 80 columns, with its colors."""
    parent, child = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "24"], stdin=child, check=True)
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen([program, "--plots", "none"], stdin=subprocess.DEVNULL, stdout=child, env=environment, cwd=ROOT)
    os.close(child)
    output = b""
    try:
        while part := os.read(parent, 65536):
            output += part
    except OSError:  # the end of the program
        pass
    if process.wait() != 0:
        sys.exit(f"{program}: exit {process.returncode}")
    return output.decode().replace("\r\n", "\n")


def frames_of(output):
    """The lines of each step."""
    steps = output.split("\n\n")
    return [step.strip("\n").split("\n") for step in steps if "── " in step]


def css_color(index):
    """The color of a 256-color terminal."""
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    if index == 16:
        return "#000000"
    levels = [0, 95, 135, 175, 215, 255]
    red, green, blue = (levels[(index - 16) // place % 6] for place in (36, 6, 1))
    return f"#{red:02x}{green:02x}{blue:02x}"


def drawn_line(line, row):
    """A line as SVG: rectangles for the colored texts, and the texts."""
    y = MARGIN + HEIGHT * row
    column, rectangles, texts = 0, [], []
    pieces = ESCAPE.split(line)
    style = ""
    for i, piece in enumerate(pieces):
        if i % 2 == 1:
            style = piece
            continue
        if not piece:
            continue
        x = MARGIN + WIDTH * column
        colors = re.fullmatch(r"38;5;(\d+);48;5;(\d+)", style)
        color = ' class="h"' if style == "1;36" or piece.startswith("$ ") else ' class="c"' if line.startswith("> ") else ""
        if colors:
            color = f' style="fill:{css_color(int(colors[1]))}"'
            rectangles.append(f'<rect x="{x:.1f}" y="{y}" width="{WIDTH * len(piece):.1f}" height="{HEIGHT}" '
                              f'fill="{css_color(int(colors[2]))}"/>')
        if piece.strip():
            texts.append(f'<text x="{x:.1f}" y="{y + 13}"{color} textLength="{WIDTH * len(piece):.1f}">{escape(piece)}</text>')
        column += len(piece)
    return "".join(rectangles + texts)


def drawn(frames):
    total = SECONDS * len(frames)
    width, height = 2 * MARGIN + WIDTH * COLUMNS, 2 * MARGIN + HEIGHT * ROWS
    last = len(frames)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="13" xml:space="preserve">',
        "<title>./learn walk: a text passes through the model, one step after the other</title>",
        f"<style>text{{fill:#d7dae0;white-space:pre}}.h{{fill:#5fd7d7;font-weight:bold}}.c{{fill:#e8b86d}}"
        f".f{{opacity:0;animation:f {total}s step-end infinite}}@keyframes f{{0%{{opacity:1}}{100 / last:.3f}%{{opacity:0}}}}"
        + "".join(f"#f{i}{{animation-delay:{SECONDS * i}s}}" for i in range(last))
        + f"@media(prefers-reduced-motion:reduce){{.f{{animation:none}}#f{last - 1}{{opacity:1}}}}</style>",
        '<rect width="100%" height="100%" rx="8" fill="#16181d"/>',
    ]
    for i, frame in enumerate(frames):
        content = ["$ ./learn walk", *frame][:ROWS]
        lines += [f'<g class="f" id="f{i}">', *filter(None, (drawn_line(line, row) for row, line in enumerate(content))), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def main():
    # The last step, on training, has no numbers of the text.
    picture = drawn(frames_of(printed_in_terminal(Path(sys.argv[1]) / "walk"))[:-1])
    if sys.argv[2:] != ["--check"]:
        PICTURE.write_text(picture)
        return
    # The last digits of the numbers depend on the processor, and with them the colors.
    shape = lambda text: re.sub(r"#[0-9a-f]{6}|\d", "0", text)
    if shape(PICTURE.read_text()) != shape(picture):
        sys.exit("assets/walk.svg is not what the program prints: run docs/.vitepress/draw_walk.py BUILD")


if __name__ == "__main__":
    main()
