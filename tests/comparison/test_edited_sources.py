"""Edited sources: which pairs they touch, and what they explain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.faults.changes import (
    Change,
    add_invention,
    apply_to_share,
    chain_changes,
    change_chunks,
    drop_figures,
    misdate_documents,
)
from benchmarks.faults.combined import name_layers
from benchmarks.faults.corpora import load_handbook_corpus
from benchmarks.faults.situations import Situation, build_pair, load_demo_traces
from benchmarks.faults.unseen import fifth_kinds, fourth_kinds, fresh_kinds, second_kinds
from benchmarks.faults.unseen.corpora import handbook_chunks, handbook_questions, shop_chunks, shop_questions
from benchmarks.faults.unseen.kinds import KINDS
from benchmarks.faults.unseen.system import Parts, answer_all
from ragfault.comparison.attribution.edited_sources import find_edited_pairs
from ragfault.comparison.bisection import bisect
from ragfault.comparison.paired_runs import pair_runs
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Trace
from remembered import LEXICAL
from sample_runs import evaluate_system, make_verdicts

assert KINDS.keys() >= fresh_kinds.FRESH | second_kinds.SECOND | fourth_kinds.FOURTH | fifth_kinds.FIFTH
PLACES = [
    (lambda chunk: replace(chunk, text=f"{chunk.text} Now 9."), True),
    (lambda chunk: replace(chunk, text="Umbrellas are lent by the library on rainy mornings only."), False),
    (lambda chunk: chunk, False),
]


@pytest.mark.parametrize(("change", "edited"), PLACES, ids=["edited", "replaced", "same"])
def test_a_text_that_keeps_its_words_was_edited(tmp_path: Path, change: Callable[[Chunk], Chunk], edited: bool):
    """A text is edited where it keeps at least half of its words; another one under the same id is another passage."""
    text = "Ferry {0} sails from berth 3 at noon. Tickets are sold on board."
    old = [(change_chunks(t, lambda c: replace(c, text=text.format(c.id))), v) for t, v in make_verdicts(20, 1)]
    new = [(change_chunks(trace, change), seen) for trace, seen in old]
    pairs = pair_runs(evaluate_system(tmp_path / "old", old), evaluate_system(tmp_path / "new", new))
    assert set(find_edited_pairs(pairs).tolist()) == {edited}


def test_an_id_of_several_texts_names_no_passage(tmp_path: Path):
    """Where ids count the places of a list, other texts under them are no edit."""

    def number(trace: Trace, end: str) -> Trace:
        chunks = enumerate(trace.chunks or ())
        text = "Ferry {0} sails from berth 3 at noon. Tickets are sold on board.{1}"
        return replace(
            trace, citations=(), chunks=tuple(Chunk(id=str(at), text=text.format(c.id, end)) for at, c in chunks)
        )

    sides = [[(number(t, end), v) for t, v in make_verdicts(20, 1)] for end in ("", " Now 9.")]
    runs = [evaluate_system(tmp_path / str(at), side) for at, side in enumerate(sides)]
    assert not find_edited_pairs(pair_runs(*runs)).any()


@pytest.mark.long
@pytest.mark.parametrize("name", ["columns-mixed", "tables-flattened"])
def test_answers_from_damaged_texts_are_no_fault_of_generation(tmp_path: Path, name: str):
    """Where the words of the texts stand in another order, the stage is ingestion, whatever answers make of them."""
    questions = shop_questions()[::4]
    shop = Parts(name="shop", chunks=tuple(shop_chunks()))
    sides = [answer_all(parts, questions) for parts in (shop, KINDS[name].change(replace(shop, seed=1)))]
    metrics = ("recall", "groundedness", "completeness", "context_recall")
    result = bisect(
        *(evaluate(side, tmp_path / str(at), metrics=metrics, judge=LEXICAL) for at, side in enumerate(sides))
    )
    assert result.faults[0].layer == "source data"
    assert result.faults[0].suspects[0].stage == "ingestion"


@pytest.mark.long
def test_answers_cut_short_are_no_fault_of_edited_sources(tmp_path: Path):
    """Where chunks got other texts that hold all facts, and answers are cut, generation broke."""

    def cut(trace: Trace) -> Trace:
        return replace(trace, answer=" ".join((trace.answer or "").split()[:4]))

    def add(trace: Trace) -> Trace:
        return change_chunks(trace, lambda chunk: replace(chunk, text=f"{chunk.text} Page 7 of 90."))

    situation = Situation(change=chain_changes(add, cut), exit_codes=(1,), phrase="")
    sides = build_pair(load_demo_traces(), situation, key=True, n=104)
    runs = [evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate(sides)]
    assert bisect(*runs, margin=0.05).faults[0].layer == "generation"


@pytest.mark.long
def test_answers_that_lack_what_their_sources_lost_are_no_fault_of_generation(tmp_path: Path):
    """Where drafts without figures are indexed, the source data broke, though other chunks are retrieved as well."""
    questions = shop_questions()[::3]
    shop = Parts(name="shop", chunks=tuple(shop_chunks()))
    sides = [answer_all(parts, questions) for parts in (shop, KINDS["placeholders"].change(replace(shop, seed=1)))]
    metrics = ("recall", "groundedness", "completeness", "context_recall")
    runs = [evaluate(side, tmp_path / str(at), metrics=metrics, judge=LEXICAL) for at, side in enumerate(sides)]
    assert bisect(*runs).faults[0].layer == "source data"


@pytest.mark.long
def test_facts_that_left_the_sources_are_a_fault_of_the_sources(tmp_path: Path):
    """The tree says so too: its branch of the sources is the one fault, and no layer is blamed without a key."""
    situation = Situation(change=drop_figures, exit_codes=(1,), phrase="")
    verdicts = []
    for key in (True, False):
        sides = build_pair(load_demo_traces(), situation, key=key, n=104)
        runs = [evaluate(side, tmp_path / f"{key}-{at}", judge=LEXICAL) for at, side in enumerate(sides)]
        result = bisect(*runs, margin=0.05)
        verdicts.append((result.verdict, [ruling.branch for ruling in result.tree if ruling.outcome == "fault"]))
    assert verdicts == [("fault", ["3 source data"]), ("cannot tell", [])]
    assert result.sentence.count("differ in their figures or units") == 1


@pytest.mark.long
def test_lost_units_are_no_proof_of_steady_sources(tmp_path: Path):
    """Without a key nothing tells whether texts that lost their units are right: the verdict is not “no fault”."""
    handbook = Parts(name="handbook", chunks=tuple(handbook_chunks()), tenants=False)
    sides = [answer_all(parts, handbook_questions()) for parts in (handbook, KINDS["signs-lost"].change(handbook))]
    runs = [
        evaluate([replace(t, gold=None, facts=None, reference=None) for t in side], tmp_path / str(at), judge=LEXICAL)
        for at, side in enumerate(sides)
    ]
    result = bisect(*runs)
    assert result.verdict == "cannot tell"
    assert "differ in their figures or units" in result.sentence


def shorten(trace: Trace) -> Trace:
    """Cut the answer after six words."""
    return replace(trace, answer=" ".join((trace.answer or "").split()[:6]))


@pytest.mark.long
def test_edited_figures_are_stated_beside_a_fault(tmp_path: Path):
    """Without a key generation is blamed for inventions, and the sentence names the edits of the sources."""
    change = chain_changes(misdate_documents(0.6), apply_to_share(0.4, add_invention))
    sides = build_pair(load_demo_traces(), Situation(change=change, exit_codes=(1,), phrase=""), key=False, n=104)
    result = bisect(*(evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate(sides)))
    assert [fault.layer for fault in result.faults] == ["generation"]
    assert (
        "differ in their figures or units, and without an answer key nothing tells which are right" in result.sentence
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "layers"),
    [
        (chain_changes(misdate_documents(0.6), apply_to_share(0.4, add_invention)), {"generation", "source data"}),
        (chain_changes(misdate_documents(0.4), shorten), {"generation", "source data"}),
        (misdate_documents(0.6), {"source data"}),
        (
            chain_changes(
                lambda t: change_chunks(t, lambda c: replace(c, text=f"{c.text} Page 7 of 90.")),
                apply_to_share(0.4, add_invention),
            ),
            {"generation"},
        ),
    ],
    ids=["invented", "cut", "dates alone", "harmless edits"],
)
def test_source_data_can_be_a_second_fault(tmp_path: Path, change: Change, layers: set[str]):
    """Facts that left the texts under the same ids are named beside another fault, and only where they left."""
    sides = build_pair(load_demo_traces(), Situation(change=change, exit_codes=(1,), phrase=""), key=True, n=104)
    runs = [evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate(sides)]
    assert {fault.layer for fault in bisect(*runs).faults} == layers


@pytest.mark.long
def test_source_data_can_be_a_second_fault_behind_retrieval(tmp_path: Path):
    """Where a reranker is gone and documents are stale, both are named."""
    layers = name_layers(load_handbook_corpus(), ("reranker-removed", "stale-documents"), tmp_path, n=120)
    assert sorted(layers) == ["retrieval", "source data"]


def test_false_claims_that_the_chunks_do_not_support_are_no_fault_of_the_sources(tmp_path: Path):
    """Where other chunks are retrieved, which hold the truth, and the answers state other figures, generation broke."""
    texts = [f"The ferry to island {at} costs {20 + at} pounds." for at in range(60)]
    sides: list[list[Trace]] = [[], []]
    for at, text in enumerate(texts):
        answers = text, f"The ferry to island {at} costs {420 + at} pounds."
        for side, place, answer in zip(sides, ((at + 7) % 60, at), answers, strict=True):
            chunks = (Chunk(id=str(place), text=texts[place]),)
            query = f"What does the ferry to island {at} cost?"
            side.append(Trace(id=str(at), query=query, chunks=chunks, answer=answer, reference=text))
    metrics = ("context_recall", "groundedness", "factual_accuracy")
    runs = [evaluate(side, tmp_path / str(at), metrics=metrics, judge=LEXICAL) for at, side in enumerate(sides)]
    result = bisect(*runs)
    assert [(fault.layer, fault.evidence[0].metric) for fault in result.faults] == [("generation", "factual_accuracy")]
    assert "with claims that their chunks do not support" in result.sentence
