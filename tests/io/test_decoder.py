"""Decoding native records without inspecting their columns first."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from ragfault.io.decoder import ReadOptions, TraceDecoder
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import NATIVE_SHAPE
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

PLAIN = {
    "id": "a",
    "query": "When does the ferry leave?",
    "chunks": [{"id": "c", "text": "At nine."}],
    "answer": "Nine.",
}
RECORDS = (
    PLAIN,
    {**PLAIN, "metadata": {"release": "7", "ground_truth": "At nine."}, "citations": [{"chunk": "c"}]},
    {**PLAIN, "answer": '["At nine.", "Or at ten."]'},
    {**PLAIN, "query": ""},
    {**PLAIN, "error": "", "time": "2026-01-02T03:04:05"},
    {**PLAIN, "chunks": [{"id": "c", "text": "At nine.", "metadata": {"reference": '["At nine."]'}}]},
    {**PLAIN, "metadata": {"contexts": ["The ferry leaves at nine.", "It is green."]}},
    {**PLAIN, "ground_truth": "At nine o'clock."},
    {**PLAIN, "steps": [{"id": "s", "kind": "tool", "output": "At nine."}]},
    {"id": "b", "query": "Context: It leaves at nine.\n\nQuestion: When does it leave?", "answer": "At nine."},
    {"id": "d", "question": "When?", "contexts": ["At nine."]},
    {"id": "e", "question": ["When?"], "user_input": "When?", "contexts": ["At nine."], "score": 1},
    {"id": "f", "input": "When?", "output": "At nine.", "docs": "It leaves at nine.\n---\nIt is green."},
    {"id": "g", "question": "It is green.\n---\nIt is blue.", "docs": "# Ferry\nAt nine.\n# Dog\nIt is green."},
    {"id": "h", "context": "It is green.", "text": "When?"},
    {"id": "i"},
    {"words": "When?"},
)


def decode(records: tuple[dict[str, object], ...]) -> list[object]:
    """Return the trace of each record of a body, or the error."""
    decoder, results = TraceDecoder("body", ReadOptions({}, NATIVE_SHAPE, None, 10**6)), []
    for record in records:
        try:
            results.append(decoder.decode_native_record(msgspec.json.encode(record)))
        except (InvalidRecord, InputError) as error:
            results.append(str(error))
    return results


@pytest.mark.parametrize("records", list(permutations(RECORDS, 2)))
def test_neighbours_of_a_record_decide_nothing_about_it(records: tuple[dict[str, object], ...]):
    """Each trace of a body is the one that its record makes alone, and each refusal says the same."""
    assert decode(records) == [decode((record,))[0] for record in records]


def test_a_record_of_the_own_form_is_taken_as_it_is():
    """Metadata of a trace are metadata, whatever their names and types, also in the first record of a body."""
    lists = {"gold": ["a", None], "ground_truth": [["a"], 1], "contexts": '["a", "b"]', "reference": {"a": [None]}}
    for metadata in (lists, *({name: value} for name, value in lists.items())):
        chunk = {"id": "c", "text": "At nine.", "metadata": metadata}
        record = {"id": "a", "query": "[1, 2]", "chunks": [chunk], "metadata": metadata}
        [trace] = decode((record,))
        assert isinstance(trace, Trace)
        assert (trace.query, trace.metadata, trace.chunks[0].metadata) == ("[1, 2]", metadata, metadata)
        assert (trace.reference, trace.gold) == (None, None)
