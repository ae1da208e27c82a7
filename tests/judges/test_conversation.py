"""Laws of further requests to a model: questions that an answer answers, and relevance of passages."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.llm.model_exchange import VoteResult, merge_votes, request_with_repair
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import build_question_request, grade_passages, score_questions
from ragfault.judges.llm.transport.reply_cache import CallFailed, ModelCall
from scripted import PROMPTS, Failing, Scripted, complete_reply, make_scripted, parse_fences


def same(first: str, second: str) -> float:
    """Return 1 for equal texts."""
    return float(first == second)


def score_answer(caller: Scripted, votes: int = 1) -> VoteResult:
    """Merge what a model says about the answer "At noon."."""
    request = build_question_request("At noon.", LLMSettings(model="m", votes=votes), PROMPTS)
    replies = [asyncio.run(request_with_repair(request, caller, PROMPTS, vote)) for vote in range(votes)]
    return merge_votes([score_questions("When?", reply, same) for reply in replies])


def test_questions_are_compared_with_the_query():
    """The relevance of an answer is the mean similarity of the questions that it answers to the query."""
    caller = make_scripted(questions=["When?", "Who?"])
    assert score_answer(caller).fields["relevance"] == 0.5
    assert "When?" not in caller.calls[0].messages[1].text


def test_evasive_answer_is_not_relevant():
    """A noncommittal answer has relevance 0, whatever it would answer."""
    assert score_answer(make_scripted(questions=["When?"], noncommittal=True)).fields["relevance"] == 0


def test_votes_on_questions():
    """The mean of several votes counts, with their standard deviation."""
    questions = (["When?"], ["Who?"])
    caller = Scripted(lambda call: json.dumps(complete_reply(call, questions=questions[call.vote])))
    result = score_answer(caller, votes=2)
    assert (result.fields["relevance"], result.spread["relevance"]) == (0.5, 0.5)


def test_reply_without_questions():
    """A model that names no questions gives a failure with its reason, not a relevance."""
    assert "names no question" in score_answer(make_scripted(questions=[])).failures["relevance"][""]
    failed = score_answer(Failing("questions", CallFailed("no connection")))
    assert failed.failures["relevance"][""] == "no connection"


def graded(texts: list[str], caller: Scripted, **options: int) -> list[float]:
    """Return the relevance of some passages."""
    return asyncio.run(grade_passages("When?", texts, caller, LLMSettings(model="m", **options), PROMPTS))  # type: ignore[arg-type]


def by_text(call: ModelCall) -> str:
    """Return a reply that takes the first number of a passage for its relevance."""
    values = {}
    for part in parse_fences(call.messages[1].text):
        if part.name[0] == "p":
            values[part.name.split()[0]] = {"relevance": float(part.text.split()[0]) if part.text[:1].isdigit() else 0}
    return json.dumps(complete_reply(call, passages=values))


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
        graded(["a", "b"], make_scripted(passages=bad))
