"""./learn ask: sections with links, scores, measurements, and a model that answers."""

import re

import pytest

from running import ROOT, output_of, run

pytestmark = pytest.mark.programs("ask")
QUESTION = "Why are attention scores divided by the square root of D?"


def test_sections_have_links_to_headings_that_exist(program):
    shown = output_of([program, "--question", QUESTION, "--count", "4"])
    links = re.findall(r"^docs/(\S+)#(\S+)$", shown, re.M)
    assert len(links) == 4 and any(page == "05_gqa.md" for page, _ in links)
    assert all((ROOT / "docs" / page).is_file() for page, _ in links)


def test_scores_are_those_of_words_and_vectors(program):
    shown = output_of([program, "--question", QUESTION, "--scores", "--count", "5"])
    rows = re.findall(r"^ +(\d) +(\d+) +(\d+\.\d) +(\d+) +(-?\d\.\d\d)  (\S.*)$", shown, re.M)
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4, 5]
    # The better the score, the better the rank.
    for rank, score in ((1, 2), (3, 4)):
        pairs = sorted((int(row[rank]), -float(row[score])) for row in rows)
        assert len({place for place, _ in pairs}) == 5
        assert [score for _, score in pairs] == sorted(score for _, score in pairs)
    # Below the table: the sections' addresses, which the sections' own output has, and their first words.
    begins = re.findall(r"^docs/(\S+): (.+)$", shown, re.M)
    sections = output_of([program, "--question", QUESTION, "--count", "5"])
    assert [link for link, _ in begins] == re.findall(r"^docs/(\S+#\S+)$", sections, re.M)
    unwrapped = " ".join(sections.split())
    assert all(text.removesuffix(" ...") in unwrapped for _, text in begins)


def test_a_question_without_a_word_of_the_book_is_answered_by_vectors_and_says_so(program):
    shown = output_of([program, "--question", "zebra giraffe elephant", "--scores", "--count", "2"])
    assert "No word of the question is in the book: vectors alone have found these.\n" in shown
    assert re.findall(r"^ +(\d) +- +- +(\d+) +\d\.\d\d  \S", shown, re.M) == [("1", "1"), ("2", "2")]


def test_the_search_is_measured_by_words_vectors_and_both(program):
    shown = output_of([program, "--test", ROOT / "tests/fixtures/ask/questions.jsonl"])
    rows = dict(re.findall(r"^(words|vectors|joined - words|joined) .*?(-?\d+ \(.*)$", shown, re.M))
    shares = {name: [int(share) for share in re.findall(r"(-?\d+) \(", cells)]
              for name, cells in rows.items()}
    assert sorted(shares) == ["joined", "joined - words", "vectors", "words"]
    for name in ("joined", "vectors", "words"):
        first, three, ten = shares[name]
        assert 0 < first <= three <= ten <= 100
    for difference, joined, words in zip(*(shares[name] for name in ("joined - words", "joined", "words"))):
        assert abs(difference - (joined - words)) <= 1  # each is rounded


def test_a_model_answers_and_its_sections_are_named(program):
    shown = output_of([program, "--question", QUESTION, "--model", ROOT / "assets/king_james",
                       "--max-new-tokens", "5", "--count", "2"])
    answer, sections = shown.split("What the model was given", 1)
    assert len(re.findall(r"^docs/\S+#\S+$", sections, re.M)) == 2
    assert len(answer.split(QUESTION, 1)[1].split()) >= 2


def test_answers_are_measured_with_and_without_passages(program, tmp_path):
    facts = (ROOT / "tests/fixtures/ask/facts.jsonl").read_text().splitlines()[8:11]
    (tmp_path / "facts.jsonl").write_text("\n".join(facts))
    command = [program, "--model", ROOT / "assets/wordnet_calculator", "--max-new-tokens", "5",
               "--test", tmp_path / "facts.jsonl"]
    rows = dict(re.findall(r"^(none|found .*?) {2,}(\d+) {2,}\d+$", output_of(command), re.M))
    assert rows["none"] == "0"
    assert int(rows["found for the question"]) >= int(rows["found for another question"])
    assert int(rows["found for the question"]) > 0


def test_a_model_is_measured_only_with_questions_that_say_what_an_answer_contains(program):
    result = run([program, "--model", ROOT / "assets/king_james",
                  "--test", ROOT / "tests/fixtures/ask/questions.jsonl"])
    assert result.returncode == 2 and not result.stdout
    assert 'questions.jsonl: a question lacks "contains"' in result.stderr
