"""Chapter 23's program: the mask of a schema and a text of your own."""

import json

import pytest

from running import output_of

pytestmark = pytest.mark.programs("23_structured_output")

SCHEMA = {"type": "integer", "minimum": 7, "maximum": 120}


def rows_of(program, schema, text):
    lines = output_of([program, "--json", "--schema", json.dumps(schema), "--text", text])
    table, = [event for event in map(json.loads, lines.splitlines()) if event["type"] == "table"]
    return table["rows"]


def test_each_token_of_the_text_has_the_tokens_that_may_follow(program):
    rows = rows_of(program, SCHEMA, "12")
    assert [row[:2] for row in rows] == [["(start)", "9"], ["1", "10"], ["2", "2"]]
    assert rows[2][2] == "<|endoftext|>  0"


def test_without_a_text_there_is_the_start_alone(program):
    assert rows_of(program, {"enum": ["red", 4]}, "") == [["(start)", "2", '"  4']]
