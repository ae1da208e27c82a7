"""Laws of the difficulty of items, and of the page that shows it."""

from __future__ import annotations

import pytest

from ragfault import evaluate
from ragfault.apps.testsets.description import describe_testset
from ragfault.apps.testsets.difficulty import measure_difficulty
from ragfault.apps.testsets.report.description import build_description
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Chunk, Gold, Trace
from ragfault.report.renderers.html import render_html_page

ITEMS = [
    Trace(id=name, query=f"Which fee has {name}?", gold=Gold(chunks={name: 1}), metadata={"kind": kind})
    for name, kind in (("easy", "list"), ("hard", "table"), ("open", "table"), ("<b>odd</b>", "list"))
]


def answer_item(item: Trace, solved: set[str]) -> Trace:
    chunk = Chunk(id=item.id if item.id in solved else "x")
    return Trace(id=item.id, query=item.query, gold=item.gold, chunks=(chunk,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the runs of two systems, of which only the second retrieves what is open."""
    folder = tmp_path_factory.mktemp("runs")
    solved = {"v1": {"easy", "<b>odd</b>"}, "v2": {"easy", "open", "<b>odd</b>"}}
    return [
        evaluate([answer_item(item, ids) for item in ITEMS], folder / name, metrics=["recall@5"], judge="none")
        for name, ids in solved.items()
    ]


def test_items_are_sorted_by_how_few_systems_solve_them(runs):
    difficulty = measure_difficulty(ITEMS, runs)
    assert [row.item for row in difficulty.items[:2]] == ["hard", "open"]
    assert (difficulty.solved, difficulty.unsolved, difficulty.missing) == (2, 1, 0)
    assert difficulty.runs == {"v1": 0.5, "v2": 0.75}
    assert list(difficulty.kinds.items()) == [("table", 0.25), ("list", 1.0)]


def test_an_item_without_a_trace_is_counted_as_missing(runs):
    assert measure_difficulty([*ITEMS, Trace(id="new", query="What is new?")], runs).missing == 1


def test_a_metric_or_a_set_that_the_runs_do_not_have_is_an_error(runs):
    with pytest.raises(UnknownName):
        measure_difficulty(ITEMS, runs, "ndcg@10")
    with pytest.raises(InputError, match="v1, v2: no trace with a value is of an item of the set"):
        measure_difficulty([Trace(id="new", query="What is new?")], runs)
    with pytest.raises(InputError):
        measure_difficulty(ITEMS, [])


def test_the_page_shows_every_part_and_escapes_what_items_say(runs):
    odd = [*ITEMS, Trace(id="x", query="<script>alert(1)</script>", metadata={"kind": "<i>odd</i>"})]
    page = render_html_page(
        build_description("set.jsonl", describe_testset(odd), measure_difficulty(odd, runs)), "test"
    )
    assert page.count("<svg") >= 4
    assert "<i>odd</i>" not in page
    assert "<script>alert" not in page
    assert "Which fee has hard?" in page
    assert "Difficulty" not in render_html_page(build_description("set.jsonl", describe_testset(odd)), "test")
