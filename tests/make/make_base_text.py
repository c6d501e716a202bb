#!/usr/bin/env python3
"""Writes the training data of the base model of chapter 14: a text for pretraining, and questions with
answers for fine-tuning. A tool for maintainers, not part of the build. To run it:

    apt-get install wordnet-base
    python3 tests/make/make_base_text.py FOLDER

FOLDER/base.txt has documents, each after <|endoftext|>: definitions, facts and opposites of WordNet
3.0 (Princeton University; its license permits any use, and asks to keep its copyright notice:
/usr/share/doc/wordnet-base/copyright), arithmetic and spelling by rules, and conversations in ChatML in
which the assistant repeats a text. FOLDER/train.jsonl and
FOLDER/test.jsonl have one conversation per line, as Hugging Face's trainers read them:
{"task": ..., "messages": [{"role": "user", "content": ...}, {"role": "assistant", "content": ...}]}.
The answers are sentences as in base.txt; train_short.jsonl and test_short.jsonl have the same questions
with the shortest answers, train_turns.jsonl and test_turns.jsonl conversations of two to four questions.
train_chat.jsonl and test_chat.jsonl are what the shipped adapter learns: greetings, questions in other words,
questions that refer to the one before, and questions to which it says that it does not know.
train_calculator.jsonl and test_calculator.jsonl are similar, but sums and the like are answered with calls of a
calculator; an answer with "weight": 0 is not trained (as in OpenAI's fine-tuning files).
Questions of test.jsonl are not in train.jsonl. Sums and differences of two numbers that are in test.jsonl
are neither in train.jsonl nor in base.txt nor in train_chat.jsonl, in any order. Texts with a word of
assets/wordnet_answers/bad_words.txt are left out everywhere.
"""
import functools
import hashlib
import json
import random
import re
import sys
from collections import defaultdict
from pathlib import Path

WORDNET = Path("/usr/share/wordnet")
POINTERS = {"@": "hypernym", "@i": "instance", "!": "antonym"}
BAD_WORDS = set((Path(__file__).resolve().parents[2] / "assets/wordnet_answers/bad_words.txt").read_text().split("\n"))
rng = random.Random(77)


@functools.cache
def fnv1a(word):
    """The FNV-1a hash of a word, 64 bits."""
    value = 0xcbf29ce484222325
    for byte in word.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def is_decent(text):
    """Whether no word of a text, nor a word without its plural s, is on the list."""
    words = re.findall(r"[a-z]+", text.lower())
    forms = {form for word in words for form in (word, word.removesuffix("s"), word.removesuffix("es"))}
    return all(f"{fnv1a(form):016x}" not in BAD_WORDS for form in forms)


def is_held_out(question):
    """A tenth of all questions, by a hash. Questions about the same two numbers are held out together."""
    numbers = re.findall(r"\d+", question)
    if len(numbers) == 2:
        first, second = map(int, numbers)
        question = f"{sorted([first - second, second] if '-' in question else [first, second])}"
    return int(hashlib.sha256(question.encode()).hexdigest(), 16) % 10 == 0


def read_wordnet():
    """All synsets: words, gloss, examples and pointers, by (part of speech, offset); and the most
    frequent sense of each (word, part of speech), which is the first one in the index."""
    synsets, first_senses = {}, {}
    for name in ("noun", "verb", "adj", "adv"):
        for line in (WORDNET / f"data.{name}").read_text().splitlines():
            if line.startswith("  "):
                continue  # the license
            fields, gloss = line.split(" | ", 1)
            fields = fields.split()
            count = int(fields[3], 16)
            words = [re.sub(r"\(.*\)", "", word).replace("_", " ") for word in fields[4:4 + 2 * count:2]]
            at = 4 + 2 * count
            pointers = [fields[i:i + 4] for i in range(at + 1, at + 1 + 4 * int(fields[at]), 4)]
            definition, *examples = re.split(r"; (?=\")", gloss.strip())
            synsets[fields[2].replace("s", "a"), fields[0]] = {
                "kind": fields[2].replace("s", "a"), "words": words, "definition": definition.rstrip("; "),
                "examples": [match for text in examples for match in re.findall(r'^"([^"]+)"', text)],
                "pointers": [(POINTERS[kind], (part.replace("s", "a"), offset), where)
                             for kind, offset, part, where in pointers if kind in POINTERS]}
        for line in (WORDNET / f"index.{name}").read_text().splitlines():
            if not line.startswith("  "):
                word, kind, num_synsets, *rest = line.split()
                first_senses[word.replace("_", " "), kind] = synsets[kind, rest[-int(num_synsets)]]
    return synsets, first_senses


def frequent_words():
    """How often a word, and a word as a part of speech, occurs in the texts that WordNet's authors tagged."""
    counts = defaultdict(int)
    for line in (WORDNET / "cntlist.rev").read_text().splitlines():
        key, _, count = line.split()
        word, sense = key.split("%")
        counts[word.replace("_", " ")] += int(count)
        counts[word.replace("_", " "), " nvara"[int(sense[0])]] += int(count)
    return counts


def with_article(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


def capitalized(text):
    return text[0].upper() + text[1:]


def is_plain(text):
    return re.fullmatch(r"[A-Za-z0-9 ,;:'().\"/-]+", text) is not None


def definitions(synsets, first_senses, counts):
    """A document and a question for the most frequent sense of each word that the tagged texts have."""
    documents, questions = [], []
    for (key, kind), synset in first_senses.items():
        word = next(word for word in synset["words"] if word.lower() == key)
        if counts[key, kind] < 3 or not is_plain(word + synset["definition"]):
            continue
        text = f"{word}: {synset['definition']}."
        parents = [synsets[target]["words"][0] for kind, target, _ in synset["pointers"] if kind == "hypernym"]
        if synset["kind"] == "n" and parents and word.islower():
            text += f" {capitalized(with_article(word))} is a kind of {parents[0]}."
            if counts[word, "n"] >= 3 and " " not in word:
                questions.append(("kind", f"What is {with_article(word)}?",
                                  f"{capitalized(with_article(word))} is a kind of {parents[0]}.",
                                  f"{capitalized(parents[0])}."))
        others = [other for other in synset["words"] if other != word and is_plain(other)]
        if others:
            text += f" Also: {', '.join(others)}."
        if synset["examples"] and is_plain(synset["examples"][0]):
            text += f" {capitalized(synset['examples'][0])}."
        documents.append(text)
    return documents, questions


def capitals(synsets):
    documents, questions, seen = [], [], set()
    for synset in synsets.values():
        match = re.match(r"(?:the )?capital (?:and largest city )?of (?:the )?((?:[A-Z][\w-]+ ?)+)", synset["definition"])
        place = match and match[1].strip()
        if not place or place in seen or not is_plain(place + synset["words"][0]):
            continue
        seen.add(place)
        city = synset["words"][0]
        documents += 4 * [f"The capital of {place} is {city}.", f"{city} is the capital of {place}.",
                          f"{city}: the capital of {place}. The capital of {place} is {city}."]
        questions.append(("capital", f"What is the capital of {place}?", f"The capital of {place} is {city}.", f"{city}."))
    return documents, questions


def opposites(synsets, counts):
    documents, questions, seen = [], [], set()
    for synset in synsets.values():
        for kind, target, where in synset["pointers"]:
            if kind != "antonym":
                continue
            word, other = synset["words"][int(where[:2], 16) - 1], synsets[target]["words"][int(where[2:], 16) - 1]
            if word in seen or min(counts[word], counts[other]) < 5 or not is_plain(word + other):
                continue
            seen.add(word)
            documents += 2 * [f"The opposite of {word} is {other}.", f"{word} and {other} are opposites."]
            questions.append(("opposite", f"What is the opposite of {word}?", f"The opposite of {word} is {other}.",
                              f"{capitalized(other)}."))
    return documents, questions


def arithmetic():
    """Sums and differences of numbers below 100, and comparisons."""
    lines, questions = [], []
    for a in range(100):
        for b in range(100):
            sum_of, difference = f"What is {a} + {b}?", f"What is {a + b} - {b}?"
            questions += [("sum", sum_of, f"{a} + {b} = {a + b}", f"{a + b}"),
                          ("difference", difference, f"{a + b} - {b} = {a}", f"{a}")]
            if not is_held_out(sum_of):
                lines += [f"{a} + {b} = {a + b}", f"{a + b} - {b} = {a}"] * 8
            if a != b and rng.random() < 0.3:
                questions.append(("larger", f"Which is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}",
                                  f"{max(a, b)}"))
                if not is_held_out(sum_of):
                    lines += [f"{max(a, b)} is larger than {min(a, b)}"] * 5
    rng.shuffle(lines)
    return ["\n".join(lines[i:i + 6]) for i in range(0, len(lines), 6)], questions


def spelling(counts):
    """The letters of words, forward and backward, and their number."""
    documents, questions = [], []
    for word in sorted(word for word in counts if isinstance(word, str)):
        if not re.fullmatch(r"[a-z]{3,8}", word) or counts[word] < 3:
            continue
        letters, reverse = "-".join(word), "-".join(reversed(word))
        spelled = f"{word} is spelled {letters} and has {len(word)} letters."
        documents.append(f"{spelled} Backward: {reverse}.")
        questions += [("spell", f"Spell {word}.", f"{word} is spelled {letters}.", letters),
                      ("letters", f"How many letters does {word} have?", spelled, f"{len(word)}"),
                      ("backward", f"Spell {word} backward.", f"{spelled} Backward: {reverse}.", reverse)]
    return documents, questions


def repetitions(documents, count):
    """Conversations in which the assistant repeats a short text, so that the embeddings of the chat tokens
    are trained: LoRA keeps them as they are. No question of train.jsonl or test.jsonl is like these."""
    short = sorted({part for document in documents for part in re.split(r"[:.\n] ?", document) if 2 < len(part) < 30})
    return ["<|im_start|>user\nRepeat: {0}<|im_end|>\n<|im_start|>assistant\n{0}<|im_end|>".format(text)
            for text in rng.sample(short, count)]


def write_turns(file, questions):
    """The same questions as conversations of two to four; each belongs to the task of the last one."""
    remaining = list(questions)
    with open(file, "w") as stream:
        while len(remaining) >= 4:
            turns = [remaining.pop() for _ in range(rng.randint(2, 4))]
            messages = [message for _, question, answer, _ in turns
                        for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})]
            stream.write(json.dumps({"task": turns[-1][0], "messages": messages}) + "\n")


GREETINGS = {
    "Hello. Ask me for a sum, a difference or the letters of a word.":
        ["Hello", "Hi", "Hey", "Hello there", "Hi there", "Good morning", "Good evening", "Good afternoon", "Hello friend",
         "Greetings", "Hi model", "Hello model", "Good day", "Hey there", "How are you", "Hello, how are you", "Hi, how are you",
         "How do you do", "What is up", "What's up"],
    "I am a small language model of this tutorial. I can add, subtract, compare numbers and spell words.":
        ["Who are you", "What are you", "What can you do", "What is your name", "What's your name", "Help", "Help me", "Can you help me",
         "What do you know", "Tell me about yourself", "Are you a human", "Are you a robot", "Are you a model", "Who made you",
         "Introduce yourself", "What can I ask", "What can I ask you", "What should I ask", "How do you work", "Are you ChatGPT"],
    "You are welcome.": ["Thanks", "Thank you", "Thank you very much", "Thanks a lot", "Many thanks", "Great", "Good", "Very good", "Nice",
                         "Well done", "Correct", "Right", "Great, thanks", "Wonderful", "Perfect", "OK", "Okay"],
    "Goodbye.": ["Bye", "Goodbye", "See you", "Good night", "Bye bye", "See you later", "I have to go", "Farewell", "Thanks, bye",
                 "Thank you, goodbye", "Thanks anyway, bye", "OK, bye", "That is all", "That is all, thanks", "Thanks, see you"],
    "I am sorry. I make mistakes.": ["You are stupid", "You are wrong", "That is wrong", "That's wrong", "This is wrong", "Wrong", "You are bad",
                                     "That was bad", "You are really stupid", "That is not right", "No", "No, that is wrong", "Are you sure",
                                     "I do not believe you", "You made a mistake", "Nonsense"],
}
UNKNOWN = "I do not know that. I can add, subtract, compare numbers and spell words."


def greetings():
    """What people say first, with and without signs and capitals."""
    texts = []
    for answer, openings in GREETINGS.items():
        for text in openings:
            variants = {text + end for end in ("", "!", ".", "?")} | {text.lower() + end for end in ("", "!", ".", "?")}
            texts += [(variant, answer) for variant in sorted(variants)]
    return texts


def unknown_questions(counts, places):
    """Questions about words and places of WordNet, of every kind that the model has not learned to answer."""
    nouns = sorted(word for word in counts if isinstance(word, str) and re.fullmatch(r"[a-z]{3,12}", word) and counts.get((word, "n"), 0) >= 2)
    adjectives = sorted(word for word in counts if isinstance(word, str) and re.fullmatch(r"[a-z]{3,12}", word) and counts.get((word, "a"), 0) >= 3)
    verbs = sorted(word for word in counts if isinstance(word, str) and re.fullmatch(r"[a-z]{3,12}", word) and counts.get((word, "v"), 0) >= 3)
    templates = [
        "What is a {noun}?", "What is {noun}?", "what is {noun}", "What does {noun} mean?", "What is the capital of {place}?",
        "What is the opposite of {adjective}?", "Where is {place}?", "Who was the king of {place}?", "Who wrote the {noun}?",
        "Who invented the {noun}?", "Why is the {noun} {adjective}?", "Why do we {verb}?", "When was the {noun} made?", "How do I {verb}?",
        "How do I {verb} a {noun}?", "Can you {verb}?", "Do you like {noun}?", "Do you {verb}?", "Tell me about {place}.",
        "Tell me about the {noun}.", "Tell me a joke.", "Tell me a story.", "Write a poem about {noun}.", "Write a story about a {noun}.",
        "{noun}", "{adjective} {noun}", "I like {noun}.", "I {verb} the {noun}.", "The {noun} is {adjective}.", "Which {noun} is {adjective}?",
        "What did I ask first?", "What time is it?", "What day is it?", "How old are you?", "How is the weather?", "Translate {noun} into French.",
        "Multiply {a} by {b}.", "What is {a} * {b}?", "What is {a} times {b}?", "What is {a} / {b}?", "Is {a} prime?", "Count to {a}.",
        "Sing a song.", "Explain {noun}.", "Define {noun}.", "What color is the {noun}?", "How many people live in {place}?",
        "Is a {noun} {adjective}?", "Give me a {noun}.", "Where do you live?", "Do you have a {noun}?", "Say {noun}.", "Repeat {noun}.",
    ]
    questions = {}
    while len(questions) < 9000:
        text = rng.choice(templates).format(noun=rng.choice(nouns), adjective=rng.choice(adjectives), verb=rng.choice(verbs),
                                            place=rng.choice(places), a=rng.randint(2, 99), b=rng.randint(2, 99))
        questions[text if rng.random() < 0.7 else text.lower().rstrip("?.")] = None
    return list(questions)


SUMS = ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "What is {a}+{b}?", "what is {a} + {b}", "What's {a} + {b}?", "{a} + {b} = ?", "{a} + {b} =",
        "What's {a} plus {b}?", "What is {a} plus {b}?", "{a} plus {b}", "Add {a} and {b}.", "add {a} and {b}", "How much is {a} + {b}?",
        "how much is {a} plus {b}", "Calculate {a} + {b}.", "{a}+{b}=", "{a}+{b}=?", "what is {a}+{b}", "Please add {a} and {b}.",
        "What is the sum of {a} and {b}?", "Can you add {a} and {b}?", "can you add {a} and {b}", "How much is {a} and {b}?", "What do {a} and {b} make?",
        "Tell me {a} + {b}.", "I have {a} {things} and get {b} more. How many {things} do I have?", "There are {a} {things} and {b} {things}. How many are there?"]
THINGS = ["apples", "books", "coins", "cards", "birds", "trees", "letters", "eggs", "stones", "cups"]
DIFFERENCES = ["What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "What is {a}-{b}?", "what is {a} - {b}", "What's {a} - {b}?", "{a} - {b} = ?",
               "What's {a} minus {b}?", "What is {a} minus {b}?", "{a} minus {b}", "Subtract {b} from {a}.", "subtract {b} from {a}",
               "How much is {a} - {b}?", "how much is {a} minus {b}", "Calculate {a} - {b}.", "{a}-{b}=", "what is {a}-{b}",
               "Take {b} away from {a}.", "What is {a} take away {b}?", "{a} take away {b}", "{a} less {b}", "Can you subtract {b} from {a}?", "Tell me {a} - {b}.",
               "What is the difference of {a} and {b}?", "I have {a} {things} and give away {b}. How many {things} are left?"]
THREE = ["What is {} + {} + {}?", "{} + {} + {}", "{}+{}+{}", "Add {}, {} and {}.", "what is {} + {} + {}", "add {}, {} and {}", "{} plus {} plus {}",
         "What is the sum of {}, {} and {}?", "Can you add {}, {} and {}?"]
MORE = ["And {} more?", "and {} more", "Plus {}?", "plus {}", "And plus {}?", "Add {}.", "Now add {}.", "And if you add {}?", "And if I add {}?", "And {} on top?"]
LESS = ["Minus {}?", "minus {}", "And minus {}?", "Subtract {}.", "And {} less?", "Take away {}.", "And if you take away {}?", "And if you take away {} from that?",
        "And if I subtract {}?", "now minus {}"]
LARGER = ["Which is larger, {a} or {b}?", "What is larger, {a} or {b}?", "Which is bigger, {a} or {b}?", "Which number is larger, {a} or {b}?",
          "{a} or {b}, which is larger?", "which is larger, {a} or {b}", "Is {a} larger than {b}?", "Is {a} or {b} larger?", "Compare {a} and {b}.",
          "which is bigger, {a} or {b}"]
SMALLER = ["Which is smaller, {a} or {b}?", "which is smaller, {a} or {b}", "{a} or {b}, which is smaller?", "Is {a} or {b} smaller?"]
SPELL = ["Spell {word}.", "spell {word}", "How do you spell {word}?", "How is {word} spelled?", "Please spell {word}.", "What are the letters of {word}?",
         "Can you spell {word}?", "can you spell {word}", "Can you spell the word {word}?", "Spell the word {word}.", "how do you spell {word}",
         "How would you spell {word}?", "Please spell the word {word}.", "spelling of {word}"]
LETTERS = ["How many letters does {word} have?", "how many letters does {word} have", "How many letters are in {word}?", "Count the letters of {word}.",
           "How many letters are in the word {word}?", "how many letters are in {word}", "Count the letters in {word}.", "How long is the word {word}?"]
BACKWARD = ["Spell {word} backward.", "spell {word} backward", "Spell {word} backwards.", "What is {word} backward?", "Write {word} backward.",
            "{word} backward", "{word} backwards", "Write the word {word} backward.", "Write the word {word} backwards", "write {word} backwards",
            "What is {word} backwards?", "Can you spell {word} backward?", "Spell the word {word} backward.", "Reverse {word}.", "Reverse the word {word}."]
BEYOND = "Such numbers are beyond me. I add and subtract numbers below 100."


def pair_is_held_out(a, b):
    return is_held_out(f"What is {a} + {b}?")


def chats(counts, places, held_out, longest=8):
    """Conversations of one to four questions, as (task, question, answer), all of one side of the split. A
    follow-up question can only be understood with the one before it."""
    words = [word for word in sorted(word for word in counts if isinstance(word, str))
             if re.fullmatch(rf"[a-z]{{3,{longest}}}", word) and counts[word] >= 3 and is_held_out(f"Spell {word}.") == held_out]
    welcome = [pair for pair in greetings() if is_held_out(pair[0]) == held_out]
    unknown = [text for text in unknown_questions(counts, places) if is_held_out(text) == held_out]

    def pair(largest=99):
        while True:
            a, b = rng.randint(0, largest), rng.randint(0, 99)
            if pair_is_held_out(a, b) == held_out:
                return a, b

    def said(word):
        return f"{word} is spelled {'-'.join(word)} and has {len(word)} letters."

    def backward(word):
        return f"{said(word)} Backward: {'-'.join(reversed(word))}."

    def sums():
        a, b = pair()
        yield "sum", rng.choice(SUMS).format(a=a, b=b, things=rng.choice(THINGS)), f"{a} + {b} = {a + b}"
        total = a + b
        while rng.random() < 0.5:
            more = rng.randint(1, 20)
            if total + more < 100 and pair_is_held_out(total, more) == held_out:
                yield "follow-up", rng.choice(MORE).format(more), f"{total} + {more} = {total + more}"
                total += more
            elif more <= total < 199 and pair_is_held_out(total - more, more) == held_out and total - more < 100:
                yield "follow-up", rng.choice(LESS).format(more), f"{total} - {more} = {total - more}"
                total -= more
            else:
                break

    def differences():
        a, b = pair()
        yield "difference", rng.choice(DIFFERENCES).format(a=a + b, b=b, things=rng.choice(THINGS)), f"{a + b} - {b} = {a}"

    def three():
        while True:
            (a, b), c = pair(), rng.randint(0, 99)
            if a + b < 100 and pair_is_held_out(a + b, c) == held_out:
                yield "three", rng.choice(THREE).format(a, b, c), f"{a} + {b} = {a + b}, {a + b} + {c} = {a + b + c}"
                return

    def larger():
        a, b = pair()
        if a == b:
            return
        smaller = f"{min(a, b)} is smaller than {max(a, b)}"
        if rng.random() < 0.25:
            yield "larger", rng.choice(SMALLER).format(a=a, b=b), smaller
            return
        yield "larger", rng.choice(LARGER).format(a=a, b=b), f"{max(a, b)} is larger than {min(a, b)}"
        if rng.random() < 0.25:
            yield "follow-up", rng.choice(["And which is smaller?", "And which one is smaller?", "and the smaller one", "Which is smaller?"]), smaller

    def beyond():
        """Numbers of three digits, and results below 0."""
        while True:
            if rng.random() < 0.6:
                a, b = rng.sample([rng.randint(200, 999), rng.choice([rng.randint(1, 99), rng.randint(100, 999), rng.randint(1000, 9999)])], 2)
                question = rng.choice(SUMS + DIFFERENCES).format(a=a, b=b, things=rng.choice(THINGS))
            else:
                a, b = sorted(rng.sample(range(100), 2))
                question = rng.choice(DIFFERENCES).format(a=a, b=b, things=rng.choice(THINGS))
            if is_held_out(question) == held_out:
                yield "beyond", question, BEYOND
                return

    def spelling_of(word):
        kind = rng.randrange(3)
        reverse = BACKWARD + (["How do you spell {word} backwards?", "How do you spell {word} backward?"] if longest > 8 else [])
        texts, answer = [(SPELL, f"{word} is spelled {'-'.join(word)}."), (LETTERS, said(word)), (reverse, backward(word))][kind]
        yield ["spell", "letters", "backward"][kind], rng.choice(texts).format(word=word), answer
        if rng.random() < 0.5:
            if kind != 2 and rng.random() < 0.6:
                yield "follow-up", rng.choice(["And backward?", "and backward", "and backward?", "Backward?", "Now backward.", "And backwards?",
                                               "and backwards", "Can you write it backward?"]), backward(word)
            elif kind != 1:
                yield "follow-up", rng.choice(["How many letters?", "How many letters does it have?", "And how many letters?"]), said(word)

    def welcomes():
        yield "greeting", *rng.choice(welcome)

    def unknowns():
        yield "unknown", rng.choice(unknown), UNKNOWN

    kinds = [(6, sums), (3, differences), (1.5, three), (2.5, larger), (7, lambda: spelling_of(rng.choice(words))), (1.4, welcomes), (3, unknowns),
             (1.5, beyond)]
    weights, makers = zip(*kinds)
    result = []
    for _ in range(3000 if held_out else 40000):
        turns = []
        wanted = rng.choice([1, 1, 2, 3])
        while len(turns) < wanted:
            turns += list(rng.choices(makers, weights)[0]())
        if all(is_decent(question + " " + answer) for _, question, answer in turns):
            result.append(turns[:4])
    return result


PRODUCTS = ["What is {a} * {b}?", "{a} * {b}", "{a}*{b}", "what is {a} * {b}", "What is {a} times {b}?", "what's {a} times {b}", "{a} times {b}",
            "Multiply {a} by {b}.", "multiply {a} and {b}", "How much is {a} * {b}?", "{a} x {b}", "{a} * {b} = ?", "Can you multiply {a} by {b}?"]
QUOTIENTS = ["What is {a} / {b}?", "{a} / {b}", "{a}/{b}", "what is {a} / {b}", "What is {a} divided by {b}?", "what's {a} divided by {b}",
             "{a} divided by {b}", "Divide {a} by {b}.", "divide {a} by {b}", "How much is {a} / {b}?", "{a} / {b} = ?", "Can you divide {a} by {b}?"]
WORD_PROBLEMS = {
    "sum": ["{a} {things} plus {b} {things}", "{a} {things} and {b} {things}, how many are that?", "I have {a} {things} and find {b} more. How many?",
            "There are {a} {things}. {b} more come. How many are there now?", "She had {a} {things} and bought {b} more. How many does she have?",
            "if I have {a} {things} and get {b} more, how many do I have"],
    "difference": ["{a} {things} minus {b} {things}", "I have {a} {things} and lose {b}. How many are left?", "There were {a} {things}. {b} are gone. How many are left?",
                   "He had {a} {things} and ate {b}. How many does he have?", "I have {a} {things} and eat {b}. How many are left?",
                   "There are {a} {things}, and {b} fall down. How many are left?", "if I have {a} {things} and give away {b}, how many are left"],
    "product": ["{a} boxes with {b} {things} each: how many {things}?", "There are {a} bags with {b} {things} each. How many {things} are there?",
                "{a} {things} a day, for {b} days. How many {things}?", "I buy {a} boxes of {b} {things}. How many {things} do I have?"],
    "quotient": ["Share {a} {things} among {b} children. How many does each get?", "{a} {things} for {b} people. How many does each get?",
                 "I divide {a} {things} equally among {b} friends. How many does each get?", "{a} {things} in {b} equal boxes: how many in each?"]}
EXPRESSIONS = ["({a} + {b}) * {c}", "({a} - {b}) * {c}", "{a} + {b} * {c}", "{a} * {b} - {c}", "({a} + {b}) / {c}", "{a} * ({b} + {c})", "({a}+{b})*{c}", "{a}+{b}*{c}"]
ASKED = ["{}", "{}", "What is {}?", "what is {}", "{} = ?", "Calculate {}.", "How much is {}?"]
TWICE = [("* 2", ["and twice that?", "Twice that?", "Double that.", "and double?"]), ("/ 2", ["And half of that?", "Half of that?", "half of it"])]
NUMBER_WORDS = "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand".split()
TIMES = ["Times {}?", "times {}", "And times {}?", "Multiply that by {}.", "and if you multiply that by {}", "Now times {}."]
QUESTIONS = {"sum": SUMS, "difference": DIFFERENCES, "product": PRODUCTS, "quotient": QUOTIENTS}


def number(most=4):
    """A number of one to `most` digits, every sixth one a round one."""
    digits = rng.choices(range(1, most + 1), [3, 4, 4, 4, 2][:most])[0]
    value = rng.randrange(10 ** (digits - 1), 10 ** digits)
    return round(value, 1 - digits) if digits > 1 and rng.random() < 0.17 else value


def calculation(held_out):
    """A question of one of these kinds, and its follow-up questions: the task, the question, and what the
    calculator is to be asked."""
    while True:
        task = rng.choice(list(QUESTIONS))
        a, b = number(5 if task in ("sum", "difference") else 4), number(3 if task in ("product", "quotient") else 5)
        is_story = rng.random() < 0.3
        question = rng.choice((WORD_PROBLEMS if is_story else QUESTIONS)[task])
        if is_story:
            a, b = a % 1000 + 1, b % (1000 if task in ("sum", "difference") else 30) + 2
        if ("{things}" in question and task == "difference" and a < b
                or task == "quotient" and not is_story and rng.random() < 0.7 and a * b > 9999):
            continue
        if task == "quotient" and (is_story or rng.random() < 0.7):
            a *= b  # divides evenly
        if pair_is_held_out(a, b) == held_out:
            break
    expression = f"{a} {dict(zip(QUESTIONS, '+-*/'))[task]} {b}"
    yield task, question.format(a=a, b=b, things=rng.choice(THINGS)), expression
    while rng.random() < 0.35 and len(value := calculated(expression)) < 7:
        texts, sign = rng.choice([(MORE, "+"), (LESS, "-"), (TIMES, "*")])
        b = number(3)
        if not pair_is_held_out(value, b) == held_out:
            return
        if rng.random() < 0.2:
            (step, texts), b = rng.choice(TWICE), ""
        else:
            step = f"{sign} {b}"
        expression = f"{value} {step}"
        yield "follow-up", rng.choice(texts).format(b), expression


def small_calculation(held_out):
    """What people ask first: 2 + 2, 3 * 3. Twice the same number is never held out."""
    while True:
        a = rng.randint(1, 12)
        b = a if rng.random() < 0.4 else rng.randint(1, 12)
        task = rng.choice(["sum", "sum", "difference", "product"])
        if held_out == (a != b and pair_is_held_out(a, b)):
            question = rng.choice([text for text in QUESTIONS[task] if "{things}" not in text])
            yield task, question.format(a=a, b=b), f"{a} {dict(zip(QUESTIONS, '+-*/'))[task]} {b}"
            return


def expression_of_three(held_out):
    """An expression with three numbers, which the calculator is to be asked as it stands."""
    while True:
        a, b, c = number(3), number(2), rng.randint(2, 20)
        text = rng.choice(EXPRESSIONS).format(a=a, b=b, c=c)
        if is_held_out(text) == held_out:
            yield "expression", rng.choice(ASKED).format(text), text
            return


def comparison(held_out):
    """Numbers of any length: which is larger needs no calculator."""
    while True:
        a, b = number(), number()
        if a != b and pair_is_held_out(a, b) == held_out:
            yield "larger", rng.choice(LARGER).format(a=a, b=b), "", f"{max(a, b)} is larger than {min(a, b)}"
            return


def in_words(held_out):
    """Numbers as words, which the model says that it does not know."""
    while True:
        text = f"{rng.choice(NUMBER_WORDS)} {rng.choice(['plus', 'minus', 'times', 'and'])} {rng.choice(NUMBER_WORDS)}"
        if is_held_out(text) == held_out:
            yield "unknown", rng.choice(["{}", "What is {}?", "what is {}"]).format(text), "", UNKNOWN
            return


def conversation_with_calculations(held_out):
    """One to three questions, each complete: a new one after an answer is no follow-up."""
    turns = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        turns += list(rng.choices([calculation, small_calculation, expression_of_three, comparison, in_words], [10, 3, 1, 2, 0.5])[0](held_out))
    return turns[:4]


def calculated(expression):
    return f"{eval(expression):.12g}"  # of digits and signs that stand above


def with_calculator(turns, held_out):
    """A conversation of train_chat.jsonl as (task, question, expression, answer): what is calculated in it
    becomes an expression, and what was beyond the model can be answered."""
    result = []
    for task, question, answer, *rest in turns:
        if rest:
            result.append((task, question, answer, *rest))
            continue
        if task == "beyond":
            return result + with_calculator(list(calculation(held_out)), held_out)
        expression = answer if task in QUESTIONS and "=" not in answer else ""
        if task == "expression":
            expression = answer
        if task == "three" or "=" in answer:
            first, *rest = [part.split(" = ")[0] for part in answer.split(", ")]
            expression = " ".join([first] + [part.split(" ", 1)[1] for part in rest])
        if task == "follow-up" and not re.search("[a-z=]", answer):
            expression = answer
        if not expression and re.search("Multiply|[*/]| times ", question, re.I):
            return result  # these are no longer unknown
        result.append((task, question, expression, f"{expression} = {calculated(expression)}" if expression else answer))
    return result


def write_calculator_chats(file, conversations, held_out):
    """The last question of a conversation is answered with the calculator, if it is one for it. Earlier ones
    have answers without a call, which are not trained (weight 0): a chat forgets calls when they are answered.
    Of a held-out calculation, the call is one question, and the answer from its result another."""
    with open(file, "w") as stream:
        def write(task, messages):
            stream.write(json.dumps({"task": task, "messages": messages}) + "\n")

        for turns in conversations:
            turns = with_calculator(turns, held_out)[:4]
            if not turns:
                continue
            messages = []
            for _, question, expression, answer in turns[-3:-1]:
                messages += [{"role": "user", "content": question},
                             {"role": "assistant", "content": answer} | ({"weight": 0} if expression else {})]
            task, question, expression, answer = turns[-1]
            if expression and not held_out and rng.random() < 0.6:
                continue  # calls are learned sooner than spelling
            messages.append({"role": "user", "content": question})
            if expression:
                call = json.dumps({"name": "calculator", "arguments": {"expression": expression}})
                messages.append({"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"})
                if held_out:
                    write(task, messages)
                    task = "result"
                messages.append({"role": "user", "content": f"<tool_response>\n{calculated(expression)}\n</tool_response>"})
            write(task, messages + [{"role": "assistant", "content": answer}])


def write_chats(file, conversations):
    with open(file, "w") as stream:
        for turns in conversations:
            messages = [message for _, question, answer in turns
                        for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})]
            stream.write(json.dumps({"task": turns[-1][0], "messages": messages}) + "\n")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    synsets, first_senses = read_wordnet()
    counts = frequent_words()
    parts = [definitions(synsets, first_senses, counts), capitals(synsets), opposites(synsets, counts), arithmetic(), spelling(counts)]
    documents = [document for part, _ in parts for document in part if is_decent(document)]
    documents += repetitions(documents, 3000)
    rng.shuffle(documents)
    (folder / "base.txt").write_text("".join(f"<|endoftext|>{document}\n" for document in documents))

    questions = [question for _, part in parts for question in part if is_decent(" ".join(question))]
    rng.shuffle(questions)
    for name, held_out, is_short in (("train", False, False), ("test", True, False),
                                     ("train_short", False, True), ("test_short", True, True)):
        with open(folder / f"{name}.jsonl", "w") as file:
            for task, question, answer, short in questions:
                if is_held_out(question) == held_out:
                    content = short if is_short else answer
                    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": content}]
                    file.write(json.dumps({"task": task, "messages": messages}) + "\n")
    for name, held_out in (("train_turns", False), ("test_turns", True)):
        write_turns(folder / f"{name}.jsonl", [question for question in questions if is_held_out(question[1]) == held_out])
    places = sorted({match[1] for _, question, *_ in parts[1][1] if (match := re.search(r"capital of (.*)\?", question))})
    for name, held_out in (("train_chat", False), ("test_chat", True)):
        write_chats(folder / f"{name}.jsonl", chats(counts, places, held_out))
    for name, held_out in (("train_calculator", False), ("test_calculator", True)):
        conversations = [turns if rng.random() < 0.55 else conversation_with_calculations(held_out)
                         for turns in chats(counts, places, held_out, longest=10)]
        write_calculator_chats(folder / f"{name}.jsonl", conversations, held_out)
    tasks = [question[0] for question in questions]
    print({task: tasks.count(task) for task in sorted(set(tasks))})


if __name__ == "__main__":
    main()
