"""Laws of the question on uncertain columns: every map that is printed was executed, and reads the file."""

import json
import re

import pytest

from ragfault.io.formats.field_names import SYNONYMS
from ragfault.io.formats.scores import FIELD_KINDS
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError

QUESTION, ANSWER, OTHER = (
    "When does the ferry leave?",
    "It leaves at nine from the pier.",
    "It leaves at ten by the bridge.",
)
PASSAGES = ["The ferry leaves at nine from the pier.", "Dogs travel free."]


def put(path, *records):
    """Write a file of JSON Lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def list_maps(path):
    """Return the maps that the refusal of a file prints."""
    with pytest.raises(InputError) as refused:
        list(read_traces(path))
    return [json.loads(text) for text in re.findall(r"map=(\{.*?\})", str(refused.value))]


@pytest.mark.parametrize(
    "record",
    [
        {"question": QUESTION, "docs": PASSAGES, "answer_a": ANSWER, "answer_b": OTHER},
        {"qqq": QUESTION, "ppp": PASSAGES, "aaa": ANSWER, "rrr": OTHER},
        {"question": QUESTION, "answer": ANSWER, "ppp": PASSAGES},
        {"in": {"qqq": QUESTION}, "out": {"hits": PASSAGES, "zzz": ANSWER}},
        {"question": QUESTION, "text": ANSWER, "label": 1},
    ],
    ids=" ".join,
)
def test_several_plans_are_printed_and_each_reads_the_file(record, tmp_path):
    """Two to four maps are offered; each gives traces, and no two give the same."""
    path = put(tmp_path / "t.jsonl", record, {**record, "n": 2})
    maps = list_maps(path)
    assert 2 <= len(maps) <= 4
    traces = [list(read_traces(path, map=column_map)) for column_map in maps]
    assert len({str(read) for read in traces}) == len(maps)
    assert {trace.query for read in traces for trace in read} <= {QUESTION, ANSWER, OTHER}


def test_every_list_of_passages_is_offered_the_one_of_the_generator_first(tmp_path):
    """Of several stages of a search each is a plan, and the last one comes first."""
    stages = {name: [f"{text} {name}" for text in PASSAGES] for name in ("dense", "bm25", "reranked")}
    path = put(tmp_path / "t.jsonl", {"question": QUESTION, "stages": stages, "answer": ANSWER})
    assert [column_map["chunks"] for column_map in list_maps(path)] == [
        "stages.reranked", "stages.dense", "stages.bm25",
    ]  # fmt: skip


def test_no_printed_map_makes_the_answer_its_own_reference(tmp_path):
    """Of two columns with the same text none is offered as the reference of the other."""
    record = {"question": QUESTION, "aaa": ANSWER, "bbb": ANSWER, "docs": PASSAGES}
    path = put(tmp_path / "t.jsonl", record, {**record, "question": "When does it return?"})
    for column_map in list_maps(path):
        assert all(trace.answer != trace.reference for trace in read_traces(path, map=column_map))


def test_a_map_reads_the_document_that_the_records_lie_in(tmp_path):
    """The map of a file whose records lie in a list is tried on the file, not on its records alone."""
    path = tmp_path / "t.json"
    rows = [{"question": f"{QUESTION} {n}", "answer_a": ANSWER, "answer_b": OTHER} for n in range(3)]
    path.write_text(json.dumps({"run": 1, "rows": rows}, indent=1))
    for column_map in list_maps(path):
        assert len(list(read_traces(path, map=column_map))) == len(rows)


def test_equal_columns_are_no_rivals(tmp_path):
    """Two columns that hold the same are not asked about."""
    record = {"question": QUESTION, "docs": PASSAGES, "answer_a": ANSWER, "answer_b": ANSWER}
    [trace] = read_traces(put(tmp_path / "t.jsonl", record))
    assert trace.answer == ANSWER


def test_a_question_on_what_is_not_read_offers_maps(tmp_path):
    """Text that looks like an answer beside the answer can take its place, or become metadata."""
    long = "The ferry leaves at nine from pier two, and it comes back at ten past four from the island."
    record = {"question": QUESTION, "docs": PASSAGES, "answer": ANSWER, "response": long}
    path = put(tmp_path / "t.jsonl", record, {**record, "question": "And at weekends?"})
    swapped, spare = list_maps(path)
    assert [trace.answer for trace in read_traces(path, map=swapped)] == [long, long]
    assert [trace.answer for trace in read_traces(path, map=spare)] == [ANSWER, ANSWER]


def test_passages_that_an_answer_rests_on_are_no_reference(tmp_path):
    """A list of objects with their content is asked about, though its name is short for reference."""
    record = {
        "question": QUESTION,
        "answer": ANSWER,
        "ref": [{"page": str(n), "content": [text]} for n, text in enumerate(PASSAGES)],
    }
    path = put(tmp_path / "t.jsonl", record, {**record, "question": "And at weekends?"})
    for column_map in list_maps(path):
        assert {trace.reference for trace in read_traces(path, map=column_map)} == {None}


def test_every_field_that_a_name_chooses_says_what_it_is_read_from():
    """A name of a column without a kind of content would never be read."""
    assert set(SYNONYMS) == set(FIELD_KINDS)
