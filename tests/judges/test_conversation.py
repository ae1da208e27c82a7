"""Laws of other questions to a model: what an answer answers, and which passages help."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.llm.prompts.fences import parse_fences
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import grade_passages, score_answer_relevance
from ragfault.judges.llm.transport.calls import CallFailed, ModelCall
from scripted import PROMPTS, Failing, Scripted, right, saying


def same(one: str, other: str) -> float:
    """1 for equal texts."""
    return float(one == other)


def asked(caller: Scripted, votes: int = 1):
    """What becomes of what a model says to the answer "At noon."."""
    return asyncio.run(
        score_answer_relevance(
            "When?", "At noon.", caller, LLMSettings(model="m", votes=votes), PROMPTS, same
        )
    )


def test_questions_are_compared_with_the_query():
    """The relevance of an answer is the mean likeness of the questions that it answers to the query."""
    caller = saying(questions=["When?", "Who?"])
    assert asked(caller) == (0.5, None, ("When?", "Who?"))
    assert "When?" not in caller.calls[0].messages[1].text


def test_evasions_are_not_relevant():
    """An answer that commits itself to nothing has relevance 0, whatever it would answer."""
    assert asked(saying(questions=["When?"], noncommittal=True)).relevance == 0


def test_votes_on_questions():
    """Of several votes the mean counts, with their standard deviation."""
    each = (["When?"], ["Who?"])
    caller = Scripted(lambda call: json.dumps(right(call, questions=each[call.vote])))
    assert asked(caller, votes=2) == (0.5, 0.5, ("When?",))


def test_no_questions():
    """Where a model names no questions, that is an error with its reason, not a relevance."""
    with pytest.raises(CallFailed, match="names no question"):
        asked(saying(questions=[]))
    with pytest.raises(CallFailed, match="no line"):
        asked(Failing("questions", CallFailed("no line")))


def graded(texts: list[str], caller: Scripted, **options: int) -> list[float]:
    """The relevance of some passages in quick."""
    return asyncio.run(grade_passages("When?", texts, caller, LLMSettings(model="m", **options), PROMPTS))  # type: ignore[arg-type]


def by_text(call: ModelCall) -> str:
    """A model that takes the first number of a passage for its relevance."""
    values = {}
    for part in parse_fences(call.messages[1].text):
        if part.name[0] == "p":
            values[part.name.split()[0]] = {
                "relevance": float(part.text.split()[0]) if part.text[:1].isdigit() else 0
            }
    return json.dumps(right(call, passages=values))


@given(st.lists(st.sampled_from(["0.9 noon", "0.1 pier", "", "0.5 ferry", " \n"]), max_size=30))
@settings(max_examples=40, deadline=None)
def test_relevance_in_quick(texts: list[str]):
    """Each passage gets its own relevance, in one call for all; what holds no word has none, and is not asked about."""
    caller = Scripted(by_text)
    expected = [float(text.split()[0]) if text.strip() else 0.0 for text in texts]
    assert graded(texts, caller) == expected
    assert len(caller.calls) == (1 if any(expected) else 0)


def test_many_and_long_passages():
    """What does not fit into one request goes into several; a passage in pieces is as relevant as its best piece."""
    caller = Scripted(by_text)
    texts = [f"0.{n % 10} " + "word " * 2_000 for n in range(12)]
    texts.append("0.1 " + "word " * 9_000)
    assert graded(texts, caller, context=9_000) == [n % 10 / 10 for n in range(12)] + [0.1]
    assert len(caller.calls) > 3


def test_relevance_that_lacks():
    """A passage that is left out twice is an error that names it, not a relevance."""
    bad = {"p2": {"relevance": 5}}
    with pytest.raises(CallFailed, match="passages p2: after a repair request"):
        graded(["a", "b"], saying(passages=bad))
