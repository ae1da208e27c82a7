"""Laws of harm: a right refusal is no loss, and a graded metric that falls while answers are as good is no fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.gate.regression import check_regression
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.settings import GateSettings
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.reading.reference_scores import load_paired_reference_scores
from ragfault.model.records import AnswerVerdict, Chunk, Trace, Verdicts
from remembered import LEXICAL
from sample_runs import Pair, evaluate_system, make_verdicts


def refusing(pairs: Sequence[Pair], rows: range, *, answerable: bool | None) -> list[Pair]:
    """Let a system refuse on some rows: no claims, no facts, an irrelevant answer."""
    return [refuse(*pair) if row in rows else pair for row, pair in enumerate(keyed(pairs, rows, answerable))]


def keyed(pairs: Sequence[Pair], rows: range, answerable: bool | None) -> list[Pair]:
    """Say of the queries of some rows whether they can be answered."""
    return [
        (replace(trace, answerable=answerable) if row in rows else trace, seen)
        for row, (trace, seen) in enumerate(pairs)
    ]


def refuse(trace: Trace, seen: Verdicts) -> Pair:
    facts = tuple(replace(fact, present=False) for fact in seen.fact or ())
    answer = AnswerVerdict(relevance=0.0, refused=True)
    return (replace(trace, answer="I do not know."), replace(seen, claim=(), truth=(), fact=facts, answer=answer))


def evaluate_refusals(folder: Path, answerable: bool) -> tuple[Run, Run]:
    """Evaluate a baseline, and a candidate that is better grounded and refuses the first 40 of 200 queries."""
    old = keyed(make_verdicts(200, 1, grounding=0.3, retrieval=-1.0), range(40), answerable)
    new = refusing(make_verdicts(200, 2, retrieval=-1.0), range(40), answerable=answerable)
    return evaluate_system(folder / "old", old), evaluate_system(folder / "new", new)


@pytest.mark.parametrize("answerable", [False, True])
def test_right_refusals_with_better_grounding_are_a_trade_off(tmp_path: Path, answerable: bool):
    """A candidate that is better grounded and refuses is no fault where the refusals are right, and one where not."""
    old, new = evaluate_refusals(tmp_path, answerable)
    result = bisect(old, new)
    assert result.verdict == ("fault" if answerable else "no fault")
    assert "ompleteness fell" in result.sentence
    if not answerable:
        assert "groundedness rose" in result.sentence
        assert not [decision for decision in result.tree if decision.outcome == "fault"]
    assert bisect(new, old).verdict == "fault"


@pytest.mark.parametrize("answerable", [False, True])
def test_a_gate_passes_no_refusal_that_did_harm(tmp_path: Path, answerable: bool):
    """Completeness does not fail a gate for right refusals; for wrong ones it does, and so do right answers."""
    old, new = evaluate_refusals(tmp_path, answerable)
    report = check_regression(pair_runs(old, new), GateSettings(max_drop=0.1))
    results = {row.change.metric: row.result for row in report.decisions}
    assert (results["completeness"] == "fail") == answerable


@pytest.mark.long
def test_right_refusals_do_no_harm(tmp_path: Path):
    """Where only right refusals lower completeness, the key shows that no answer became bad."""
    old = evaluate_system(tmp_path / "old", keyed(make_verdicts(200, 1), range(40), False))
    new = evaluate_system(tmp_path / "new", refusing(make_verdicts(200, 1), range(40), answerable=False))
    result = bisect(old, new)
    assert (result.verdict, result.faults) == ("no fault", ())
    assert "Completeness fell" in result.sentence


def test_more_chunks_are_a_cost_and_never_a_fault(tmp_path: Path):
    """Three chunks more of no use, with answers as before, break no layer."""
    runs = [evaluate_system(tmp_path / f"{k}", make_verdicts(200, 1, extra=k)) for k in (0, 3)]
    assert bisect(*runs).faults == ()


@pytest.mark.long
def test_unchanged_sources_are_never_blamed(tmp_path: Path):
    """Answers that contradict the key more often, from the very same chunks, are a fault of generation."""
    old = evaluate_system(tmp_path / "old", make_verdicts(200, 1))
    result = bisect(old, evaluate_system(tmp_path / "new", make_verdicts(200, 2, contradiction=0.3, retrieval=0.0)))
    assert [(fault.layer, fault.branch) for fault in result.faults] == [("generation", "2 generation")]
    assert "from the same chunks" in result.sentence


def test_a_consequence_is_no_second_fault(tmp_path: Path):
    """Answers that are less complete on pairs that lost a relevant chunk are no fault of generation.

    Half of the pairs have a key, and the others keep their first chunk, so that neither recall nor relevance at equal
    depth shows that the second one is gone.
    """
    old, lost = [], []
    for row, (trace, seen) in enumerate(make_verdicts(200, 1, retrieval=-1.0)):
        original = trace if row % 2 else replace(trace, gold=None)
        name = f"{trace.id}-0" if row % 2 == 0 else "other"
        chunks = tuple(replace(chunk, id=name) for chunk in (trace.chunks or ())[:1])
        level = (seen.chunk or ())[0] if row % 2 == 0 else replace((seen.chunk or ())[0], level="none", relevance=0.0)
        facts = (*(replace(fact, present=False) for fact in (seen.fact or ())[:2]), *(seen.fact or ())[2:])
        use = (replace((seen.use or ())[0], chunk=name),)
        old.append((original, seen))
        short = replace(seen, chunk=(replace(level, chunk=name),), use=use, fact=facts)
        lost.append((replace(original, chunks=chunks, answer=f"{original.answer} In short."), short))
    runs = [evaluate_system(tmp_path / name, pairs) for name, pairs in (("old", old), ("new", lost))]
    result = bisect(*runs, margin=0.02)
    assert [fault.layer for fault in result.faults] == ["retrieval"]


FERRY = "Passengers pay {} pounds for a cabin on the ferry to pier {}."


def answer_pairs(folder: Path, texts: tuple[str, str], *, key: str, count: int = 60) -> list[Run]:
    """Answer questions of one form in two wordings."""

    def answered(number: int, text: str) -> Trace:
        chunk = Chunk(id=str(number), text=FERRY.format(number + 3, number))
        query = f"What do passengers pay for a cabin on the ferry to pier {number}?"
        reference = f"{number + 3} pounds" if key else None
        facts = (f"Cabins on the ferry to pier {number} cost {number + 3} pounds.",) if key == "facts" else None
        answer = text.format(number + 3, number)
        return Trace(id=str(number), query=query, chunks=(chunk,), answer=answer, reference=reference, facts=facts)

    metrics = ["completeness", "answer_relevance"]
    sides = [[answered(n, text) for n in range(count)] for text in texts]
    return [evaluate(side, folder / str(at), metrics=metrics, judge=LEXICAL) for at, side in enumerate(sides)]


@pytest.mark.parametrize(
    ("key", "short", "verdict"),
    [
        ("reference", "{} pounds", "no fault"),
        ("facts", "{} pounds", "no fault"),
        ("facts", "{} pounds, they say", "no fault"),
        ("", "{} pounds", "cannot tell"),
        ("", "Passengers pay", "cannot tell"),
    ],
)
def test_answers_that_only_a_grade_finds_worse_break_nothing(tmp_path: Path, key: str, short: str, verdict: str):
    """A key that calls short answers right excludes harm, whatever completeness says; without one nobody knows."""
    result = bisect(*answer_pairs(tmp_path, (FERRY, short), key=key))
    assert (result.verdict, result.faults) == (verdict, ())
    assert "nswer_relevance fell" in result.sentence


@pytest.mark.parametrize(
    ("key", "short", "verdict"),
    [("facts", "{} pounds", "no fault"), ("", "{} pounds", "cannot tell"), ("facts", "Somebody else knows.", "fault")],
)
def test_a_segment_is_a_fault_only_where_answers_became_bad(tmp_path: Path, key: str, short: str, verdict: str):
    """Shorter answers on one route of eight break nothing if the key calls them right, as for the pairs as a whole."""
    sides = [list(run.traces()) for run in answer_pairs(tmp_path / "plain", (FERRY, short), key=key, count=200)]
    routed = [[replace(trace, route=f"route-{int(trace.id) % 8}") for trace in side] for side in sides]
    routed[1] = [new if new.route == "route-3" else old for old, new in zip(*routed, strict=True)]
    metrics = ["completeness", "answer_relevance"]
    runs = [evaluate(side, tmp_path / f"{at}", metrics=metrics, judge="lexical") for at, side in enumerate(routed)]
    result = bisect(*runs)
    assert result.verdict == verdict
    assert {segment.segment for segment in result.segments} == (set() if verdict == "no fault" else {"route-3"})


@pytest.mark.parametrize(("key", "short"), [("", "Somebody else knows."), ("reference", "Passengers pay for a cabin.")])
def test_answers_that_became_bad_are_a_fault(tmp_path: Path, key: str, short: str):
    """Answers that say other words than the passages, or leave out what the key asks for, are a fault of generation."""
    result = bisect(*answer_pairs(tmp_path, (FERRY, short), key=key))
    assert [fault.layer for fault in result.faults] == ["generation"]
    assert result.comparison.answers.became_bad == 60


@pytest.mark.parametrize("bad", [0, 30])
def test_a_judge_that_is_less_sure_shows_no_harm(tmp_path: Path, bad: int):
    """Answers that a judge rates right with a lower probability did not become bad; those it calls bad did."""

    def rate(row: int, grounded: float, relevance: float) -> Pair:
        name, chunk = f"t{row}", Chunk(id=f"c{row}", text=f"Pier {row} opens.")
        trace = Trace(id=name, query=f"When does pier {row} open?", chunks=(chunk,), answer=f"{relevance} by {row}.")
        return trace, Verdicts(trace=name, answer=AnswerVerdict(relevance=relevance, grounded=grounded))

    old = evaluate_system(tmp_path / "old", [rate(row, 0.95, 0.9) for row in range(100)])
    new = evaluate_system(tmp_path / "new", [rate(row, 0.2 if row < bad else 0.7, 0.6) for row in range(100)])
    result = bisect(old, new)
    assert [fault.layer for fault in result.faults] == (["generation"] if bad else [])
    assert result.verdict == ("fault" if bad else "cannot tell")


@pytest.mark.parametrize("key", ["reference", "facts"])
def test_a_gate_passes_short_answers_that_the_key_calls_right(tmp_path: Path, key: str):
    """By default a gate fails a grade of answers only for harm; a metric that is named fails by itself."""
    paired = pair_runs(*answer_pairs(tmp_path, (FERRY, "{} pounds"), key=key))
    results = {row.change.metric: row.result for row in check_regression(paired).decisions}
    assert set(results.values()) == {"pass"}
    [named] = check_regression(paired, GateSettings(metrics=["answer_relevance"])).decisions
    assert named.result == "fail"


ECHO = "“What do passengers pay for a cabin on the ferry to pier {1}?”: pounds {0}."


def test_an_answer_that_stops_repeating_the_query_says_the_same(tmp_path: Path):
    """Where all that is gone is the query, nothing is compared; other words in the place of the answer are a fault."""
    result = bisect(*answer_pairs(tmp_path / "bare", (ECHO, "Pounds {0}."), key="reference"))
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert [(mismatch.kind, mismatch.share) for mismatch in result.comparison.mismatches] == [("texts", 1.0)]
    other = bisect(
        *answer_pairs(
            tmp_path / "other", (ECHO.replace("pounds {0}", "{0} pounds"), "Somebody else knows."), key="reference"
        )
    )
    assert [fault.layer for fault in other.faults] == ["generation"]


def test_a_small_drop_of_groundedness_between_two_models_names_the_judges_difference(tmp_path: Path):
    """Where the model changed the sentence adds by how much the judge rates models unequally; otherwise nothing."""
    chunk = "The ferry sails daily. Dogs travel on the deck. Cyclists pay five pounds. Tea is served below."
    invented = chunk.replace("Cyclists pay five pounds.", "Elephants board before sunrise.")

    def run(name: str, model: str, bad: int) -> Run:
        traces = [
            Trace(
                id=f"{n}",
                query=f"What holds for ferry {n}?",
                chunks=(Chunk(id="c", text=chunk),),
                model=model,
                answer=invented if n < bad else chunk,
            )
            for n in range(120)
        ]
        return evaluate(traces, tmp_path / name, metrics=["groundedness"], judge=LEXICAL)

    old, new, same = run("old", "first", 0), run("new", "second", 24), run("same", "first", 24)
    worse = run("worse", "second", 120)
    for candidate, says in ((new, True), (same, False), (worse, False)):
        result = bisect(old, candidate)
        assert result.verdict == "fault"
        assert ("rated one model up to 0.22 lower than another" in result.sentence) == says
    sources = [tmp_path / "of-old.jsonl", tmp_path / "of-new.jsonl"]
    for path, bad in zip(sources, (0, 24), strict=True):
        rows = [f'{{"trace": "{n}", "groundedness": {0.75 if n < bad else 1.0}}}' for n in range(120)]
        path.write_text("\n".join(rows), encoding="utf-8")
    labeled = bisect(pair_runs(old, new, labels=load_paired_reference_scores(sources, (old, new))))
    assert labeled.verdict == "fault"
    assert "The model changed" not in labeled.sentence
