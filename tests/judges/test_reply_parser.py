"""Laws of the reply parser: sloppy replies are understood, and nothing incomplete counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.judges.llm.reply_parser import RequestedFields, list_missing, parse_json, parse_reply

REQUESTED: RequestedFields = {"chunks": ("c1", "c2"), "missing": ()}
COMPLETE = {
    "chunks": [{"id": "c1", "reason": "a", "relevance": 0.9}, {"id": "c2", "reason": "b", "relevance": 0.25}],
    "missing": ["the price"],
}
TEXT = json.dumps(COMPLETE)


def grades(text: str, *, truncated: bool = False) -> dict[str, float]:
    """Return id → relevance of the valid items of a reply."""
    return {
        name: item.relevance for name, item in parse_reply(text, REQUESTED, truncated=truncated).items["chunks"].items()
    }


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"Here is what I found:\n\n{TEXT}\n\nI hope this helps {{truly}}!",
        f"<think>Perhaps {{'chunks': []}}?</think>{TEXT}",
        f"\ufeff{TEXT}",
        TEXT.replace('"', "'"),
        TEXT.replace("]", ",]").replace("}", ",}"),
        TEXT.replace("0.9", '"90 %"').replace("0.25", '"0,25"'),
        TEXT.replace('"chunks"', '"Chunks"').replace('"id"', '"ID"').replace('"c1"', '" C1 "'),
        TEXT.replace('{"chunks"', '{"thoughts": "none", "chunks"'),
        TEXT.replace("{", "{\n  // a note\n", 1),
        json.dumps({**COMPLETE, "chunks": {chunk["id"]: chunk for chunk in COMPLETE["chunks"]}}),  # type: ignore[index]
        TEXT.replace('"a"', "null"),
        TEXT.replace('"id": "c1"', '"id": "c1", "score": 3'),
        TEXT[:-1],
    ],
)
def test_what_is_meant_is_understood(text: str):
    """Fences, prose, thoughts, trailing commas, other quotes and letters, and numbers as words change nothing."""
    assert grades(text) == {"c1": 0.9, "c2": 0.25}


@pytest.mark.parametrize("value", [7, -0.1, "high", None, True, [0.5], "NaN", "1e3", "120 %", 1e400, 10**30, "", {}])
def test_no_number_out_of_range(value: Any):
    """A number that is none, or is not from 0 to 1, loses its item and no other."""
    text = json.dumps(COMPLETE).replace("0.9", json.dumps(value))
    assert grades(text) == {"c2": 0.25}


@given(st.integers(0, len(TEXT)))
def test_a_cut_reply_says_nothing_wrong(length: int):
    """Of a reply that breaks off anywhere, only what was said in full is read."""
    parsed = parse_reply(TEXT[:length], REQUESTED)
    assert parsed.items["chunks"].items() <= parse_reply(TEXT, REQUESTED).items["chunks"].items()
    assert parsed.fields.get("missing") in {None, ("the price",)}
    assert parsed.fields.keys() == set() or length >= len(TEXT) - 1


def test_duplicate_ids():
    """An item said twice counts where both are equal, and is lost where they differ; ids of others are passed over."""
    first, second = COMPLETE["chunks"]  # type: ignore[misc]
    twice = json.dumps({"chunks": [first, second, first], "missing": []})
    assert grades(twice) == {"c1": 0.9, "c2": 0.25}
    other = json.dumps({"chunks": [first, second, {**first, "relevance": 0.1}]})  # type: ignore[dict-item]
    assert grades(other) == {"c2": 0.25}
    strange = json.dumps({"chunks": [first, {**second, "id": "c7"}, {**second, "id": 2}]})  # type: ignore[dict-item]
    assert grades(strange) == {"c1": 0.9}


def test_labels():
    """Labels are read in letters of any case, and nothing is taken for a label that is none."""
    item = {"id": "s1", "chunk": "", "quote": "", "reason": "", "p": 0.5}
    requested: RequestedFields = {"claims": ("s1",)}
    for spelling, label in (
        ("SUPPORTED", "supported"),
        (" Inferred. ", "inferred"),
        ("not supported", None),
        (1, None),
    ):
        items = parse_reply(json.dumps({"claims": [{**item, "support": spelling}]}), requested).items["claims"]
        assert [claim.support for claim in items.values()] == ([label] if label else [])


def test_what_lacks():
    """What was asked for and not said is known by field and id."""
    parsed = parse_reply('{"chunks": [{"id": "c2", "relevance": 1}]}', REQUESTED)
    assert list_missing(REQUESTED, parsed) == {"chunks": ("c1",), "missing": ()}
    assert list_missing(REQUESTED, parse_reply(TEXT, REQUESTED)) == {}


@given(
    st.one_of(st.text(), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
)
def test_nothing_raises(text: str):
    """Whatever is read, nothing is raised."""
    parse_json(text)
    parse_reply(text, REQUESTED)
    parse_reply("{" + text, REQUESTED, truncated=True)


DEEP = ("[" * 100_000, '{"a":' * 50_000, "{" * 59_000, "{'" * 29_000, "{(" * 20_000)
LONG = ("<think>" * 40_000, "x" * 400_000, "'" * 59_000, '{"a": "' + 'x" ' * 19_000)


@pytest.mark.parametrize("text", [*DEEP, *LONG], ids=lambda text: text[:7])
def test_deep_and_long_replies(text: str):
    """A reply that is deep or long beyond sense is read as saying nothing."""
    assert parse_reply(text, REQUESTED).items["chunks"] == {}
