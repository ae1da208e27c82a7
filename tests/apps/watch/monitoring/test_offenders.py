"""Offenders: what sets the bad traces apart is named, and nothing is where they are bad by chance."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.apps.watch.monitoring.offenders import (
    excess_probability,
    find_message,
    find_offenders,
    find_slow_step,
    split_by_value,
)
from ragfault.model.records import Chunk, Latency, Step, Trace


def make_traces(count: int, seed: int = 0, **fields: Any) -> list[Trace]:
    """Make traces of random tenants, models and documents."""
    draw = random.Random(seed)
    return [
        Trace(
            id=f"{seed}-{at}",
            query="When?",
            model=fields.get("model", draw.choice("ab")),
            chunks=(Chunk(id="c", document=f"{draw.choice('xyz')}.{fields.get('kind', 'pdf')}"),),
            metadata={"tenant": fields.get("tenant", draw.choice("defgh")), "turn": at},
        )
        for at in range(count)
    ]


@pytest.mark.parametrize(("field", "value"), [("model", "new"), ("tenant", "new"), ("document type", "new")])
def test_a_value_of_the_bad_traces_is_named(field: str, value: str):
    """Model, tenant or document type of the bad traces is the first offender, with its counts, and new."""
    name = {"document type": "kind"}.get(field, field)
    bad, good = make_traces(20, 1, **{name: value}), make_traces(200, 2)
    first = find_offenders(bad, good, make_traces(200, 3))[0]
    assert (first.field, first.value, first.kind, first.is_new) == (field, value, "worse", True)
    assert (first.count, first.total, first.other_count, first.other_total) == (20, 20, 0, 200)


def test_a_value_that_vanished_is_named():
    """A document type that was in half of the traces before and is in none since."""
    before = make_traces(100, 1, kind="csv") + make_traces(100, 2)
    since = make_traces(150, 3)
    offender = find_offenders(since[:60], since[60:], before)[0]
    assert (offender.field, offender.value, offender.kind) == ("document type", "csv", "vanished")
    assert (offender.count, offender.other_count, offender.other_total) == (0, 100, 200)


def test_chance_names_nobody():
    """Of forty incidents whose bad traces are bad by chance, none names an offender."""
    named = []
    for seed in range(40):
        traces, draw = make_traces(300, seed), random.Random(seed)
        bad = [trace for trace in traces if draw.random() < 0.2]
        good = [trace for trace in traces if trace not in bad]
        named += find_offenders(bad, good, make_traces(200, 100 + seed))
    assert not named


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_the_test_is_a_probability(total: int, other_total: int, data: st.DataObject):
    """It is at most 1, and falls as more of the traces with the value are bad."""
    count, other = data.draw(st.integers(0, total)), data.draw(st.integers(0, other_total))
    chance = excess_probability(count, total, other, other_total)
    assert 0 <= chance <= 1
    if count < total and other:
        assert excess_probability(count + 1, total, other - 1, other_total) <= chance + 1e-12


def test_bad_traces_are_worse_than_nine_in_ten_before():
    """Errors are bad where there were few before; of a value that is low the low ones are."""
    traces = make_traces(10)
    pairs = [(trace, float(at < 3)) for at, trace in enumerate(traces)]
    bad, good = split_by_value(pairs, [0.0] * 99 + [1.0], is_low_worse=False)
    assert ([trace.id for trace in bad], len(good)) == (["0-0", "0-1", "0-2"], 7)


def test_the_commonest_error_is_quoted_whatever_its_numbers():
    """Errors that differ by numbers are one, and the quote is one of them."""
    errors = [f"429: retry in {at} s" for at in range(5)] + ["timeout"] * 4
    assert find_message([Trace(id=str(at), query="q", error=error) for at, error in enumerate(errors)]) == (
        errors[0],
        5,
    )


def test_the_step_that_grew_is_the_slow_one():
    """The step that explains the growth is named with its layer; without growth there is none."""

    def time(search: float) -> list[Trace]:
        steps = (Step(id="1", kind="retrieve", name="search", duration=search), Step(id="2", name="a", duration=500.0))
        latency = Latency(retrieval=search, total=500.0 + search)
        return [Trace(id=str(at), query="q", steps=steps, latency=latency) for at in range(9)]

    slow = find_slow_step(time(100.0), time(900.0))
    assert (slow.name, slow.layer, slow.before, slow.since) == ("search", "retrieval", 100.0, 900.0)
    assert find_slow_step(time(100.0), time(100.0)) is None
