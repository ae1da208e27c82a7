"""Laws of long traces: what does not fit into one request is split, and nothing is lost or mixed up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.judges.llm.prompts.request_plan import (
    FENCE_TOKENS,
    estimate_fenced,
    estimate_tokens,
    pack_groups,
    split_text,
)
from ragfault.judges.llm.prompts.untrusted_text import FencedText
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import plan_calls
from ragfault.judges.llm.transport.reply_cache import ModelCall
from ragfault.model.records import Chunk, Trace
from scripted import PROMPTS, TRACE, Scripted, complete_reply, judge, list_requested_ids, parse_fences

WORDS = "harbour pier ferry noon ticket sailor gull winter concrete"


def long(chunks: int, words: int, claims: int, facts: int = 0) -> Trace:
    """Build a trace with numbers of chunks, words per chunk, claims and facts."""
    chunk_list = tuple(Chunk(id=f"n{number}", text=f"Chunk {number}. " + "word " * words) for number in range(chunks))
    answer = " ".join(f"The {WORDS.split()[number % 9]} number {number} is open." for number in range(claims))
    fact_texts = tuple(f"The gate {number} is shut." for number in range(facts))
    return Trace(id="1", query="What is open?", chunks=chunk_list, answer=answer, facts=fact_texts or None)


@given(
    chunks=st.integers(0, 12),
    words=st.integers(1, 6_000),
    claims=st.integers(1, 90),
    facts=st.integers(0, 30),
    context=st.sampled_from([None, 8_000, 12_000, 40_000]),
)
@settings(max_examples=40, deadline=None)
def test_everything_is_asked_once(chunks: int, words: int, claims: int, facts: int, context: int | None):
    """However long a trace is, each call fits, each chunk is shown whole, each thing asked about where it is shown."""
    trace = long(chunks, words, claims, facts)
    calls = plan_calls(trace, LLMSettings(model="m", context=context), PROMPTS)
    texts_by_name: dict[str, str] = {}
    for call in calls:
        size = sum(estimate_tokens(message.text) for message in call.messages)
        assert context is None or size + 4_096 <= context
        parts = parse_fences(call.messages[1].text)
        names = {part.name.split()[0] for part in parts}
        for ids in list_requested_ids(call).values():
            assert {name for name in ids if name[0] != "k"} <= names
        if call.kind == "retrieval" and "chunks" in list_requested_ids(call):
            for part in parts:
                if part.name[0] == "c":
                    name = part.name.split()[0]
                    texts_by_name[name] = texts_by_name.get(name, "") + part.text
    assert {name: text.split() for name, text in texts_by_name.items()} == {
        f"c{number}": chunk.text.split() for number, chunk in enumerate(trace.chunks or (), 1)
    }
    verdicts = judge(trace, context=context)
    assert not verdicts.failures
    assert len(verdicts.chunk or ()) == chunks
    assert len(verdicts.claim or ()) == claims
    assert len(verdicts.fact or ()) == len(verdicts.recall or ()) == facts


def test_a_long_reply_is_split_too():
    """Claims are asked about in groups that a reply has room for, each with the whole answer in sight."""
    calls = [call for call in plan_calls(long(2, 10, 80), LLMSettings(model="m"), PROMPTS) if call.kind == "generation"]
    groups = [list_requested_ids(call).get("claims", []) for call in calls]
    assert len(groups) > 1
    assert [name for group in groups for name in group] == [f"s{n}" for n in range(1, 81)]
    assert all("s80" in {part.name for part in parse_fences(call.messages[1].text)} for call in calls)
    assert ["relevance" in list_requested_ids(call) for call in calls] == [True] + [False] * (len(calls) - 1)


SPLIT = msgspec.structs.replace(
    long(1, 9_000, 1), answer="The ferry is open.", chunks=(Chunk(id="n", text="word " * 9_000),)
)


def by_piece(call: ModelCall, **fields: list[Any]) -> str:
    """Return a reply that differs for each piece of the chunk."""
    name = next((part.name for part in parse_fences(call.messages[1].text) if part.name[0] == "c"), "")
    index = int(name.split()[2]) - 1 if " part " in name else 0
    return json.dumps(
        complete_reply(call, **{field: values[min(index, len(values) - 1)] for field, values in fields.items()})
    )


def test_the_best_of_several_groups_counts():
    """A chunk in pieces is as relevant as its best piece; a claim as well supported as by the best group of chunks."""
    fields: dict[str, list[Any]] = {
        "chunks": [{"c1": {"relevance": value}} for value in (0.1, 0.8, 0.3)],
        "claims": [
            {"s1": {"support": "unsupported", "p": 0.3}},
            {"s1": {"support": "contradicted", "p": 0.1}},
            {"s1": {"support": "inferred", "p": 0.6}},
        ],
        "used": [{"c1": {"used": value}} for value in (False, True, False)],
    }
    caller = Scripted(lambda call: by_piece(call, **fields))
    verdicts = judge(SPLIT, caller, context=10_500)
    assert [call.kind for call in caller.calls].count("retrieval") >= 3
    assert (verdicts.chunk or ())[0].relevance == 0.8
    assert ((verdicts.claim or ())[0].support, (verdicts.claim or ())[0].p) == ("inferred", 0.6)
    assert (verdicts.use or ())[0].used


def test_what_is_missing_is_handed_on():
    """Each group of chunks is told, between fences, what was missing after those before it; the last one decides."""
    fields = {"missing": [["the price", "the pier"], ["the price"], ["the price"]]}
    caller = Scripted(lambda call: by_piece(call, **fields))
    verdicts = judge(SPLIT, caller, context=10_500)
    calls = [call for call in caller.calls if call.kind == "retrieval"]
    earlier = [[part.text for part in parse_fences(call.messages[1].text) if part.name == "missing"] for call in calls]
    assert earlier[:3] == [[], ["the price\nthe pier"], ["the price"]]
    assert verdicts.missing == ("the price",)


def test_a_group_that_fails():
    """What one group says nothing about is lost, although the others do: there the best may have been."""

    def silent(call: ModelCall) -> str:
        return by_piece(call, chunks=[{"c1": {"relevance": 0.9}}, {"c1": {"relevance": 9}}])

    verdicts = judge(SPLIT, Scripted(silent), context=10_500)
    assert "c1" in verdicts.failures["chunk"]
    assert verdicts.chunk == ()


def test_a_trace_beyond_all_limits():
    """Where query, answer and facts alone leave no room, nothing is sent, and the reason is told."""
    caller = Scripted()
    verdicts = judge(msgspec.structs.replace(TRACE, query="word " * 30_000), caller, context=10_000)
    assert caller.calls == []
    assert "too long" in verdicts.failures["chunk"]
    assert "too long" in verdicts.failures["answer"]
    assert "model takes 10,000" in verdicts.failures["claim"]


# --- sizes -----------------------------------------------------------------------------------------


@given(st.text(max_size=3_000), st.integers(100, 900))
def test_pieces_add_up_to_the_text(text: str, limit: int):
    """The pieces of a text are that text, in order; of plain text each fits into the room."""
    pieces = split_text(FencedText("c1", text), limit)
    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) == 1 or all(
        piece.name == f"c1 part {number} of {len(pieces)}" for number, piece in enumerate(pieces, 1)
    )
    if text.isascii():
        assert all(estimate_fenced(piece) <= limit + FENCE_TOKENS for piece in pieces)


@given(st.lists(st.floats(0.1, 12)))
def test_packing(sizes: list[float]):
    """Neighbours stay in their order, none is left out, and only what is too large by itself passes the room."""
    groups = pack_groups(range(len(sizes)), sizes, 10)
    assert [index for group in groups for index in group] == list(range(len(sizes)))
    assert all(len(group) == 1 or sum(sizes[index] for index in group) <= 10 + 1e-9 for group in groups)


@pytest.mark.parametrize(("text", "count"), [("a" * 4_000, 1_250), ("字" * 400, 375), ("", 0)])
def test_tokens(text: str, count: int):
    """A token is four bytes, with a quarter on top."""
    assert estimate_tokens(text) == count
