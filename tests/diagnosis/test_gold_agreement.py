"""Gold in the analysis of a run: its problems, its worst traces, and the judge's agreement with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault import evaluate
from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare
from ragfault.comparison.paired_runs import pair_runs
from ragfault.diagnosis.run_analysis import analyze, diagnose_run, suggest_remedies
from ragfault.evaluation.rescorer import rescore
from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError, UnknownName
from ragfault.model.gold_evidence import match_answer, measure_coverage
from ragfault.model.records import Chunk, Gold, Trace
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.renderers.terminal import render_terminal
from ragfault.report.run_verdict import describe_share
from remembered import LEXICAL

pytestmark = pytest.mark.long

MAX_CONTRADICTED = 0.05
"""The share of alarms that gold may contradict."""


@pytest.fixture(scope="module")
def demo(demo_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The demo, good and bad, with gold applied and ignored."""
    folder = tmp_path_factory.mktemp("demo")
    runs = {}
    for version in ("v1", "v2"):
        runs[version] = Run.open(demo_runs / version)
        runs[f"{version} ignored"] = rescore(runs[version], folder / f"{version}-ignored", gold="ignore")
    return runs


def list_alarms(run: Run) -> list[bool]:
    """Return for every alarm that gold can refute whether it does."""
    alarms = []
    for trace, diagnosis in zip(run.traces(), diagnose_run(run), strict=True):
        kinds = {problem.kind for problem in diagnosis.problems}
        coverage = measure_coverage(trace)
        complete = coverage is not None and coverage.retrieved == "all"
        refuted = {
            "missing_context": complete or trace.answerable is False,
            "uncovered_statement": complete,
            "nothing_relevant": trace.answerable is False or (coverage is not None and any(coverage.levels)),
            "wrong_refusal": trace.answerable is False or (coverage is not None and coverage.retrieved == "none"),
            "missed_refusal": complete or bool(match_answer(trace)),
            "absent_fact": bool(match_answer(trace)),
            "contradicted_fact": bool(match_answer(trace)),
            "irrelevant_answer": bool(match_answer(trace)),
        }
        alarms += [refuted[kind] for kind in kinds & refuted.keys()]
    return alarms


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_gold_contradicts_hardly_an_alarm_of_the_demo(demo, version):
    """At most one alarm in twenty, where the judge alone raises many times that."""
    alarms, alone = list_alarms(demo[version]), list_alarms(demo[f"{version} ignored"])
    assert sum(alarms) / len(alarms) <= MAX_CONTRADICTED
    assert sum(alone) / len(alone) > 4 * MAX_CONTRADICTED


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_worst_traces_of_the_demo_are_wrong_by_the_answer_key(demo, version):
    """None of them answers as the reference does; one that refuses rightly is bad by a cause before the answer."""
    worst = analyze(demo[version]).worst
    traces = {trace.id: trace for trace in demo[version].traces()}
    assert worst
    assert not [item.trace for item in worst if match_answer(traces[item.trace])]
    assert not [item.trace for item in worst if item.key_outcome == "right answer"]
    refused = [item for item in worst if item.key_outcome == "right refusal"]
    assert not [item.trace for item in refused if item.cause is None or item.cause.stage == "generation"]


def test_the_stored_verdicts_do_not_depend_on_the_use_of_gold(demo):
    """They are the judge's own; the scores differ."""
    assert list(demo["v1"].verdicts()) == list(demo["v1 ignored"].verdicts())
    assert list(demo["v1"].scores()) != list(demo["v1 ignored"].scores())


def test_gold_is_applied_once_to_a_trace(demo):
    """Analyses that read the evidence of a run again get the same verdicts, and a bisection the same levels."""
    first, second = (list(demo["v1"].evidence()) for _ in range(2))
    assert all(a is b for pairs in zip(first, second, strict=True) for a, b in zip(*pairs, strict=True))
    paired = pair_runs(demo["v1"], demo["v2"])
    assert all(paired.chunk_levels(side) is paired.chunk_levels(side) for side in (0, 1))


def test_rescoring_applies_gold_as_evaluating_does(demo, tmp_path):
    """From the run that ignores it the scores of the other come back, on several processes as well."""
    again = rescore(demo["v1 ignored"], tmp_path / "again", gold="apply", workers=2)
    assert list(again.scores()) == list(demo["v1"].scores())
    assert again.manifest.gold == "apply"


def test_the_problems_agree_with_the_metrics(demo):
    """A trace has as many missing-context problems as its metric counts."""
    counts = {row.trace: row.value for row in demo["v1"].scores() if row.metric == "missing_context"}
    counted = {item.trace: sum(p.kind == "missing_context" for p in item.problems) for item in diagnose_run(demo["v1"])}
    assert counted == counts
    rate = sum(value > 0 for value in counts.values()) / len(counts)
    assert analyze(demo["v1"]).rag.missing_context_rate.mean == pytest.approx(rate)


def test_a_run_with_gold_says_how_its_judge_agrees_with_it(demo):
    """The same figures whether gold is applied or not, and verdicts that are mostly wrong are named."""
    findings = analyze(demo["v1"])
    figures = {(item.verdict, item.statistic): item for item in findings.gold_agreement}
    assert findings.gold_agreement == analyze(demo["v1 ignored"]).gold_agreement
    assert figures["chunk relevance", "AUROC"].usable is True
    assert figures["missing context", "precision"].usable is False
    text = " ".join(render_terminal(build_findings(findings)).split())
    assert "chunk relevance: AUROC" in text
    assert "to act on without gold: missing context" in text


def test_copies_of_a_trace_tell_of_its_judge_once(tmp_path):
    """Forty copies of one query with the same chunks make no judge too often wrong, nor right, to act on."""
    chunks = (Chunk(id="a", text="The ferry to the island sails at ten."), Chunk(id="b", text="Dogs travel on deck."))
    trace = Trace(
        id="0", query="When does the kiosk open?", answer="At ten.", chunks=chunks, gold=Gold(chunks={"b": 1})
    )
    agreements = analyze(
        evaluate([replace(trace, id=f"{at}") for at in range(40)], tmp_path / "run", judge=LEXICAL)
    ).gold_agreement
    assert agreements
    assert all(item.usable is None and item.positives + item.negatives <= len(chunks) for item in agreements)


def test_missing_context_that_is_mostly_wrong_is_no_reason_to_change_anything(demo):
    """The remedies of a run that ignores its gold leave it out, as its traces do not; with gold applied it stands."""
    ignored, applied = (analyze(demo[name]) for name in ("v1 ignored", "v1"))
    assert any(p.kind == "missing_context" for item in diagnose_run(demo["v1 ignored"]) for p in item.problems)
    assert "missing_context" not in {remedy.kind for remedy in ignored.remedies}
    has_it = any(p.kind == "missing_context" for item in diagnose_run(demo["v1"]) for p in item.problems)
    assert ("missing_context" in {remedy.kind for remedy in applied.remedies}) == has_it


@pytest.mark.parametrize(("lacking", "is_named"), [(2, False), (8, True)])
def test_missing_context_by_words_needs_more_traces_than_false_alarms_explain(tmp_path, lacking, is_named):
    """Without gold it is a remedy where eight traces of ten have it, and none where two have."""
    chunks = (Chunk(id="a", text="The ferry to the island leaves at seven."),)
    names = ["Wyvern of Brandtberg"] * lacking + ["ferry"] * (10 - lacking)
    queries = [f"When does the {name} leave{'?' * (at + 1)}" for at, name in enumerate(names)]
    traces = [Trace(id=str(at), query=query, chunks=chunks) for at, query in enumerate(queries)]
    run = evaluate(traces, tmp_path / "run", judge=LEXICAL, metrics=["missing_context"])
    assert sum(row.value > 0 for row in run.scores()) == lacking
    remedies = {remedy.kind for remedy in suggest_remedies(run)}
    assert ("missing_context" in remedies) == is_named
    assert {remedy.kind for remedy in analyze(run).remedies} == remedies


def build_run_of_odd_answers(folder: Path, odd: int, **fields) -> Run:
    """Evaluate twenty questions on a ferry, of which some answers speak of something else."""
    chunks = (Chunk(id="a", text="The ferry to the island leaves at seven in the morning."),)
    answers = ["Bread rises for two hours in a warm room."] * odd + ["The ferry leaves at seven."] * (20 - odd)
    queries = [f"When does the ferry to the island leave{'?' * (at + 1)}" for at in range(20)]
    traces = [
        Trace(id=str(at), query=query, chunks=chunks, answer=answer, **fields)
        for at, (query, answer) in enumerate(zip(queries, answers, strict=True))
    ]
    return evaluate(traces, folder / f"run-{odd}", judge=LEXICAL)


@pytest.mark.parametrize(("odd", "in_doubt"), [(4, True), (16, False)])
def test_a_problem_on_no_more_traces_than_false_positives_says_so_and_comes_last(tmp_path, odd, in_doubt):
    """Four of twenty off-topic answers may be mistakes of the judge, sixteen cannot."""
    findings = analyze(build_run_of_odd_answers(tmp_path, odd))
    remedy = next(remedy for remedy in findings.remedies if remedy.kind == "irrelevant_answer")
    assert remedy.may_be_false_positives == in_doubt
    doubts = [remedy.may_be_false_positives for remedy in findings.remedies]
    assert doubts == sorted(doubts)
    assert ("of good traces such a judge says so" in describe_share(remedy)) == in_doubt


def test_a_problem_on_a_trace_that_the_answer_key_calls_wrong_is_no_false_positive(tmp_path):
    findings = analyze(build_run_of_odd_answers(tmp_path, 4, reference="The ferry leaves at seven."))
    assert not any(remedy.may_be_false_positives for remedy in findings.remedies if remedy.kind == "irrelevant_answer")


def test_runs_of_different_use_of_gold_are_not_compared_silently(demo):
    """Neither order is; on request they are, with a warning."""
    for sides in (("v1", "v2 ignored"), ("v1 ignored", "v2")):
        pair = [demo[name] for name in sides]
        with pytest.raises(RunError, match="-o OTHER --gold"):
            compare(*pair)
        assert any("gold" in line for line in compare(*pair, anyway=True).warnings)


def test_gold_is_applied_only_to_pairs_with_the_same_gold(tmp_path):
    """Where one side's labels were edited, both sides are scored by the judge alone."""
    chunk = Chunk(id="a", text="A passage on tides.")
    runs = []
    for side, edited in (("old", "a"), ("new", "z")):
        traces = [
            Trace(
                id=str(at),
                query=f"Fee of berth {at}?",
                chunks=(chunk,),
                gold=Gold(chunks={edited if at < 5 else "a": 1}),
            )
            for at in range(10)
        ]
        runs.append(evaluate(traces, tmp_path / side, judge=LEXICAL, metrics=["context_relevance"]))
    assert {row.value for row in runs[0].scores()} == {1.0}
    change = compare(*runs).changes[0]
    assert change.difference is not None
    assert change.difference.mean == 0
    assert change.baseline == pytest.approx(0.5)


def test_an_unknown_use_of_gold_is_refused(tmp_path):
    """The names are apply and ignore."""
    with pytest.raises(UnknownName, match="apply"):
        evaluate([Trace(id="1", query="q")], tmp_path / "run", gold="aply")


def test_a_fall_of_judged_relevance_beside_the_same_answers_is_no_fault_of_retrieval(tmp_path):
    """A retriever that finds other chunks beside those that the answers rest on is not shown to have broken."""
    query, chunk = "What does the ferry to the island cost in winter?", "The ferry to the island costs £{} in winter."
    beside = ("In winter the ferry to the island runs twice a day.", "Bicycles are let at the bakery.")

    def build(side: int, *, marked: bool) -> list[Trace]:
        return [
            Trace(
                id=f"{n}",
                query=query,
                chunks=(Chunk(id=f"{n}", text=chunk.format(n)), Chunk(id=f"{side}-{n}", text=beside[side])),
                answer=f"It costs £{n}.",
                gold=Gold(chunks={f"{n}": 1}) if marked else None,
            )
            for n in range(200)
        ]

    for marked in (True, False):
        runs = [evaluate(build(side, marked=marked), tmp_path / f"{marked}-{side}", judge=LEXICAL) for side in (0, 1)]
        bisection = bisect(*runs)
        assert (bisection.verdict, bisection.faults) == ("cannot tell", ()), bisection.sentence


def test_gold_ids_that_no_trace_retrieves_are_named(tmp_path):
    """A recall of 0 may be that of other ids: it is said where no id of any gold is retrieved, and only there."""

    def build_traces(name: str, first: int) -> list[Trace]:
        chunks = [(Chunk(id=name.format(at + first), text=f"Hall {at} is open."),) for at in range(12)]
        return [
            Trace(id=str(at), query=f"Is hall {at} open?", chunks=part, gold=Gold(chunks={f"hall-{at}": 1.0}))
            for at, part in enumerate(chunks)
        ]

    words = "none of the chunk ids that gold names is retrieved by any of 12 traces"
    for name, first, expected in (("uuid-{}", 0, True), ("hall-{}", 1, False), ("hall-{}", 0, False)):
        run = evaluate(build_traces(name, first), tmp_path / f"{name[:4]}{first}", judge=LEXICAL)
        assert (words in " ".join(render_terminal(build_findings(analyze(run))).split())) is expected
