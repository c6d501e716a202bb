"""Files that the checks of several programs read."""

import array
import random
import struct

from running import ROOT, contents, output_of

# Options of a model that can be trained on a text in a second.
SMALL_TEXT = "--seq-len 16 --hidden-size 24 --num-attention-heads 4 --plots none".split()
SMALL = [*SMALL_TEXT, "--vocab-size", "32"]
WORDNET = ROOT / "assets/wordnet"


def write_llama2c_model(file):
    """A model of 420 tokens with random weights, for the tokenizers of the fixtures."""
    C, F, L, H, HKV, V, P = 16, 20, 2, 4, 2, 420, 64
    generator = random.Random(1)
    normal = lambda count, scale: array.array(
        "f", (generator.gauss(0, scale) for _ in range(count)))
    norms = lambda count: array.array("f", [1.0] * count)
    tensors = [normal(V * C, 1), norms(L * C), normal(L * C * C, 0.3),
               normal(L * C * C * HKV // H, 0.3), normal(L * C * C * HKV // H, 0.3),
               normal(L * C * C, 0.3), norms(L * C), normal(3 * L * C * F, 0.3), norms(C),
               norms(P * C // H)]
    file.write_bytes(struct.pack("<7i", C, F, L, H, HKV, V, P) +
                     b"".join(tensor.tobytes() for tensor in tensors))


def write_pages(folder):
    """All pages of the tutorial in one text of 1 MB."""
    file = folder / "pages"
    file.write_text("".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
    return file


def write_short_text(folder):
    """The first 20,000 characters of a text that no model was trained on."""
    file = folder / "short.txt"
    file.write_text((ROOT / "assets/data/king_james_held_out.txt").read_text()[:20000])
    return file


class Inputs:
    """The files and folders that invalid command lines name. An existing file must not change,
    and a folder that does not exist must not be made."""

    def __init__(self, program, folder):
        self.folder = folder
        self.trains = program.name in ("13_training", "train")
        write_llama2c_model(folder / "model.bin")
        count = lambda end: " ".join(map(str, range(end))).encode()
        texts = {"file": b"kept", "text": count(800)}
        if self.trains:
            texts |= {"empty": b"", "zeros": b"ab\0c", "bytes": b"abc\xff",
                      "numbers": count(800), "other": count(801)}
        for name, text in texts.items():
            (folder / name).write_bytes(text)
        words = {"words": b"And\nthe\n", "many_words": 17 * b"And\n", "no_text": b"And\xff"}
        for name, tokens in words.items():
            (folder / name).mkdir()
            (folder / name / "tokens.txt").write_bytes(tokens)
            (folder / name / "words.safetensors").write_text("short")
        self.names = {name: folder / name for name in (*texts, *words)} | {
            "folder": folder / "new", "model": folder / "model.bin",
            "tokenizer": ROOT / "tests/fixtures/10_tokenizer/gpt2/tokenizer.json",
            "wordnet": WORDNET, "questions": WORDNET / "questions.jsonl"}
        if self.trains:
            self.write_runs(program)

    def write_runs(self, program):
        for name in ("damaged", "no_files"):
            (self.folder / name).mkdir()
        (self.folder / "damaged/run.safetensors").write_text("short")
        self.names |= {name: self.folder / name for name in ("damaged", "no_files", "run")}
        self.names["small"] = " ".join(SMALL)
        output_of([program.parent / "train", "--text", self["numbers"], "--folder", self["run"],
                   "--steps", "2", *SMALL])

    def __getitem__(self, name):
        return self.names[name]

    def state(self):
        """What invalid command lines must leave as it is."""
        return (self["file"].read_text(), self["folder"].exists(),
                contents(self["run"]) if self.trains else {})
