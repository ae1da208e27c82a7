"""Laws of reading labelled sets: each layout is read right, with the label that means bad, or refused clearly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragfault.io.trace_reader import read_traces
from ragfault.labels.judges.measuring import measure_judge
from ragfault.labels.reading.label_columns import detect_columns, list_trace_labels
from ragfault.labels.reading.label_parser import LabelRule
from ragfault.labels.reading.labeled_traces import LabeledTrace, LabeledTraces, build_labeled_trace, load_labeled_traces
from ragfault.labels.settings import LabelSettings
from ragfault.model.errors import BadTraces, InputError
from remembered import LEXICAL

FACTS = [f"Ferry {number} leaves the harbour at {number + 1} o'clock." for number in range(6)]
BAD = [number % 3 == 0 for number in range(6)]
ANSWERS = [
    f"Ferry {number} was painted by pirates." if bad else fact
    for number, (fact, bad) in enumerate(zip(FACTS, BAD, strict=True))
]


def load(path: Path, columns: list[dict[str, object]]) -> LabeledTraces:
    """Load a labelled set of these columns beside those of the traces."""
    path.write_text("".join(json.dumps(row) + "\n" for row in columns), "utf-8")
    return load_labeled_traces(path, LabelSettings())


def add_labels(labels: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return complete traces with these columns of labels."""
    rows = zip(FACTS, ANSWERS, labels, strict=True)
    return [
        {"id": f"t{number}", "query": f"When does ferry {number} leave?", "contexts": [fact], "answer": answer, **label}
        for number, (fact, answer, label) in enumerate(rows)
    ]


def list_bad(labeled: LabeledTraces) -> list[bool | None]:
    by_id = {item.trace.id: item for item in labeled.labeled}
    items = [by_id[name] for name in sorted(by_id)]
    return [item.positive if item.claims is None else item.claims[0].positive for item in items]


LABELS = {
    "hallucinated": [{"hallucinated": int(bad)} for bad in BAD],
    "grounded": [{"grounded": int(not bad)} for bad in BAD],
    "groundedness_label": [{"groundedness_label": not bad} for bad in BAD],
    "words": [{"human_label": "unsupported" if bad else "supported"} for bad in BAD],
    "yes and no": [{"is_supported": "no" if bad else "yes"} for bad in BAD],
    "several people": [{"labels": ["hallucinated" if bad else "faithful"] * 2 + ["faithful"]} for bad in BAD],
    "several people as objects": [
        {"annotations": [{"annotator": name, "label": int(bad)} for name in "ab"]} for bad in BAD
    ],
    "texts of spans": [
        {"hallucination_spans": [answer[2:9]] if bad else []} for answer, bad in zip(ANSWERS, BAD, strict=True)
    ],
    "claims by a flag": [
        {"claims": [{"text": answer, "supported": not bad}]} for answer, bad in zip(ANSWERS, BAD, strict=True)
    ],
    "claims by a verdict": [
        {"claims": [{"claim": answer, "verdict": "refuted" if bad else "supported"}]}
        for answer, bad in zip(ANSWERS, BAD, strict=True)
    ],
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_in_other_layouts_are_read_right(name: str, tmp_path: Path):
    """Whatever 1 means by its name, the same answers are bad."""
    assert list_bad(load(tmp_path / "t.jsonl", add_labels(LABELS[name]))) == BAD


@pytest.mark.parametrize(("claim", "evidence"), [("claim", "evidence"), ("hypothesis", "premise")])
def test_claims_with_evidence_need_no_query(claim: str, evidence: str, tmp_path: Path):
    """A set of claims and their evidence is read with empty queries."""
    rows = [
        {"id": f"t{number}", claim: answer, evidence: fact, "label": "REFUTES" if bad else "SUPPORTS"}
        for number, (answer, fact, bad) in enumerate(zip(ANSWERS, FACTS, BAD, strict=True))
    ]
    labeled = load(tmp_path / "t.jsonl", rows)
    assert list_bad(labeled) == BAD
    assert [item.trace.chunks[0].text for item in labeled.labeled] == FACTS
    assert {item.trace.query for item in labeled.labeled} == {""}


DAMAGE = {
    "texts of spans": {"hallucination_spans": ["of no answer"]},
    "several people": {"labels": {"ann": "hallucinated"}},
    "several people as objects": {"annotations": [{"annotator": "a", "label": "perhaps"}]},
    "claims by a flag": {"claims": [{"text": FACTS[0], "supported": "perhaps"}]},
    "claims by a verdict": {"claims": [{"verdict": "refuted"}]},
}
"""Layout → columns that cannot be read; of others one label of no known meaning."""


@pytest.mark.parametrize("name", LABELS)
def test_a_damaged_line_of_each_layout_is_named_by_its_number(name: str, tmp_path: Path):
    """A label that is not known, or not there in the answer, is named with the line of its trace, and only that."""
    rows = add_labels(LABELS[name])
    rows[4] |= DAMAGE.get(name, dict.fromkeys(LABELS[name][4], "perhaps"))
    with pytest.raises(BadTraces) as caught:
        load(tmp_path / "t.jsonl", rows)
    assert [(bad.where, bad.line) for bad in caught.value.bad_lines] == [(str(tmp_path / "t.jsonl"), 5)]


@pytest.mark.parametrize("name", LABELS)
def test_the_columns_of_a_trace_give_labels(name: str, tmp_path: Path):
    """Each label is a record of the trace: one for each person, for each claim, and for each span or none."""
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in add_labels(LABELS[name])), "utf-8")
    traces = list(read_traces(path, labeled=True))
    task, columns = detect_columns(traces, {}, None)
    people = {"several people": 3, "several people as objects": 2}.get(name, 1)
    for trace, bad in zip(traces, BAD, strict=True):
        labels, unlabeled = list_trace_labels(trace, task, columns)
        assert ({label.trace for label in labels}, len(labels), unlabeled) == ({trace.id}, people, 0)
        built = build_labeled_trace(trace, "", labels, LabelRule(task, columns.label or columns.claims or ""))
        assert list_bad_units(built) == [bad]


def list_bad_units(item: LabeledTrace | None) -> list[bool | None]:
    assert item is not None
    return [item.positive] if item.claims is None else [claim.positive for claim in item.claims]


def test_a_tie_is_no_label(tmp_path: Path):
    """Where as many people call an answer bad as good, it has no label, and the note says what counts."""
    labels = [{"labels": ["bad", "good"]}, *({"labels": ["good"]} for _ in BAD[1:])]
    labeled = load(tmp_path / "t.jsonl", add_labels(labels))
    assert (labeled.unlabeled, len(labeled.labeled)) == (1, 5)
    assert "the majority counts" in " ".join(labeled.notes)


LAYOUTS = {
    "answers": [{"label": "bad" if bad else "good"} for bad in BAD],
    "claims": LABELS["claims by a flag"],
    "chunks": [{"grades": [int(bad)]} for bad in BAD],
}


@pytest.mark.parametrize("unit", LAYOUTS)
def test_labels_that_contradict_each_other_are_counted(unit: str, tmp_path: Path):
    """The same content once bad and once good is named with its number; the same label twice is not."""
    rows = add_labels(LAYOUTS[unit])
    turned = dict(zip(("id", *LAYOUTS[unit][0]), ("again", *LAYOUTS[unit][1].values()), strict=True))
    if unit == "claims":
        turned = {"id": "again", "claims": [{"text": ANSWERS[0], "supported": True}]}
    same = rows[2] | {"id": "same"}
    notes = load(tmp_path / "t.jsonl", [*rows, rows[0] | turned, same]).notes
    assert [note for note in notes if "contradict" in note] == [
        f"labels contradict each other on 1 {unit}: no judge agrees with both"
    ]
    assert not [note for note in load(tmp_path / "t.jsonl", [*rows, same]).notes if "contradict" in note]


@pytest.mark.parametrize("score", [0.35, "72.5", "95 %"])
def test_scores_are_refused_as_labels(score: object, tmp_path: Path):
    """A score is no class, and the message says so."""
    with pytest.raises(BadTraces, match="is a score"):
        load(tmp_path / "t.jsonl", add_labels([{"label": score} for _ in BAD]))


def test_columns_of_annotators_are_refused_with_their_names(tmp_path: Path):
    """One column for each person is not guessed at; the message lists the columns."""
    with pytest.raises(InputError, match=r"ann_1, ann_2.*map"):
        load(tmp_path / "t.jsonl", add_labels([{"ann_1": int(bad), "ann_2": int(bad)} for bad in BAD]))


def test_labels_the_wrong_way_round_are_noted(tmp_path: Path):
    """Where the judge ranks the labelled answers the other way round, a note asks what the label means."""
    path = tmp_path / "t.jsonl"
    rows = add_labels([{"label": int(not bad)} for bad in BAD])
    load(path, [row | {"id": f"{copy}{row['id']}"} for copy in "abc" for row in rows])
    inverted = measure_judge(path, judge=LEXICAL, resamples=200)
    assert any("the other way round" in note and "label = 1" in note for note in inverted.notes)
    right = measure_judge(path, judge=LEXICAL, resamples=200, positive=("0",))
    assert not any("the other way round" in note for note in right.notes)


def test_grades_lie_in_rows_in_lists_or_in_the_passages(tmp_path: Path):
    """Grades of passages are the same, one row a passage, as a list beside them, or as a key of each."""
    query = "When does the ferry leave?"
    rows = [
        {"query": query, "passage": text, "relevance": grade}
        for text, grade in zip(FACTS, (3, 0, 1, 0, 0, 2), strict=True)
    ]
    lists = [{"query": query, "passages": FACTS, "relevance": [3, 0, 1, 0, 0, 2]}]
    keys = [{"query": query, "passages": [{"text": row["passage"], "relevance": row["relevance"]} for row in rows]}]
    for layout in (rows, lists, keys):
        labeled = load(tmp_path / "t.jsonl", layout).labeled
        grades = {
            chunk.text: item.grades[chunk.id].grade
            for item in labeled
            for chunk in item.trace.chunks or ()
            if item.grades is not None
        }
        assert grades == dict(zip(FACTS, (3, 0, 1, 0, 0, 2), strict=True))
