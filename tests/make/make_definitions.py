#!/usr/bin/python3
"""Writes assets/data/definitions.jsonl: definitions of WordNet 3.0 (Debian's package wordnet-base, license in assets/wordnet/LICENSE) with the
subject of the noun that they define, in a random order: data for ./learn fine_tune --method classifier."""

import json
import random
import re
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"
# WordNet's lexicographer files: noun.animal is file 5.
SUBJECTS = {"05": "animal", "06": "artifact", "13": "food", "18": "person", "20": "plant", "27": "substance"}
BAD_WORDS = set((ASSETS / "wordnet_answers/bad_words.txt").read_text().splitlines())  # their hashes


def fnv1a(word):
    value = 0xcbf29ce484222325
    for byte in word.encode():
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return f"{value:016x}"


def definitions():
    by_subject = {subject: set() for subject in SUBJECTS.values()}
    for line in Path("/usr/share/wordnet/data.noun").read_text().splitlines():
        if line.startswith("  "):
            continue  # the license
        fields, gloss = line.split(" | ", 1)
        text = re.split(r"; (?=\")", gloss.strip())[0].rstrip("; ")
        subject = SUBJECTS.get(fields.split()[1])
        is_plain = re.fullmatch(r"[a-z][A-Za-z ,;'-]{29,89}", text)
        if subject and is_plain and not BAD_WORDS & {fnv1a(word) for word in re.findall("[a-z]+", text.lower())}:
            by_subject[subject].add(text)
    return by_subject


if __name__ == "__main__":
    generator = random.Random(25)
    examples = [{"text": text, "label": subject} for subject, texts in definitions().items() for text in generator.sample(sorted(texts), 250)]
    generator.shuffle(examples)
    (ASSETS / "data/definitions.jsonl").write_text("".join(json.dumps(example) + "\n" for example in examples))
