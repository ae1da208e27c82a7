"""Laws of the LLM judge's verdicts: evidence, levels, images, tables, votes, and relevance by questions."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.domain.profile import DomainProfile, PromptWording, RelevanceLevels, SupportThresholds
from ragfault.judges.llm.prompts.instructions import PromptSet, load_prompts
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import plan_calls
from ragfault.judges.llm.transport.reply_cache import CallFailed
from ragfault.model.records import Chunk, Evidence, Trace, Verdicts
from scripted import (
    PROMPTS,
    TRACE,
    Failing,
    Scripted,
    complete_reply,
    judge,
    list_requested_ids,
    make_scripted,
    parse_fences,
)

# --- claims and evidence ---------------------------------------------------------------------------


def claim(prompts: PromptSet = PROMPTS, **fields: Any):
    """Return the verdict on the first claim for a given reply."""
    return (judge(caller=make_scripted(claims={"s1": fields}), prompts=prompts).claim or ())[0]


@given(p=st.floats(0, 1), support=st.sampled_from(["supported", "inferred", "unsupported", "contradicted"]))
@settings(max_examples=40, deadline=None)
def test_probability_goes_with_the_label(p: float, support: str):
    """A probability lies on the side of the threshold that the label states; near the threshold it is unsure."""
    verdict = claim(support=support, p=p)
    assert verdict.support == support
    assert verdict.p is not None
    assert (verdict.p >= 0.5) == (support in {"supported", "inferred"})
    assert verdict.p in {p, 0.5, 0.49}
    assert verdict.unsure == (1 / 3 <= verdict.p <= 2 / 3)


def test_quotes_are_looked_up():
    """Evidence is where the words stand: in the chunk named, else in another; words that stand nowhere are marked."""
    assert claim(chunk="c1", quote="Ferry  leaves at noon").evidence == (Evidence(chunk="x", start=4, end=24),)
    assert claim(chunk="c3", quote="cost two euros").evidence == (Evidence(chunk="y", start=6, end=20),)
    assert claim(chunk="c9", quote="cost two euros").evidence == (Evidence(chunk="y", start=6, end=20),)
    unlocated = claim(chunk="c1", quote="leaves at midnight")
    assert unlocated.evidence == ()
    assert unlocated.misquoted
    assert not claim(chunk="", quote="").misquoted


def test_thresholds_and_levels_of_a_profile():
    """Relevance levels and support thresholds are those of the profile; its guidance is part of the prompts."""
    profile = DomainProfile(
        name="strict",
        levels=RelevanceLevels(high=0.95, medium=0.9, low=0.6),
        support=SupportThresholds(supported=0.8, inferred=0.6),
        prompts=PromptWording(guidance="Mind the piers."),
    )
    prompts = load_prompts(profile)
    assert claim(prompts, p=0.7).support == "inferred"
    verdict = claim(prompts, p=0.55)
    assert (verdict.support, verdict.p) == ("unsupported", 0.49)
    assert "threshold of the profile" in (verdict.reason or "")
    verdicts = judge(caller=make_scripted(chunks={"c1": {"relevance": 0.91}}), prompts=prompts)
    assert [chunk.level for chunk in verdicts.chunk or ()] == ["medium", "none", "none"]


def test_grounded_is_the_least_probable_claim():
    """An answer is as grounded as its least probable claim; that is not known where one is lost, or without chunks."""
    verdicts = judge(caller=make_scripted(claims={"s2": {"support": "unsupported", "p": 0.2}}))
    assert verdicts.answer is not None
    assert verdicts.answer.grounded == 0.2
    incomplete = judge(caller=make_scripted(claims={"s2": {"p": 7}}))
    assert incomplete.answer is not None
    assert incomplete.answer.grounded is None
    without_chunks = judge(msgspec.structs.replace(TRACE, chunks=None))
    assert without_chunks.answer is not None
    assert without_chunks.answer.grounded is None


def test_the_best_reference_counts():
    """Of several references that the chunks cover best is the one that recall is told of."""
    references = ("The pier is old. The sea is cold. Gulls cry.", "It leaves at twelve. Buses run daily.")
    trace = msgspec.structs.replace(TRACE, facts=None, reference=references)
    statements = {f"t{n}": {"covered": n in {1, 4}} for n in range(1, 6)}
    verdicts = judge(trace, make_scripted(statements=statements))
    assert [(item.statement, item.covered) for item in verdicts.recall or ()] == [
        ("It leaves at twelve.", True),
        ("Buses run daily.", False),
    ]


def test_citations_that_point_nowhere():
    """A citation of a chunk that was not retrieved supports nothing, and nobody is asked about it."""
    caller = Scripted()
    verdicts = judge(caller=caller)
    assert [(citation.supports, citation.p) for citation in verdicts.citation or ()] == [(True, 0.9), (False, 0.0)]
    assert list_requested_ids(caller.calls[1])["citations"] == ["k1"]


# --- pictures and tables ---------------------------------------------------------------------------

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_pictures():
    """A picture in the trace goes with the call, an address only where that is asked for; what is not sent is lost."""
    chunks = (
        Chunk(id="a", kind="image", text=PIXEL),
        Chunk(id="b", kind="image", metadata={"image_url": "https://pier.example/b.png"}),
        Chunk(id="c", text="Words."),
    )
    trace = Trace(id="1", query="What is shown?", chunks=chunks, answer="A pier is shown.")
    call = plan_calls(trace, LLMSettings(model="m"), PROMPTS)[0]
    assert call.messages[1].images == (PIXEL,)
    assert "Image 1 belongs to c1." in call.messages[1].text
    assert PIXEL not in call.messages[1].text
    verdicts = judge(trace)
    assert verdicts.failures.keys() == {"chunk", "use"}
    assert "c2 is an image that is not sent" in verdicts.failures["chunk"]
    assert [chunk.chunk for chunk in verdicts.chunk or ()] == ["a", "c"]
    assert not judge(trace, images="url").failures
    assert plan_calls(trace, LLMSettings(model="m", images="none"), PROMPTS)[0].messages[1].images == ()


def test_tables():
    """A table is shown as Markdown; words that stand only there are borne out by the whole chunk."""
    text = '[{"day": "Sunday", "leaves": "13:00"}]'
    chunks = (Chunk(id="a", kind="table", text=text),)
    trace = Trace(id="1", query="When?", chunks=chunks, answer="The ferry leaves at 13:00.")
    texts = parse_fences(plan_calls(trace, LLMSettings(model="m"), PROMPTS)[0].messages[1].text)
    assert texts[1].text == "| day | leaves |\n| --- | --- |\n| Sunday | 13:00 |"
    verdicts = judge(trace, make_scripted(claims={"s1": {"chunk": "c1", "quote": "| Sunday | 13:00 |"}}))
    assert (verdicts.claim or ())[0].evidence == (Evidence(chunk="a", start=0, end=len(text)),)


# --- votes -----------------------------------------------------------------------------------------


def voting(*replies: dict[str, Any], votes: int = 3) -> Verdicts:
    """Return the verdicts where each vote says something else."""
    return judge(caller=Scripted(lambda call: json.dumps(complete_reply(call, **replies[call.vote]))), votes=votes)


def test_votes():
    """Labels are those of the majority, numbers the mean, with the standard deviation of the votes beside."""
    verdicts = voting(
        {"claims": {"s1": {"support": "supported", "p": 0.9}}, "chunks": {"c1": {"relevance": 0.2}}, "missing": ["a"]},
        {"claims": {"s1": {"support": "unsupported", "p": 0.1}}, "chunks": {"c1": {"relevance": 0.4}}},
        {"claims": {"s1": {"support": "supported", "p": 0.8}}, "chunks": {"c1": {"relevance": 0.9}}, "missing": ["b"]},
    )
    claim, chunk = (verdicts.claim or ())[0], (verdicts.chunk or ())[0]
    assert (claim.support, claim.p) == ("supported", pytest.approx(0.6))
    assert claim.spread == pytest.approx(0.3559, abs=1e-4)
    assert chunk.relevance == pytest.approx(0.5)
    assert chunk.spread == pytest.approx(0.2944, abs=1e-4)
    assert verdicts.missing == ("a",)
    assert verdicts.answer is not None
    assert verdicts.answer.spread == 0.0
    assert (judge().chunk or ())[0].spread is None


def test_ties_go_to_caution():
    """Where votes are even, the label counts that credits the system least."""
    verdicts = voting(
        {"claims": {"s1": {"support": "supported"}}, "refused": True, "truth": {"s1": {"status": "supported"}}},
        {"claims": {"s1": {"support": "unsupported", "p": 0.4}}, "used": {"c1": {"used": False}}},
        votes=2,
    )
    assert (verdicts.claim or ())[0].support == "unsupported"
    assert (verdicts.truth or ())[0].status == "unknown"
    assert not (verdicts.use or ())[0].used
    assert verdicts.answer is not None
    assert verdicts.answer.refused


def test_a_vote_that_fails():
    """A thing that most of the votes speak of is judged by these; one that no more than half speak of is lost."""
    bad = {"chunks": {"c1": {"relevance": 9}}}
    assert not voting(bad, {}, {}).failures
    assert "c1" in voting(bad, bad, {}).failures["chunk"]


# --- the questions that an answer answers ----------------------------------------------------------


def test_reverse():
    """Relevance comes from the questions that the answer answers, asked blind to the query; evasions have none."""
    caller = make_scripted(questions=["When does the ferry leave?"] * 3)
    verdicts = judge(caller=caller, reverse=True)
    blind = next(call for call in caller.calls if call.kind == "questions")
    assert [part.name for part in parse_fences(blind.messages[1].text)] == ["answer"]
    assert verdicts.answer is not None
    assert 0.3 < verdicts.answer.relevance < 1
    assert not any("relevance" in list_requested_ids(call) for call in caller.calls)
    evasive = judge(caller=make_scripted(noncommittal=True), reverse=True)
    assert evasive.answer is not None
    assert evasive.answer.relevance == 0
    failed = judge(caller=Failing("questions", CallFailed("no")), reverse=True)
    assert failed.answer is None
    assert failed.failures == {"answer": "no"}
