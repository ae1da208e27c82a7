"""Laws of blank answers: a place for an answer that is empty is one, if the file records answers at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.trace_reader import read_traces

ANSWER = "At ten."
LAYOUTS = {
    "ragfault": lambda number, answer: {
        "id": str(number),
        "query": "When?",
        "chunks": [{"id": "a", "text": "It opens at ten."}],
        "answer": answer,
    },
    "ragas": lambda _, answer: {"user_input": "When?", "retrieved_contexts": ["It opens at ten."], "response": answer},
    "unknown": lambda _, answer: {"question": "When?", "docs": ["It opens at ten."], "bot_reply": answer},
    "langfuse": lambda number, answer: {
        "id": f"t{number}",
        "timestamp": f"2026-01-0{number}T10:00:00Z",
        "sessionId": None,
        "input": {"question": "When?"},
        "output": answer,
        "observations": [
            {
                "id": f"t{number}a",
                "type": "GENERATION",
                "startTime": f"2026-01-0{number}T10:00:00Z",
                "endTime": f"2026-01-0{number}T10:00:01Z",
                "input": [{"role": "user", "content": "When?"}],
                "output": answer,
            }
        ],
    },
}
EMPTY = {
    "null": None,
    "text": "",
    "list": [],
    "message": {"role": "assistant", "content": None},
    "object": {"answer": ""},
}


def read_answers(path: Path) -> list[str | None]:
    """Return the answers of a file."""
    return [trace.answer for trace in read_traces(path)]


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("at", [0, 1])
def test_an_empty_answer_among_others_is_blank(layout, empty, at, tmp_path):
    """Whatever the layout, the form of the empty value and its place, it is a blank answer."""
    answers, expected = [ANSWER], [ANSWER]
    answers.insert(at, EMPTY[empty])
    expected.insert(at, "")
    records = [LAYOUTS[layout](number, answer) for number, answer in enumerate(answers, 1)]
    assert read_answers(write_lines(tmp_path / "t.jsonl", records)) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_field_that_is_null_everywhere_records_no_answers(layout, tmp_path):
    """Nothing was recorded, which is not a fault of the answers."""
    records = [LAYOUTS[layout](number, None) for number in (1, 2)]
    assert read_answers(write_lines(tmp_path / "t.jsonl", records)) == [None, None]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_without_the_field_is_not_blank(layout, tmp_path):
    """What a record has no place for was not recorded there."""
    full, bare = (LAYOUTS[layout](number, ANSWER) for number in (1, 2))
    for name in ("answer", "response", "bot_reply", "output"):
        bare.pop(name, None)
    bare = {name: [] if name == "observations" else value for name, value in bare.items()}
    assert read_answers(write_lines(tmp_path / "t.jsonl", [full, bare])) == [ANSWER, None]


@pytest.mark.parametrize("layout", ["ragfault", "ragas", "unknown"])
def test_a_failed_pipeline_has_no_answer(layout, tmp_path):
    """The error is the reason, and not a blank."""
    full, failed = (LAYOUTS[layout](number, answer) for number, answer in ((1, ANSWER), (2, None)))
    path = write_lines(tmp_path / "t.jsonl", [full, {**failed, "error": "time-out"}])
    assert read_answers(path) == [ANSWER, None]


@pytest.mark.parametrize("header", ["id,query,chunks,answer", "id,question,contexts,answer", "id,question,docs,reply"])
def test_an_empty_cell_is_blank(header, tmp_path):
    """A cell of a column of answers that holds nothing is a blank answer."""
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([header.split(","), ["1", "When?", '["At ten."]', ANSWER], ["2", "Who?", '["Ida."]', ""]])
    assert read_answers(path) == [ANSWER, ""]


OUTPUTS = {
    "empty": ({"output.value": ""}, ""),
    "openinference": ({"llm.output_messages.0.message.content": ""}, ""),
    "openllmetry": ({"gen_ai.completion.0.content": ""}, ""),
    "gen_ai": ({"gen_ai.output.messages": [{"role": "assistant", "parts": [], "finish_reason": "length"}]}, ""),
    "not recorded": ({"gen_ai.response.finish_reasons": ["stop"]}, None),
    "tools": ({"output.value": "", "gen_ai.response.finish_reasons": ["tool_calls"]}, None),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_span_records_a_blank_by_an_empty_output(name):
    """A call that recorded its output and said nothing answered nothing; one that asks for tools is not the last."""
    attributes, answer = OUTPUTS[name]
    outer = OtelSpan(trace="a", id="b", end=9, attributes={"openinference.span.kind": "CHAIN", "input.value": "When?"})
    call = OtelSpan(trace="a", id="c", parent="b", end=8, attributes={"openinference.span.kind": "LLM", **attributes})
    assert build_trace([outer, call]).answer == answer
