"""Laws of the bench of unseen faults: every kind changes what it says it changes, and nothing beside it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))
corpora, kinds, system = (import_module(f"benchmarks.faults.unseen.{name}") for name in ("corpora", "kinds", "system"))
for module in ("fresh_kinds", "second_kinds", "third_kinds", "fourth_kinds", "fifth_kinds"):
    import_module(f"benchmarks.faults.unseen.{module}")  # enter their kinds
QUESTIONS = sorted(corpora.shop_questions(), key=lambda question: question.id[::-1])[::9][:60]
SHOP = system.Parts(name="shop", chunks=tuple(corpora.shop_chunks()))
SHOP_KINDS = [name for name, kind in kinds.KINDS.items() if "shop" in kind.systems and name != "none"]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def baseline():
    return system.answer_all(SHOP, QUESTIONS)


# `python -m benchmarks.faults.unseen --system shop` runs all of them
@pytest.mark.parametrize("name", ["none", *SHOP_KINDS[1::3]])
def test_a_kind_changes_its_layer_alone(name: str, baseline):
    """With the slips of the baseline a fault of generation leaves every chunk, and a fault of logging every answer."""
    kind = kinds.KINDS[name]
    candidate = system.answer_all(kind.change(SHOP), QUESTIONS)
    assert (candidate == baseline) is (name == "none")
    assert [trace.facts for trace in candidate] == [trace.facts for trace in baseline]
    if kind.layers == {"generation"}:
        assert [trace.chunks for trace in candidate] == [trace.chunks for trace in baseline]
    if kind.layers == {"logging"} and "answers" not in kind.about:
        assert [trace.answer for trace in candidate] == [trace.answer for trace in baseline]
    assert kind.about.endswith(".")


def test_the_shop_finds_what_was_asked_for(baseline):
    """The gold section is among the chunks of nearly every query, and most answers hold the expected value."""
    hits = sum(bool(trace.gold.chunks.keys() & {chunk.id for chunk in trace.chunks}) for trace in baseline)
    assert hits >= 0.95 * len(baseline)
    right = sum(trace.facts[0].rstrip(".").rsplit(" ", 1)[1].lower() in trace.answer.lower() for trace in baseline)
    assert right >= 0.8 * len(baseline)
