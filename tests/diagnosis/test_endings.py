"""Laws of answers that were cut off: the service says so, or the text ends otherwise than those of the run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ragfault import Chunk, Trace, evaluate
from ragfault.diagnosis.causes.endings import AnswerEndings, ends_within_sentence, is_cut_off
from ragfault.diagnosis.causes.storage import read_causes
from ragfault.evaluation.rescorer import rescore
from ragfault.model.records import Verdicts
from remembered import LEXICAL

TEXT = "The tide gate opens at 05:40 on every weekday, and on Sundays only if the harbour master allows it."
COMPLETE = "The tide gate opens at 05:40 on every weekday."
CUT = "The tide gate opens at 05:40 on every weekday. On Sundays only the harbour"
KEYED = Trace(
    id="0",
    query="When does the tide gate open?",
    chunks=(Chunk(id="tide", text=TEXT),),
    answer=COMPLETE,
    reference="At 05:40.",
)


def find_causes(tmp_path, answers, **options):
    """Return outcome and cause of each answer of a run, and those of the run scored again."""
    traces = [replace(KEYED, id=str(number), **answer) for number, answer in enumerate(answers)]
    run = evaluate(traces, tmp_path / "run", judge=LEXICAL, metrics=["groundedness"], **options)
    again = rescore(run, tmp_path / "again", metrics=["error"])
    causes = [[(cause.rating.outcome, cause.cause) for cause in read_causes(stored)] for stored in (run, again)]
    assert causes[0] == causes[1]
    return causes[0]


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_an_answer_that_ends_within_a_sentence_is_bad_where_the_others_do_not(batch, tmp_path):
    """Whatever part of the run is looked at at once, and although the answer says what its key says."""
    outcomes = find_causes(tmp_path, [{"answer": CUT}, *[{"answer": COMPLETE}] * 4], batch=batch)
    assert outcomes == [("bad", "cut_off"), *[("right", None)] * 4]


def test_answers_that_never_end_with_a_stop_are_not_cut_off(tmp_path):
    """In a run that writes so, the key decides."""
    outcomes = find_causes(tmp_path, [{"answer": COMPLETE.rstrip(".")}] * 5)
    assert outcomes == [("right", None)] * 5


def test_a_word_that_ends_no_sentence_shows_a_cut_in_any_run(tmp_path):
    """An answer that ends with "the" goes on."""
    assert find_causes(tmp_path, [{"answer": f"{COMPLETE} On Sundays only the"}]) == [("bad", "cut_off")]


def test_a_limit_within_a_sentence_is_bad_although_the_key_agrees(tmp_path):
    """A phrase and a whole sentence that the limit left are not cut off, as far as the text shows."""
    answers = [{"answer": text, "finish_reason": "length"} for text in (CUT, COMPLETE, "At 05:40")]
    assert find_causes(tmp_path, answers) == [("bad", "cut_off"), ("right", None), ("right", None)]


@pytest.mark.parametrize(
    "text",
    [
        "At 05:40 on every weekday",
        "These are the days on which the gate opens:\n- Monday to Friday\n- Sundays if it is allowed by her",
        "These are the days on which the gate opens:\n1. Monday\n2. Sundays if it is allowed by her",
        "Read the timetable of the tide gate, which is at https://harbour.example/gate",
        "The gate opens as the harbour master says in his book 'Tides'",
        "# When the tide gate of the old harbour opens",
        "```\nopen_gate(hour=5, minute=40) if the day is a weekday\n```",
        "The gate of the old harbour opens on every weekday at 05:40 [1]",
    ],
)
def test_phrases_lists_titles_code_and_addresses_end_without_a_stop(text):
    """They are whole as they are."""
    assert not ends_within_sentence(text)


def test_phrases_do_not_say_how_a_run_ends_its_sentences():
    """Only sentences are counted, and too few of them say nothing."""
    assert AnswerEndings([*["At 05:40"] * 50, *[COMPLETE] * 3]).closed
    assert not AnswerEndings([COMPLETE]).closed


@pytest.mark.parametrize(
    ("end", "cut"),
    [
        ("settings that have to be moved to `velqui", True),
        ("settings that have to be moved with the ` key of the keyboard", False),
        ("settings by this command:\n```bash\npip install velquist", False),
    ],
)
def test_an_answer_is_cut_within_a_word_of_code_and_not_by_a_block_without_end(end: str, cut: bool):
    trace = Trace(id="1", query="What is left to do?", answer=f"What is left to you are the {end}")
    assert is_cut_off(trace, Verdicts(trace="1"), closed=False) is cut
