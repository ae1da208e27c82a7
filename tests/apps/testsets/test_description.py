"""Laws of the description of evaluation sets."""

from __future__ import annotations

import pytest

from ragfault.apps.testsets.description import describe_testset, group_items
from ragfault.apps.testsets.making.make import make_testset
from ragfault.model.errors import InputError
from ragfault.model.records import Gold, Span, Trace


def make_items(*documents: str) -> list[Trace]:
    """Return one item for each document name, 1,000 characters apart, with queries of no word in common."""
    return [
        Trace(
            id=f"{at}",
            query=f"{chr(97 + at % 26)}alpha{at} {chr(97 + at // 26)}beta{at} gamma{at}",
            gold=Gold(spans=(Span(document=name, start=1000 * at, end=1000 * at + 10),)),
        )
        for at, name in enumerate(documents)
    ]


def test_repeated_items_add_nothing_to_the_effective_size():
    items = [Trace(id=f"{at}", query="which ferry leaves the northern pier at night") for at in range(8)]
    assert describe_testset(items).effective == 1


def test_independent_items_count_in_full():
    description = describe_testset(make_items(*"abcdefgh" * 5))
    assert description.effective == description.items == description.groups == 40


def test_items_that_share_a_passage_are_one_group():
    items = make_items("a", "b", "c")
    other = Trace(id="x", query="other words entirely", gold=items[1].gold)
    assert group_items([*items, other]) == [2, 1, 1]


def test_a_larger_set_detects_a_smaller_change():
    small, large = (describe_testset(make_items(*"abcdefgh" * size)) for size in (5, 40))
    assert large.detectable < small.detectable
    assert large.items >= large.required > small.items


def test_a_dominant_document_is_warned_of():
    even, uneven = describe_testset(make_items(*"abcdef" * 4)), describe_testset(make_items(*("a" * 20), *"bcdef"))
    assert not any("holds the gold of" in text for text in even.warnings)
    assert any("a holds the gold of 80 %" in text for text in uneven.warnings)


def test_near_gold_of_one_document_is_one_place():
    spans = (
        Span(document="a", start=0, end=20),
        Span(document="a", start=60, end=90),
        Span(document="b", start=0, end=9),
    )
    assert describe_testset([Trace(id="1", query="?", gold=Gold(spans=spans))]).chunks_needed == 2


def test_the_coverage_of_a_corpus_names_what_no_item_is_about(corpus):
    items = make_testset(corpus, 20, mix={"cloze": 1}).items
    left = [item for item in items if item.gold.spans[0].document != "tarvik.md"]
    description = describe_testset(left, corpus)
    assert description.corpus == 8
    assert description.uncovered == ("tarvik.md",)
    assert description.topics["tarvik.md"] == 0 < max(description.topics.values())


def test_a_set_without_items_is_refused():
    with pytest.raises(InputError):
        describe_testset([])
