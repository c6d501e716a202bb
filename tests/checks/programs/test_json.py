"""--json, with the seed of the run without options, prints the same steps, tensors, values,
tables, text and figures as lines of JSON."""

import array
import json
import re
from types import SimpleNamespace

import pytest

from running import CHAPTERS, numbers_of, run, titles_of_steps

pytestmark = pytest.mark.programs(*CHAPTERS)


@pytest.fixture(scope="module")
def json_run(default_run):
    result = run([*default_run.command, "--json", "--seed", "77"])
    events = [json.loads(line) for line in result.stdout.splitlines()]
    of_type = lambda *types: [event for event in events if event["type"] in types]
    return SimpleNamespace(result=result, events=events, of_type=of_type)


def test_it_ends_well(json_run):
    assert json_run.result.returncode == 0 and not json_run.result.stderr and json_run.events


def test_it_has_the_same_steps(json_run, default_run):
    titles = [event["title"] for event in json_run.of_type("step")]
    assert titles == titles_of_steps(default_run.text)


def test_it_has_the_same_tensors(json_run, default_run):
    shown = {event["name"]: event for event in json_run.of_type("tensor")}
    assert set(shown) == {file.stem for file in default_run.tensors.iterdir()}
    for name, event in shown.items():
        shape, saved = numbers_of(default_run.tensors / f"{name}.npy")
        number = float if saved.typecode == "f" else int
        values = array.array(saved.typecode, map(number, event.get("values", [])))
        assert event["shape"] == shape, name
        # As text, because NaN has no sign.
        assert "values" not in event or [*map(repr, values)] == [*map(repr, saved)], name


def test_its_texts_values_and_tables_stand_in_the_text(json_run, default_run):
    words = set(default_run.text.split())
    for event in json_run.of_type("text", "value", "table"):
        cells = [cell for row in event.get("rows", []) for cell in row]
        for text in [event.get("text", ""), *cells]:
            assert set(text.split()) <= words or \
                re.search(r"seconds|tokens/s|memory", str(event)), event


def test_it_has_the_same_figures(program, json_run, default_run):
    parts = program.name.count("_") + 1  # before the name of a figure
    drawn = {file.stem.split("_", parts)[-1] for file in default_run.plots.iterdir()}
    assert {event["name"] for event in json_run.of_type("figure")} == drawn
    for event in json_run.of_type("figure"):
        assert any(event.get(member) for member in ("values", "y")), event["name"]
