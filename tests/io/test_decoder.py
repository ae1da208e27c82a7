"""Decoding native records without inspecting their columns first."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from ragfault.errors import InputError
from ragfault.io.decoder import ReadOptions, TraceDecoder
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import NATIVE_SHAPE

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
)


def decode(method: str, records: tuple[dict[str, object], ...]) -> list[object]:
    """Return the trace of each record of a body, or the error."""
    decoder, results = TraceDecoder("body", ReadOptions({}, NATIVE_SHAPE, None, 10**6)), []
    for record in records:
        try:
            results.append(getattr(decoder, method)(msgspec.json.encode(record)))
        except (InvalidRecord, InputError) as error:
            results.append(str(error))
    return results


@pytest.mark.parametrize("records", list(product(RECORDS, repeat=2)))
def test_a_native_record_is_decoded_as_if_columns_were_inspected(records: tuple[dict[str, object], ...]):
    """Whatever the first two records of a body are, putting inspection off changes no trace and no message."""
    assert decode("decode_native_record", records) == decode("decode_record", records)


def test_plain_native_records_are_not_inspected():
    """Columns are inferred only once a record comes that is not native."""
    decoder = TraceDecoder("body", ReadOptions({}, NATIVE_SHAPE, None, 10**6))
    decoder.decode_native_record(msgspec.json.encode(PLAIN))
    assert decoder.columns is None
    decoder.decode_native_record(msgspec.json.encode({**PLAIN, "ground_truth": "At nine."}))
    assert decoder.columns is not None
