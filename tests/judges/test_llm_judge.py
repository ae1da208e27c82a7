"""Laws of the LLM judge's core: replies by id become verdicts, and nothing ever shifts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.llm.judge import LLMJudge
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import plan_calls
from ragfault.judges.llm.transport.reply_cache import CallFailed, ModelCall, create_key_builder
from ragfault.judges.loading import load_judge
from ragfault.model.errors import JudgeStopped
from ragfault.model.records import Chunk, Trace
from scripted import PROMPTS, TRACE, Failing, Scripted, complete_reply, judge, make_scripted, parse_fences

# --- identity --------------------------------------------------------------------------------------


def test_fingerprint_and_cache_keys_are_stable():
    """Fingerprints and cache keys stay byte-identical, so that runs stay comparable and paid replies usable."""
    prefix = "prompts=0b762636 temperature=0 tokens=4096"
    assert LLMJudge("ollama/llama3").fingerprint == f"llm/2 ollama/llama3 at=localhost:11434 {prefix}"
    judge = LLMJudge("m", votes=3, reverse=True, base_url="https://h.example/v1")
    assert judge.fingerprint == f"llm/2 openai/m at=h.example {prefix} votes=3 reverse"
    chunk = Chunk(id="a", text="It opens at 6:30.")
    trace = Trace(id="1", query="When?", chunks=(chunk,), answer="It opens at 6:30.")
    settings = LLMSettings(model="m", base_url="http://localhost:8000/v1")
    build_key = create_key_builder(settings)
    assert [build_key(call).hex() for call in plan_calls(trace, settings, PROMPTS)] == [
        "46deefaf1b4a887eb42a171bdc05082a12aef7bb005c1933399cbb1c07eec346",
        "58d970d196e6e2e7b95aa4fed45ad5ffa7db6b406a9d65e26e32e551fe0eb6ae",
    ]


# --- requests --------------------------------------------------------------------------------


def test_two_calls_say_all():
    """Two calls make every part, in the order of the trace, with as many items as there are things."""
    caller = Scripted()
    seen = judge(caller=caller)
    assert [call.kind for call in caller.calls] == ["retrieval", "generation"]
    assert not seen.failures
    assert (seen.trace, seen.judge) == ("7", "llm/2")
    assert [item.chunk for item in seen.chunk or ()] == [item.chunk for item in seen.use or ()] == ["x", "y", "z"]
    answer = TRACE.answer or ""
    assert [answer[item.start : item.end] for item in seen.claim or ()] == [item.claim for item in seen.claim or ()]
    assert tuple(item.fact for item in seen.fact or ()) == TRACE.facts
    assert tuple(item.statement for item in seen.recall or ()) == TRACE.facts
    assert [item.claim for item in seen.truth or ()] == [item.claim for item in seen.claim or ()]
    assert [item.chunk for item in seen.citation or ()] == ["x", "gone"]
    assert seen.answer is not None
    assert seen.missing == seen.harm == ()


def test_claims_are_ours():
    """The claims of an answer are those that the judge of words finds in it."""
    lexical = load_judge("lexical").observe([TRACE])[0]
    assert [(item.claim, item.start) for item in judge().claim or ()] == [
        (item.claim, item.start) for item in lexical.claim or ()
    ]


def test_retrieval_is_judged_without_the_answer():
    """The call on what was retrieved shows nothing of answer or citations, and is the same with any answer."""
    first = plan_calls(TRACE, LLMSettings(model="m"), PROMPTS)[0]
    assert {item.name[0] for item in parse_fences(first.messages[1].text)} == {"q", "c", "t"}
    other = msgspec.structs.replace(TRACE, answer="Nobody knows.", citations=None)
    assert plan_calls(other, LLMSettings(model="m"), PROMPTS)[0] == first


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
    item = msgspec.structs.replace(TRACE, **change)
    caller = Scripted()
    seen = judge(item, caller)
    assert [call.kind for call in caller.calls] == kinds
    assert not seen.failures
    if change.get("chunks", TRACE.chunks) == ():
        assert seen.chunk == seen.use == ()
        assert seen.missing == load_judge("lexical").observe([item])[0].missing != ()
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
    item = Trace(id="1", query="When?", chunks=TRACE.chunks, answer="At noon the ferry leaves.")
    upper, lower = plan_calls(item, LLMSettings(model="m"), PROMPTS)
    assert list(upper.schema["properties"]) == ["chunks", "missing"]
    assert list(lower.schema["properties"]) == ["claims", "used", "aspects", "relevance", "refused", "harm"]
    seen = judge(item)
    assert seen.recall is seen.fact is seen.citation is seen.truth is seen.similarity is None


@pytest.mark.parametrize(("kinds", "call"), [(("claim",), "generation"), (("chunk", "missing"), "retrieval")])
def test_a_call_none_of_whose_verdicts_is_read_is_left_out(kinds: tuple[str, ...], call: str):
    """The other call is the same as among two, so that its verdicts are the same and a paid reply is used again."""
    caller, both = Scripted(), Scripted()
    seen, full = judge(caller=caller, verdicts=kinds), judge(caller=both)
    assert [item.kind for item in caller.calls] == [call]
    assert caller.calls == [item for item in both.calls if item.kind == call]
    assert all(getattr(seen, kind) == getattr(full, kind) is not None for kind in kinds)
    assert not seen.failures
    assert (seen.chunk is None, seen.claim is None) == (call == "generation", call == "retrieval")


@given(votes=st.integers(1, 3), reverse=st.booleans(), context=st.sampled_from([None, 6_000, 9_000]))
@settings(max_examples=20, deadline=None)
def test_what_is_planned_is_asked(votes: int, reverse: bool, context: int | None):
    """The calls that are planned are those that are made of a trace of which nothing lacks."""
    options: dict[str, Any] = {"votes": votes, "reverse": reverse, "context": context}
    caller = Scripted()
    judge(caller=caller, **options)
    plan = plan_calls(TRACE, LLMSettings(model="m", **options), PROMPTS)
    assert {(call.content, call.vote) for call in caller.calls} == {(call.content, call.vote) for call in plan}
    assert len(caller.calls) == len(plan)


# --- what is said ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 1_000))
@settings(max_examples=30, deadline=None)
def test_order_is_nothing(seed: int):
    """A reply whose items and fields stand in another order gives the same verdicts."""
    reply = {"chunks": {"c2": {"relevance": 0.8}}, "claims": {"s1": {"support": "contradicted", "p": 0.1}}}

    def shuffled(call: ModelCall) -> str:
        fields = list(complete_reply(call, **reply).items())
        random.Random(seed).shuffle(fields)
        for _, entries in fields:
            if isinstance(entries, list):
                random.Random(seed + 1).shuffle(entries)
        return json.dumps(dict(fields))

    assert judge(caller=Scripted(shuffled)) == judge(caller=make_scripted(**reply))


DISTINCT = {
    "chunks": {f"c{n}": {"relevance": n / 10} for n in range(1, 4)},
    "claims": {f"s{n}": {"p": 0.5 + n / 10} for n in range(1, 4)},
}
THINGS = {"chunk": ["x", "y", "z"], "claim": [item.claim for item in judge().claim or ()]}
NUMBERS = {"chunk": [0.1, 0.2, 0.3], "claim": [0.6, 0.7, 0.8]}


SPOILERS: dict[str, Callable[[list[dict[str, Any]], dict[str, Any]], object]] = {
    "keep": lambda entries, item: None,
    "drop": lambda entries, item: entries.remove(item),
    "double": lambda entries, item: entries.append({**item, "reason": "another"}),
    "strange": lambda entries, item: item.update(id="c9"),
    "bare": lambda entries, item: item.update(id=item["id"][1:]),
    "nameless": lambda entries, item: item.pop("id"),
    "spoil": lambda entries, item: item.update(relevance=7, p="much"),
}


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_shifts(data: st.DataObject):
    """Whatever a model leaves out, doubles, renames or spoils, what it says of a thing is said of that or lost."""

    def spoilt(call: ModelCall) -> str:
        reply = complete_reply(call, **DISTINCT)
        for entries in (reply.get("chunks", []), reply.get("claims", [])):
            for item in list(entries):
                SPOILERS[data.draw(st.sampled_from(["keep", *SPOILERS]))](entries, item)
        text = json.dumps(reply)
        return text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text

    seen = judge(caller=Scripted(spoilt))
    for part, name, things in (("chunk", "c", seen.chunk), ("claim", "s", seen.claim)):
        number = {getattr(item, part): getattr(item, "p" if part == "claim" else "relevance") for item in things or ()}
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

    def forgetful(call: ModelCall) -> str:
        reply = complete_reply(call)
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

    def stubborn(call: ModelCall) -> str:
        reply = complete_reply(call)
        reply["chunks"] = [item for item in reply.get("chunks", []) if item["id"] == "c2"]
        reply.pop("harm", None)
        return json.dumps(reply)

    caller = Scripted(stubborn)
    seen = judge(caller=caller)
    assert seen.failures == {
        "chunk": "no verdict on chunks c1, c3 after a repair request",
        "harm": "no verdict on harm after a repair request",
    }
    assert [item.chunk for item in seen.chunk or ()] == ["y"]
    assert seen.harm is None
    assert seen.answer is not None
    assert len(caller.calls) == 4


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
    caller = Failing("generation", JudgeStopped("the key is refused"))
    with pytest.raises(JudgeStopped, match="refused"):
        judge(caller=caller)
    assert [call.kind for call in caller.calls] == ["retrieval"]


@pytest.mark.parametrize("text", ["", "  \n", "I'm sorry, but I cannot help.", "I can’t assist with this request."])
def test_refusals_of_the_model(text: str):
    """An empty reply and a refusal fail the call at once, with the reason."""
    caller = Scripted(lambda call: text)
    seen = judge(caller=caller)
    assert len(caller.calls) == 2
    assert all("refused" in reason or "empty" in reason for reason in seen.failures.values())
    assert len(seen.failures) == 10
