"""The overall assessment of a trace: right, wrong or cannot tell, and by what."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault import diagnose
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Gold, Trace, Verdicts
from remembered import LEXICAL

CHUNK = Chunk(id="a", text="The ferry leaves at 09:30. A bicycle costs two euros.")
RIGHT = Trace(
    id="1",
    query="When does the ferry leave?",
    chunks=(CHUNK,),
    answer="The ferry leaves at 09:30.",
    reference="The ferry leaves at 09:30.",
)
MISSED = Gold(chunks={"elsewhere": 1})
REFUSAL = "I cannot answer this from the documents."


def assess(trace: Trace, folder: Path, **options):
    [diagnosis] = diagnose_run(evaluate([trace], folder / "run", judge=LEXICAL, **options))
    return diagnosis.assessment.outcome, diagnosis.assessment.source, diagnosis.assessment.sentence


@pytest.mark.parametrize(
    ("changes", "outcome", "source", "words"),
    [
        ({}, "right", "answer key", "the answer states it"),
        ({"answer": "The ferry leaves at 17:45."}, "wrong", "answer key", "in place of"),
        ({"answer": REFUSAL, "reference": None, "answerable": False}, "right", "answer key", "the query has no answer"),
        ({"answer": REFUSAL, "gold": MISSED}, "wrong", "answer key", "its answer was not retrieved"),
        ({"reference": None, "answerable": False}, "wrong", "answer key", "does not refuse"),
        ({"error": "timeout"}, "wrong", "pipeline", "failed"),
        ({"answer": ""}, "wrong", "pipeline", "empty"),
        ({"answer": None}, "cannot tell", "none", "no answer"),
        ({"reference": None}, "right", "judge", "there is no answer key"),
        ({"answer": REFUSAL, "reference": None}, "cannot tell", "none", "the answer refuses"),
    ],
)
def test_the_assessment_follows_the_answer_key_and_names_what_decides(tmp_path, changes, outcome, source, words):
    assessed = assess(replace(RIGHT, **changes), tmp_path)
    assert assessed[:2] == (outcome, source)
    assert assessed[2].startswith(outcome)
    assert words in assessed[2]


def test_a_judge_alone_shows_an_answer_to_be_wrong_and_says_so(tmp_path: Path):
    trace = replace(RIGHT, reference=None, answer="Penguins of Patagonia breed in colonies of thousands.")
    trace = replace(trace, chunks=(Chunk(id="z", text="Volcanic soils hold much potassium."),))
    outcome, source, sentence = assess(trace, tmp_path)
    assert (outcome, source) == ("wrong", "judge")
    assert "wrong only by the judge, as there is no answer key: it is rated poor" in sentence


def test_claims_from_outdated_chunks_are_problems_of_the_answer(tmp_path: Path):
    old = replace(CHUNK, metadata={"valid_to": "2024-12-31"})
    trace = replace(RIGHT, chunks=(old,), reference=None, time=datetime(2026, 1, 2, tzinfo=UTC))
    assert assess(trace, tmp_path)[2].endswith("shows 1 outdated source")


def test_the_assessment_says_what_the_rating_of_the_cause_says(tmp_path: Path):
    answers = ["The ferry leaves at 09:30.", "The ferry leaves at 17:45.", REFUSAL, "", "Dogs bark.", None]
    keys = [{}, {"reference": None}, {"gold": MISSED}, {"reference": None, "answerable": False}]
    traces = [
        replace(RIGHT, id=f"{n}-{k}", answer=a, **key) for n, a in enumerate(answers) for k, key in enumerate(keys)
    ]
    for diagnosis in diagnose_run(evaluate(traces, tmp_path / "run", judge=LEXICAL)):
        rating = diagnosis.cause.rating
        named = {"right": "right", "bad": "wrong", "unsure": "cannot tell"}[rating.outcome]
        assert (diagnosis.assessment.outcome, diagnosis.assessment.source) == (named, rating.source)


def test_what_was_not_judged_is_not_assessed():
    """Without verdicts nothing is claimed, and a key that was not applied is named."""
    assessment = diagnose(replace(RIGHT, reference=None), Verdicts(trace="1")).assessment
    assert assessment.sentence == "cannot tell: nothing of the answer was judged, and there is no answer key"
    ignored = diagnose(RIGHT, Verdicts(trace="1", failures={"*": "timed out"})).assessment
    assert ignored.sentence == "cannot tell: the judge failed on the answer, and its answer key was not applied"


def test_an_ignored_answer_key_does_not_decide(tmp_path: Path):
    outcome, source, sentence = assess(RIGHT, tmp_path, gold="ignore")
    assert (outcome, source) == ("right", "judge")
    assert "its answer key was not applied" in sentence
