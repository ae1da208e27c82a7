"""Laws of the LLM judge's verdicts: evidence, levels, pictures, tables, votes, and relevance by questions."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.domain.profile import DomainProfile, PromptWording, RelevanceLevels, SupportThresholds
from ragfault.judges.llm.prompts.fences import parse_fences
from ragfault.judges.llm.prompts.instructions import PromptSet, load_prompts
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import plan_calls
from ragfault.judges.llm.transport.calls import CallFailed
from ragfault.records import Chunk, Evidence, Trace, Verdicts
from scripted import PROMPTS, TRACE, Failing, Scripted, judge, right, saying, wanted

# --- claims and evidence ---------------------------------------------------------------------------


def claim(prompts: PromptSet = PROMPTS, **said: Any):
    """What becomes of what is said of the first claim."""
    return (judge(caller=saying(claims={"s1": said}), prompts=prompts).claim or ())[0]


@given(p=st.floats(0, 1), support=st.sampled_from(["supported", "inferred", "unsupported", "contradicted"]))
@settings(max_examples=40, deadline=None)
def test_probability_goes_with_the_label(p: float, support: str):
    """A probability lies on the side of the bar that the label says; near the bar it is unsure."""
    seen = claim(support=support, p=p)
    assert seen.support == support
    assert seen.p is not None
    assert (seen.p >= 0.5) == (support in {"supported", "inferred"})
    assert seen.p in {p, 0.5, 0.49}
    assert seen.unsure == (1 / 3 <= seen.p <= 2 / 3)


def test_quotes_are_looked_up():
    """Evidence is where the words stand: in the chunk named, else in another; words that stand nowhere are marked."""
    assert claim(chunk="c1", quote="Ferry  leaves at noon").evidence == (
        Evidence(chunk="x", start=4, end=24),
    )
    assert claim(chunk="c3", quote="cost two euros").evidence == (Evidence(chunk="y", start=6, end=20),)
    assert claim(chunk="c9", quote="cost two euros").evidence == (Evidence(chunk="y", start=6, end=20),)
    lost = claim(chunk="c1", quote="leaves at midnight")
    assert lost.evidence == ()
    assert lost.misquoted
    assert not claim(chunk="", quote="").misquoted


def test_bars_and_levels_of_a_lens():
    """Levels of relevance and bars of support are those of the lens; its guidance stands in the prompts."""
    lens = DomainProfile(
        name="strict",
        levels=RelevanceLevels(high=0.95, medium=0.9, low=0.6),
        support=SupportThresholds(supported=0.8, inferred=0.6),
        prompts=PromptWording(guidance="Mind the piers."),
    )
    prompts = load_prompts(lens)
    assert claim(prompts, p=0.7).support == "inferred"
    low = claim(prompts, p=0.55)
    assert (low.support, low.p) == ("unsupported", 0.49)
    assert "threshold of the profile" in (low.reason or "")
    seen = judge(caller=saying(chunks={"c1": {"relevance": 0.91}}), prompts=prompts)
    assert [one.level for one in seen.chunk or ()] == ["medium", "none", "none"]


def test_grounded_is_the_least_probable_claim():
    """An answer is as grounded as its least probable claim; that is not known where one is lost, or without chunks."""
    seen = judge(caller=saying(claims={"s2": {"support": "unsupported", "p": 0.2}}))
    assert seen.answer is not None
    assert seen.answer.grounded == 0.2
    lost = judge(caller=saying(claims={"s2": {"p": 7}}))
    assert lost.answer is not None
    assert lost.answer.grounded is None
    none = judge(msgspec.structs.replace(TRACE, chunks=None))
    assert none.answer is not None
    assert none.answer.grounded is None


def test_the_best_reference_counts():
    """Of several references that the chunks cover best is the one that recall is told of."""
    references = ("The pier is old. The sea is cold. Gulls cry.", "It leaves at twelve. Buses run daily.")
    one = msgspec.structs.replace(TRACE, facts=None, reference=references)
    said = {f"t{n}": {"covered": n in {1, 4}} for n in range(1, 6)}
    seen = judge(one, saying(statements=said))
    assert [(item.statement, item.covered) for item in seen.recall or ()] == [
        ("It leaves at twelve.", True),
        ("Buses run daily.", False),
    ]


def test_citations_that_point_nowhere():
    """A citation of a chunk that was not retrieved supports nothing, and nobody is asked about it."""
    caller = Scripted()
    seen = judge(caller=caller)
    assert [(one.supports, one.p) for one in seen.citation or ()] == [(True, 0.9), (False, 0.0)]
    assert wanted(caller.calls[1])["citations"] == ["k1"]


# --- pictures and tables ---------------------------------------------------------------------------

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_pictures():
    """A picture in the trace goes with the call, an address only where that is asked for; what is not sent is lost."""
    chunks = (
        Chunk(id="a", kind="image", text=PIXEL),
        Chunk(id="b", kind="image", metadata={"image_url": "https://pier.example/b.png"}),
        Chunk(id="c", text="Words."),
    )
    one = Trace(id="1", query="What is shown?", chunks=chunks, answer="A pier is shown.")
    call = plan_calls(one, LLMSettings(model="m"), PROMPTS)[0]
    assert call.messages[1].images == (PIXEL,)
    assert "Image 1 belongs to c1." in call.messages[1].text
    assert PIXEL not in call.messages[1].text
    seen = judge(one)
    assert seen.failures.keys() == {"chunk", "use"}
    assert "c2 is an image that is not sent" in seen.failures["chunk"]
    assert [item.chunk for item in seen.chunk or ()] == ["a", "c"]
    assert not judge(one, images="url").failures
    assert plan_calls(one, LLMSettings(model="m", images="none"), PROMPTS)[0].messages[1].images == ()


def test_tables():
    """A table is shown as Markdown; words that stand only there are borne out by the whole chunk."""
    text = '[{"day": "Sunday", "leaves": "13:00"}]'
    chunks = (Chunk(id="a", kind="table", text=text),)
    one = Trace(id="1", query="When?", chunks=chunks, answer="The ferry leaves at 13:00.")
    shown = parse_fences(plan_calls(one, LLMSettings(model="m"), PROMPTS)[0].messages[1].text)
    assert shown[1].text == "| day | leaves |\n| --- | --- |\n| Sunday | 13:00 |"
    seen = judge(one, saying(claims={"s1": {"chunk": "c1", "quote": "| Sunday | 13:00 |"}}))
    assert (seen.claim or ())[0].evidence == (Evidence(chunk="a", start=0, end=len(text)),)


# --- votes -----------------------------------------------------------------------------------------


def voting(*each: dict[str, Any], votes: int = 3) -> Verdicts:
    """The verdicts where each vote says something else."""
    return judge(caller=Scripted(lambda call: json.dumps(right(call, **each[call.vote]))), votes=votes)


def test_votes():
    """Labels are those of the majority, numbers the mean, with the standard deviation of the votes beside."""
    seen = voting(
        {
            "claims": {"s1": {"support": "supported", "p": 0.9}},
            "chunks": {"c1": {"relevance": 0.2}},
            "missing": ["a"],
        },
        {"claims": {"s1": {"support": "unsupported", "p": 0.1}}, "chunks": {"c1": {"relevance": 0.4}}},
        {
            "claims": {"s1": {"support": "supported", "p": 0.8}},
            "chunks": {"c1": {"relevance": 0.9}},
            "missing": ["b"],
        },
    )
    claim, chunk = (seen.claim or ())[0], (seen.chunk or ())[0]
    assert (claim.support, claim.p) == ("supported", pytest.approx(0.6))
    assert claim.spread == pytest.approx(0.3559, abs=1e-4)
    assert chunk.relevance == pytest.approx(0.5)
    assert chunk.spread == pytest.approx(0.2944, abs=1e-4)
    assert seen.missing == ("a",)
    assert seen.answer is not None
    assert seen.answer.spread == 0.0
    assert (judge().chunk or ())[0].spread is None


def test_ties_go_to_caution():
    """Where votes are even, the label counts that credits the system least."""
    seen = voting(
        {
            "claims": {"s1": {"support": "supported"}},
            "refused": True,
            "truth": {"s1": {"status": "supported"}},
        },
        {"claims": {"s1": {"support": "unsupported", "p": 0.4}}, "used": {"c1": {"used": False}}},
        votes=2,
    )
    assert (seen.claim or ())[0].support == "unsupported"
    assert (seen.truth or ())[0].status == "unknown"
    assert not (seen.use or ())[0].used
    assert seen.answer is not None
    assert seen.answer.refused


def test_a_vote_that_fails():
    """A thing that most of the votes speak of is judged by these; one that no more than half speak of is lost."""
    bad = {"chunks": {"c1": {"relevance": 9}}}
    assert not voting(bad, {}, {}).failures
    assert "c1" in voting(bad, bad, {}).failures["chunk"]


# --- the questions that an answer answers ----------------------------------------------------------


def test_reverse():
    """Relevance comes from the questions that the answer answers, asked blind to the query; evasions have none."""
    caller = saying(questions=["When does the ferry leave?"] * 3)
    seen = judge(caller=caller, reverse=True)
    blind = next(call for call in caller.calls if call.kind == "questions")
    assert [one.name for one in parse_fences(blind.messages[1].text)] == ["answer"]
    assert seen.answer is not None
    assert 0.3 < seen.answer.relevance < 1
    assert not any("relevance" in wanted(call) for call in caller.calls)
    evasive = judge(caller=saying(noncommittal=True), reverse=True)
    assert evasive.answer is not None
    assert evasive.answer.relevance == 0
    failed = judge(caller=Failing("questions", CallFailed("no")), reverse=True)
    assert failed.answer is None
    assert failed.failures == {"answer": "no"}
