"""Laws of the LLM judge's core: from what a model says by our ids to verdicts, and nothing ever shifts."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.errors import Stopped
from ragfault.judges import load_judge
from ragfault.judges.lens import Bars, Lens, Levels, Wording, load_lens
from ragfault.judges.llm.calls import Call, Caller, CallFailed, Reply
from ragfault.judges.llm.fences import unfenced
from ragfault.judges.llm.judging import judged, planned
from ragfault.judges.llm.prompts import Prompts, load_prompts
from ragfault.judges.llm.settings import Settings
from ragfault.records import Chunk, Citation, Evidence, Trace, Verdicts
from scripted import Scripted, right, wanted

PROMPTS = load_prompts(load_lens("general"))
TRACE = Trace(
    id="7",
    query="When does the ferry leave, and what does it cost?",
    chunks=(
        Chunk(id="x", text="The ferry leaves at noon.\nOn Sundays it leaves at one."),
        Chunk(id="y", text="Buses cost two euros."),
        Chunk(id="z", text="The pier is made of oak."),
    ),
    answer="The ferry leaves at noon [x]. It costs nine euros. The pier is old.",
    citations=(Citation(chunk="x"), Citation(chunk="gone", claim="It costs nine euros.")),
    facts=("It leaves at noon.", "It costs eight euros."),
    reference=("At noon. Eight euros.", "At twelve."),
)


def judge(
    one: Trace = TRACE, caller: Caller | None = None, prompts: Prompts = PROMPTS, **options: Any
) -> Verdicts:
    """The verdicts on a trace by a scripted model."""
    return asyncio.run(judged(one, caller or Scripted(), Settings(model="m", **options), prompts, "llm/1"))


def saying(**said: dict[str, Any]) -> Scripted:
    """A model that says this, and what is usual beside."""
    return Scripted(lambda call: json.dumps(right(call, **said)))


# --- what is asked ---------------------------------------------------------------------------------


def test_two_calls_say_all():
    """Two calls make every part, in the order of the trace, with as many items as there are things."""
    caller = Scripted()
    seen = judge(caller=caller)
    assert [call.kind for call in caller.calls] == ["retrieval", "generation"]
    assert not seen.failures
    assert (seen.trace, seen.judge) == ("7", "llm/1")
    assert [one.chunk for one in seen.chunk or ()] == [one.chunk for one in seen.use or ()] == ["x", "y", "z"]
    answer = TRACE.answer or ""
    assert [answer[one.start : one.end] for one in seen.claim or ()] == [
        one.claim for one in seen.claim or ()
    ]
    assert tuple(one.fact for one in seen.fact or ()) == TRACE.facts
    assert tuple(one.statement for one in seen.recall or ()) == TRACE.facts
    assert [one.claim for one in seen.truth or ()] == [one.claim for one in seen.claim or ()]
    assert [one.chunk for one in seen.citation or ()] == ["x", "gone"]
    assert seen.answer is not None
    assert seen.missing == seen.harm == ()


def test_claims_are_ours():
    """The claims of an answer are those that the judge of words finds in it."""
    lexical = load_judge("lexical").observe([TRACE])[0]
    assert [(one.claim, one.start) for one in judge().claim or ()] == [
        (one.claim, one.start) for one in lexical.claim or ()
    ]


def test_retrieval_is_judged_without_the_answer():
    """The call on what was retrieved shows nothing of answer or citations, and is the same with any answer."""
    first = planned(TRACE, Settings(model="m"), PROMPTS)[0]
    assert {one.name[0] for one in unfenced(first.messages[1].text)} == {"q", "c", "t"}
    other = msgspec.structs.replace(TRACE, answer="Nobody knows.", citations=None)
    assert planned(other, Settings(model="m"), PROMPTS)[0] == first


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"chunks": None}, ["generation"]),
        ({"chunks": ()}, ["generation"]),
        ({"answer": None}, ["retrieval"]),
        ({"answer": "  "}, ["retrieval"]),
        ({"chunks": (Chunk(id="a"), Chunk(id="b"))}, ["generation"]),
        ({"chunks": None, "answer": None}, []),
    ],
)
def test_nothing_to_ask(change: dict[str, Any], kinds: list[str]):
    """Without chunks there is no call on them, without an answer none on it; what follows of itself is said."""
    one = msgspec.structs.replace(TRACE, **change)
    caller = Scripted()
    seen = judge(one, caller)
    assert [call.kind for call in caller.calls] == kinds
    assert not seen.failures
    if change.get("chunks", TRACE.chunks) == ():
        assert seen.chunk == seen.use == ()
        assert seen.missing == load_judge("lexical").observe([one])[0].missing != ()
        assert {item.covered for item in seen.recall or ()} == {False}
        assert {(item.support, item.p) for item in seen.claim or ()} == {("unsupported", 0.0)}
    elif "chunks" in change:
        assert seen.chunk is seen.missing is seen.use is seen.claim is seen.recall is None
    if change.get("answer") == "  ":
        assert seen.answer is not None
        assert seen.answer.relevance == 0.0
        assert seen.claim == seen.truth == seen.harm == ()
        assert not any(item.used for item in seen.use or ())


def test_only_what_there_is_is_asked_for():
    """Of a trace without facts, citations and references none of them is asked for."""
    one = Trace(id="1", query="When?", chunks=TRACE.chunks, answer="At noon the ferry leaves.")
    upper, lower = planned(one, Settings(model="m"), PROMPTS)
    assert list(upper.schema["properties"]) == ["chunks", "missing"]
    assert list(lower.schema["properties"]) == ["claims", "used", "aspects", "relevance", "refused", "harm"]
    seen = judge(one)
    assert seen.recall is seen.fact is seen.citation is seen.truth is seen.similarity is None


@given(votes=st.integers(1, 3), reverse=st.booleans(), context=st.sampled_from([None, 6_000, 9_000]))
@settings(max_examples=20, deadline=None)
def test_what_is_planned_is_asked(votes: int, reverse: bool, context: int | None):
    """The calls that are planned are those that are made of a trace of which nothing lacks."""
    options: dict[str, Any] = {"votes": votes, "reverse": reverse, "context": context}
    caller = Scripted()
    judge(caller=caller, **options)
    plan = planned(TRACE, Settings(model="m", **options), PROMPTS)
    assert {(call.content, call.vote) for call in caller.calls} == {
        (call.content, call.vote) for call in plan
    }
    assert len(caller.calls) == len(plan)


# --- what is said ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 1_000))
@settings(max_examples=30, deadline=None)
def test_order_is_nothing(seed: int):
    """A reply whose items and fields stand in another order gives the same verdicts."""
    said = {"chunks": {"c2": {"relevance": 0.8}}, "claims": {"s1": {"support": "contradicted", "p": 0.1}}}

    def shuffled(call: Call) -> str:
        reply = list(right(call, **said).items())
        random.Random(seed).shuffle(reply)
        for _, held in reply:
            if isinstance(held, list):
                random.Random(seed + 1).shuffle(held)
        return json.dumps(dict(reply))

    assert judge(caller=Scripted(shuffled)) == judge(caller=saying(**said))


DISTINCT = {
    "chunks": {f"c{n}": {"relevance": n / 10} for n in range(1, 4)},
    "claims": {f"s{n}": {"p": 0.5 + n / 10} for n in range(1, 4)},
}
THINGS = {"chunk": ["x", "y", "z"], "claim": [one.claim for one in judge().claim or ()]}
NUMBERS = {"chunk": [0.1, 0.2, 0.3], "claim": [0.6, 0.7, 0.8]}


SPOILERS: dict[str, Callable[[list[dict[str, Any]], dict[str, Any]], object]] = {
    "keep": lambda held, item: None,
    "drop": lambda held, item: held.remove(item),
    "double": lambda held, item: held.append({**item, "reason": "another"}),
    "strange": lambda held, item: item.update(id="c9"),
    "bare": lambda held, item: item.update(id=item["id"][1:]),
    "nameless": lambda held, item: item.pop("id"),
    "spoil": lambda held, item: item.update(relevance=7, p="much"),
}


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_shifts(data: st.DataObject):
    """Whatever a model leaves out, doubles, renames or spoils, what it says of a thing is said of that or lost."""

    def spoilt(call: Call) -> str:
        reply = right(call, **DISTINCT)
        for held in (reply.get("chunks", []), reply.get("claims", [])):
            for item in list(held):
                SPOILERS[data.draw(st.sampled_from(["keep", *SPOILERS]))](held, item)
        text = json.dumps(reply)
        return text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text

    seen = judge(caller=Scripted(spoilt))
    for part, name, things in (("chunk", "c", seen.chunk), ("claim", "s", seen.claim)):
        number = {
            getattr(one, part): getattr(one, "p" if part == "claim" else "relevance") for one in things or ()
        }
        for place, known in enumerate(THINGS[part], 1):
            assert number.get(known) in {None, NUMBERS[part][place - 1]}
            assert known in number or any(sign in seen.failures[part] for sign in (f"{name}{place}", "empty"))


@given(text=st.one_of(st.text(), st.text(alphabet="{}[]',:\\cs123 \nidtrue0.9")))
@settings(max_examples=150, deadline=None)
def test_any_reply(text: str):
    """Whatever a model says, nothing is raised, and each part is whole or named as lost."""
    seen = judge(caller=Scripted(lambda call: text))
    assert seen.chunk is None or len(seen.chunk) == 3 or "chunk" in seen.failures
    assert seen.answer is not None or "answer" in seen.failures
    msgspec.json.encode(seen)


# --- repairs and failures --------------------------------------------------------------------------


def test_one_repair_for_what_lacks():
    """What a reply lacks is asked for once more, by id alone, after the conversation; the rest is not asked again."""

    def forgetful(call: Call) -> str:
        reply = right(call)
        if len(call.messages) == 2 and "chunks" in reply:
            del reply["chunks"][1]
            reply["chunks"][1]["relevance"] = 3
        return json.dumps(reply)

    caller = Scripted(forgetful)
    seen = judge(caller=caller)
    assert not seen.failures
    assert seen.chunk is not None
    assert len(seen.chunk) == 3
    first, again = [call for call in caller.calls if call.kind == "retrieval"]
    assert again.messages[:2] == first.messages
    assert [message.role for message in again.messages] == ["system", "user", "assistant", "user"]
    assert again.messages[3].text.endswith("chunks (of c2, c3)")
    assert list(again.schema["properties"]) == ["chunks"]
    assert again.content != first.content
    assert len(caller.calls) == 3


def test_what_lacks_twice_is_lost():
    """What is left out twice is named; what was judged stays, and no third request is made."""

    def stubborn(call: Call) -> str:
        reply = right(call)
        reply["chunks"] = [one for one in reply.get("chunks", []) if one["id"] == "c2"]
        reply.pop("harm", None)
        return json.dumps(reply)

    caller = Scripted(stubborn)
    seen = judge(caller=caller)
    assert seen.failures == {
        "chunk": "no verdict on chunks c1, c3 after a repair request",
        "harm": "no verdict on harm after a repair request",
    }
    assert [one.chunk for one in seen.chunk or ()] == ["y"]
    assert seen.harm is None
    assert seen.answer is not None
    assert len(caller.calls) == 4


class Failing(Scripted):
    """A caller that cannot carry one kind of call."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__()
        self.kind, self.error = kind, error

    async def ask(self, call: Call) -> Reply:
        """Fail, or answer."""
        if call.kind == self.kind:
            raise self.error
        return await super().ask(call)


def test_a_call_that_fails():
    """A call that fails loses the parts that it was to make, with its reason, and no other."""
    seen = judge(caller=Failing("retrieval", CallFailed("429 six times")))
    assert seen.failures == dict.fromkeys(("chunk", "missing", "recall"), "429 six times")
    assert seen.claim is not None
    assert len(seen.claim) == 3
    seen = judge(caller=Failing("generation", CallFailed("cut")))
    assert set(seen.failures) == {"claim", "use", "citation", "fact", "truth", "answer", "harm"}
    assert seen.chunk is not None
    assert seen.answer is None


def test_what_stops_passes():
    """What stops the judge altogether is raised, after the other call has ended."""
    caller = Failing("generation", Stopped("the key is refused"))
    with pytest.raises(Stopped, match="refused"):
        judge(caller=caller)
    assert [call.kind for call in caller.calls] == ["retrieval"]


@pytest.mark.parametrize(
    "text", ["", "  \n", "I'm sorry, but I cannot help.", "I can’t assist with this request."]
)
def test_refusals_of_the_model(text: str):
    """An empty reply and a refusal fail the call at once, with the reason."""
    caller = Scripted(lambda call: text)
    seen = judge(caller=caller)
    assert len(caller.calls) == 2
    assert all("refused" in reason or "empty" in reason for reason in seen.failures.values())
    assert len(seen.failures) == 10


# --- claims and evidence ---------------------------------------------------------------------------


def claim(prompts: Prompts = PROMPTS, **said: Any):
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
    assert lost.unquoted
    assert not claim(chunk="", quote="").unquoted


def test_bars_and_levels_of_a_lens():
    """Levels of relevance and bars of support are those of the lens; its guidance stands in the prompts."""
    lens = Lens(
        name="strict",
        levels=Levels(high=0.95, medium=0.9, low=0.6),
        support=Bars(supported=0.8, inferred=0.6),
        prompts=Wording(guidance="Mind the piers."),
    )
    prompts = load_prompts(lens)
    assert claim(prompts, p=0.7).support == "inferred"
    low = claim(prompts, p=0.55)
    assert (low.support, low.p) == ("unsupported", 0.49)
    assert "bar of the lens" in (low.reason or "")
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
    call = planned(one, Settings(model="m"), PROMPTS)[0]
    assert call.messages[1].images == (PIXEL,)
    assert "Image 1 belongs to c1." in call.messages[1].text
    assert PIXEL not in call.messages[1].text
    seen = judge(one)
    assert seen.failures.keys() == {"chunk", "use"}
    assert "c2 is an image that is not sent" in seen.failures["chunk"]
    assert [item.chunk for item in seen.chunk or ()] == ["a", "c"]
    assert not judge(one, images="url").failures
    assert planned(one, Settings(model="m", images="none"), PROMPTS)[0].messages[1].images == ()


def test_tables():
    """A table is shown as Markdown; words that stand only there are borne out by the whole chunk."""
    text = '[{"day": "Sunday", "leaves": "13:00"}]'
    chunks = (Chunk(id="a", kind="table", text=text),)
    one = Trace(id="1", query="When?", chunks=chunks, answer="The ferry leaves at 13:00.")
    shown = unfenced(planned(one, Settings(model="m"), PROMPTS)[0].messages[1].text)
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
    assert [one.name for one in unfenced(blind.messages[1].text)] == ["answer"]
    assert seen.answer is not None
    assert 0.3 < seen.answer.relevance < 1
    assert not any("relevance" in wanted(call) for call in caller.calls)
    evasive = judge(caller=saying(noncommittal=True), reverse=True)
    assert evasive.answer is not None
    assert evasive.answer.relevance == 0
    failed = judge(caller=Failing("questions", CallFailed("no")), reverse=True)
    assert failed.answer is None
    assert failed.failures == {"answer": "no"}
