"""The numbers in the sentences of a page, and where each comes from.

A number with a decimal point, or before " %", stands in a block or in a table of its section (##), too: blocks
are compared with what the programs print. For any other one, a comment after its paragraph names the source:

    <!-- number 0.13 1.26 from ./learn 4 --only 6 -->   the command prints both numbers
    <!-- number 10.107 = 7.389 + 2.718 -->              arithmetic, with Python's math functions
    <!-- number 0.0005 given: the default of --learning-rate -->

A semicolon separates several sources. So a sentence fails the check if its number is no longer printed."""

import math
import re
from decimal import Decimal

PRINTED = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
IN_PROSE = re.compile(r"(?<![\w.,])(?:\d[\d,]*\.\d+(?!\.?\d)(?: ?%)?|\d+ ?%)")
SOURCES = re.compile(r"^\s*<!-- number (.*) -->$")
LEFT_OUT = re.compile(r"`[^`]*`|\]\([^)\s]*\)|<!--.*?-->|<[^>]*>"  # code, targets of links, HTML
                      r"|\b[Ee]xercises? [M\d]+\.\d+(?:(?:, | and | or | to |, and )[M\d]+\.\d+)*"
                      r"|^### Exercise [M\d]+\.\d+"
                      r"|\b(?:[Ss]ections?|§|version|CMake|GCC|Clang|Emscripten|Python|PyTorch|transformers|Llama|Qwen|OLMo|Gemma|Phi|GLM"
                      r"|Mistral|Granite|Apache|v)[ -]?v?\d+\.\d+(?:\.\d+)*")


def decimal(text):
    return Decimal(text.replace(",", ""))


def is_rounded(shown, exact):
    """Is the number of a sentence a rounded form of the exact one? (58 % is one of 0.581, too.)"""
    number = decimal(shown.rstrip(" %"))
    half = Decimal(1).scaleb(number.as_tuple().exponent) / 2
    return any(abs(number - value) <= half * Decimal("1.0001") for value in ((exact, 100 * exact) if "%" in shown else (exact,)))


def is_printed(shown, text):
    return any(is_rounded(shown, decimal(number)) for number in PRINTED.findall(text))


def value(expression):
    names = {name: getattr(math, name) for name in ("sqrt", "exp", "log", "log2", "pi", "tanh", "cos", "sin")}
    return Decimal(repr(float(eval(expression.replace("^", "**"), {"__builtins__": {}}, names))))


def sections(text):
    """Of each section: what its blocks and tables show, and its paragraphs with the sources that are named after them."""
    found, fenced = [([], [])], False
    for number, line in enumerate(text.split("\n"), 1):
        shown, prose = found[-1]
        sources = SOURCES.match(line)
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("|"):
            shown.append(line)
        elif line.startswith("## "):
            found.append(([], []))
        elif sources and prose:
            prose[-1][2].extend(sources[1].split("; "))
        elif line.strip():
            prose.append((number, LEFT_OUT.sub(" ", line), []))
    return [("\n".join(shown), prose) for shown, prose in found]


def check_numbers(text, output_of):
    """Yields (line number, trouble). output_of(command) is what a command prints, or None if it is not run here."""
    for shown, line, prose, entries in ((shown, *paragraph) for shown, prose in sections(text) for paragraph in prose):
        numbers = IN_PROSE.findall(prose)
        missing = [number for number in numbers if not is_printed(number, shown)]
        for entry in entries:
            named, source = re.match(r"((?:[\d.,]+ ?)*)(.*)", entry).groups()
            if not re.match("= |from |given: .", source):
                yield line, f"a source is 'from COMMAND', '= EXPRESSION' or 'given: TEXT', not '{source}'"
            for name in named.split():
                here = [number for number in numbers if number.rstrip(" %") == name]
                if not here:
                    yield line, f"the paragraph has no number {name}, whose source is given: {entry}"
                missing = [number for number in missing if number not in here]
                output = output_of(source[5:]) if here and source.startswith("from ") else None
                if output is not None and not is_printed(here[0], output):
                    yield line, f"{source[5:]} does not print {name}"
                if here and source.startswith("= ") and not is_rounded(here[0], value(source[2:])):
                    yield line, f"{name} is not {source[2:]}, which is {value(source[2:]):.6g}"
        for number in missing:
            yield line, f"{number} stands in no block or table of its section, and its source is not named"
