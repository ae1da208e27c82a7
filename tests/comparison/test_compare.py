"""Comparing and bisecting runs: what moved, whether it is real, and which layer is to blame."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.faults.config import Config, Indexing
from benchmarks.faults.corpora import load_handbook_corpus
from benchmarks.faults.injection import keep_labels
from benchmarks.faults.system import answer_questions
from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare
from ragfault.comparison.decision_tree import EQUAL_DEPTH
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.run_profile import compare_profiles, stale_gold_share
from ragfault.diagnosis.run_analysis import analyze
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import RunError, UsageError
from ragfault.model.records import Chunk, Gold, Latency, Trace
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.comparison_wording import describe_test_terms
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL
from sample_runs import SYSTEM_METRICS, FixedJudge, Pair, evaluate_system, make_verdicts


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate_system(tmp_path_factory.mktemp("base") / "old", make_verdicts(200, 1))


# --- comparing -------------------------------------------------------------------------------------


def test_a_run_is_steady_against_itself(baseline: Run):
    """Nothing differs, so nothing dropped or rose, every p is 1, and retrieval is steady by its very chunks."""
    comparison = compare(baseline, baseline)
    assert (comparison.paired_by, comparison.pairs, comparison.unpaired) == ("id", 200, (0, 0))
    assert all(change.state == "steady" for change in comparison.changes if change.n)
    assert bisect(baseline, baseline).verdict == "no fault"
    recall = next(change for change in comparison.changes if change.metric == "recall@3")
    assert recall.identical
    assert recall.state == "steady"
    assert all(change.p == 1 for change in comparison.changes if change.n)


def test_a_drop_has_its_size_and_its_traces(baseline: Run, tmp_path: Path):
    """Where every third answer lost its grounding, groundedness dropped by about that, and the drops are named."""
    comparison = compare(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 2, grounding=0.3)))
    change = next(row for row in comparison.changes if row.metric == "groundedness")
    assert (change.state, change.verdict) == ("dropped", "worse")
    assert change.difference is not None
    assert change.difference.low < -0.3 < change.difference.high
    assert change.adjusted is not None
    assert change.p is not None
    assert change.p <= change.adjusted < 0.05
    assert change.fell > change.rose
    assert all(mover.candidate < mover.baseline for mover in change.drops)
    others = [row for row in comparison.changes if row.metric not in ("groundedness", "factual_accuracy")]
    assert not [row.metric for row in others if row.state == "dropped"]


class CountedRun(Run):
    """A run that lists the columns of each reading."""

    def iterate_batches(self, table="scores", columns=None, dictionary_columns=()):
        self.readings = [*getattr(self, "readings", ()), columns]
        return super().iterate_batches(table, columns, dictionary_columns)


def test_a_comparison_reads_the_chunks_of_each_run_once(baseline: Run, tmp_path: Path):
    """Decoding chunks takes longest of what a comparison reads, so that all that look for mismatches share them."""
    changed = evaluate_system(tmp_path / "new", make_verdicts(200, 1, grounding=0.3))
    runs = [CountedRun(run.path) for run in (baseline, changed)]
    compare(*runs)
    assert [run.readings.count(["chunks"]) for run in runs] == [1, 1]


def test_cannot_tell_says_how_many_pairs_would(baseline: Run, tmp_path: Path):
    """A small change on few traces is not called steady nor dropped; the number needed is more than there are."""
    few = compare(
        evaluate_system(tmp_path / "a", make_verdicts(12, 3)),
        evaluate_system(tmp_path / "b", make_verdicts(12, 4, grounding=0.05)),
        metrics=["groundedness"],
    )
    [change] = few.changes
    assert change.state == "cannot tell"
    assert change.needed is not None
    assert change.needed > 12
    assert change.detectable is not None
    assert change.detectable > 0.02


def test_the_number_of_pairs_needed_says_what_they_would_tell(tmp_path: Path):
    """Compare and gate ask other questions of the same pairs, and each says with its number what those would tell."""
    old, new = (evaluate_system(tmp_path / str(seed), make_verdicts(40, 3, grounding=seed / 20)) for seed in (0, 1))
    comparison = compare(old, new, metrics=["groundedness"])
    decided = gate(new, baseline=old, metrics=["groundedness"]).regression_decisions[0]
    assert None not in (comparison.changes[0].needed, decided.needed)
    assert comparison.changes[0].needed != decided.needed
    assert "needed: pairs required to detect a change as large as the margin" in describe_test_terms(comparison)
    assert "needed" not in describe_test_terms(replace(comparison, changes=()))
    assert f"about {decided.needed:,} pairs would {'show it' if 'show it' in decided.reason else 'rule it out'}" in (
        decided.reason
    )


def test_pairs_of_repeated_queries_are_stated_to_depend_on_each_other(tmp_path: Path):
    """Eight queries asked six times are eight independent pairs, which compare and bisect state."""
    old, new = (
        evaluate_system(
            tmp_path / name,
            [
                (replace(trace, id=f"{trace.id}-{again}"), replace(seen, trace=f"{trace.id}-{again}"))
                for trace, seen in make_verdicts(8, 1, grounding=grounding)
                for again in range(6)
            ],
        )
        for name, grounding in (("old", 0.0), ("new", 1.0))
    )
    why = "attempts of one query, turns of one conversation and repeated queries count as one"
    text = f"only 8 independent: {why}"
    assert text in " ".join(render_terminal(build_comparison(compare(old, new))).split())
    assert f"48 paired traces ({text})" in bisect(old, new).sentence


def test_the_detectable_change_grows_with_the_number_of_metrics(baseline: Run, tmp_path: Path):
    """What these pairs would miss is planned under the correction that is applied: more metrics, a larger change."""
    candidate = evaluate_system(tmp_path / "new", make_verdicts(200, 2))
    together = compare(baseline, candidate, margin=0.02)
    tested = [change for change in together.changes if change.detectable is not None]
    assert len(tested) > 1
    for change in tested:
        alone = compare(baseline, candidate, metrics=[change.metric], margin=0.02).changes[0]
        assert alone.detectable is not None
        assert change.detectable > alone.detectable


def test_lower_is_better_the_right_way_round(baseline: Run, tmp_path: Path):
    """A latency that rose is worse."""
    from ragfault.model.records import Latency

    slow = [(replace(t, latency=Latency(total=900.0 + n % 7)), v) for n, (t, v) in enumerate(make_verdicts(40, 1))]
    fast = [(replace(t, latency=Latency(total=500.0 + n % 5)), v) for n, (t, v) in enumerate(make_verdicts(40, 1))]
    comparison = compare(
        evaluate_system(tmp_path / "a", fast), evaluate_system(tmp_path / "b", slow), metrics=["latency"]
    )
    assert (comparison.changes[0].state, comparison.changes[0].verdict) == ("rose", "worse")


def evaluate_latencies(folder: Path, latencies: list[float]) -> Run:
    """Evaluate traces that took so long, in milliseconds."""
    traces = [
        Trace(id=str(at), query=f"Question {at}?", answer="Yes.", latency=Latency(total=took))
        for at, took in enumerate(latencies)
    ]
    return evaluate(traces, folder, metrics=["latency", "blank_answer"], judge="none")


def test_a_longer_tail_shows_beside_the_mean(tmp_path: Path):
    """Where the slowest tenth takes three times as long, p95 rose and p50 did not; p99 is left out below 368 pairs."""
    took = [100.0 + at for at in range(200)]
    old = evaluate_latencies(tmp_path / "old", took)
    new = evaluate_latencies(tmp_path / "new", [3 * ms if ms >= 280 else ms for ms in took])
    comparison = compare(old, new)
    latency, blank = comparison.changes
    median, tail = latency.quantiles
    assert (median.quantile, median.value, median.adjusted) == (0.5, 0, 1)
    assert tail.low is not None
    assert tail.low > 0
    assert tail.adjusted is not None
    assert tail.p <= tail.adjusted < 0.001
    assert latency.ratio is not None
    assert latency.ratio.value == pytest.approx(latency.candidate / latency.baseline)  # type: ignore[operator]
    assert (blank.quantiles, blank.ratio) == ((), None)
    for text in (
        render_terminal(build_comparison(comparison), width=200),
        render_markdown(build_comparison(comparison)),
    ):
        assert "p50 199 → 199" in text
        assert "p95 289 → 867, +578" in text


def test_amounts_have_no_number_of_pairs_needed(tmp_path: Path):
    """Of lognormal latencies the spread of few is mostly below that of all: neither compare nor gate plans with it."""
    random = np.random.default_rng(0)
    runs = [evaluate_latencies(tmp_path / name, random.lognormal(6, 1.5, 60).tolist()) for name in ("old", "new")]
    [latency] = [change for change in compare(*runs).changes if change.metric == "latency"]
    assert (latency.state, latency.needed, latency.detectable) == ("cannot tell", None, None)
    [decision] = gate(runs[1], baseline=runs[0], metrics=["latency"]).regression_decisions
    assert (decision.result, decision.needed) == ("cannot tell", None)
    assert decision.reason.endswith("more pairs are needed, and of amounts nobody knows how many")


def test_a_scorecard_gives_quantiles_of_latency(tmp_path: Path):
    """p50 and p95 with their intervals in the scorecard; on 30 traces p95 has no upper end, and the report says why."""
    many = analyze(evaluate_latencies(tmp_path / "many", [float(ms) for ms in range(1, 401)]))
    few = analyze(evaluate_latencies(tmp_path / "few", [float(ms) for ms in range(1, 31)]))
    assert [item.quantile for item in many.scorecard.aggregates[0].quantiles] == [0.5, 0.95, 0.99]
    assert [item.quantile for item in few.scorecard.aggregates[0].quantiles] == [0.5, 0.95]
    assert few.scorecard.aggregates[0].quantiles[1].high is None
    line = "latency: p50 15.0 [10.0, 21.0], p95 29.0 [26.0, –] (the upper end of p95 needs about 72 values, not 30)"
    assert line in render_terminal(build_findings(few), width=200)
    assert few.scorecard.aggregates[1].quantiles == ()


def test_traces_without_recorded_ids_pair_by_query(tmp_path: Path):
    """Their ids are made from the query: nothing else says that two traces belong together."""
    lines = [f'{{"query": "How long is path {n}?", "answer": "{n} km.", "chunks": ["{n} km."]}}' for n in range(9)]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines))
    run = evaluate(tmp_path / "traces.jsonl", tmp_path / "run", judge=LEXICAL)
    assert compare(run, run, anyway=True).paired_by == "query"
    traces = enumerate(read_traces(tmp_path / "traces.jsonl"))
    other = [replace(trace, query=["Who keeps the keys?", "When is it shut?"][at % 2]) for at, trace in traces]
    comparison = compare(run, evaluate(other, tmp_path / "other", judge=LEXICAL))
    assert comparison.paired_by == "id"
    assert "the queries differ on 100 % of pairs under the same id" in comparison.mismatches[0].sentence


def test_traces_pair_by_query_where_ids_differ(baseline: Run, tmp_path: Path):
    """Other ids, same queries: paired by query, and what has no partner is counted."""
    renamed = [(replace(t, id=f"x-{t.id}"), replace(v, trace=f"x-{t.id}")) for t, v in make_verdicts(150, 1)]
    comparison = compare(baseline, evaluate_system(tmp_path / "new", renamed), metrics=["error", "groundedness"])
    assert (comparison.paired_by, comparison.pairs, comparison.unpaired) == ("query", 150, (50, 0))
    strangers = [
        (replace(t, id=f"y-{t.id}", query="other"), replace(v, trace=f"y-{t.id}")) for t, v in make_verdicts(5, 1)
    ]
    with pytest.raises(RunError, match="has the id or the query"):
        compare(baseline, evaluate_system(tmp_path / "strange", strangers))


def test_other_judges_are_refused_unless_asked_for(baseline: Run, tmp_path: Path):
    """Different fingerprints or parameters stop a comparison; told to go on, it warns."""
    pairs = make_verdicts(200, 1)

    class Other(FixedJudge):
        fingerprint = "other/2"

    other = evaluate([t for t, _ in pairs], tmp_path / "o", judge=Other([v for _, v in pairs]), metrics=SYSTEM_METRICS)
    with pytest.raises(RunError, match=r"told/1.*other/2.*--rejudge"):
        compare(baseline, other)
    assert compare(baseline, other, anyway=True).warnings
    strict = evaluate_system(tmp_path / "s", pairs, ["groundedness(strict=true)", "recall@3"])
    with pytest.raises(RunError, match="score groundedness with different parameters"):
        compare(baseline, strict)
    assert [c.metric for c in compare(baseline, strict, anyway=True).changes] == ["recall@3"]
    with pytest.raises(RunError, match="share no metric"):
        compare(baseline, evaluate_system(tmp_path / "n", pairs, ["triad"]))
    with pytest.raises(UsageError, match="alpha is a number between 0 and 1"):
        compare(baseline, baseline, alpha=2)
    with pytest.raises(UsageError, match="margin is a number between 0 and 1"):
        compare(baseline, baseline, margin=5)
    with pytest.raises(UsageError, match="below the width of its range"):
        compare(baseline, baseline, margins={"groundedness": 5})


def test_undefined_on_one_side_is_counted_not_compared(baseline: Run, tmp_path: Path):
    """A trace that lost its answer leaves the pairs of the metrics that need one, and is told."""
    mute = [
        (replace(t, answer=None), replace(v, claim=None, answer=None)) if n < 30 else (t, v)
        for n, (t, v) in enumerate(make_verdicts(200, 1))
    ]
    comparison = compare(baseline, evaluate_system(tmp_path / "new", mute), metrics=["groundedness"])
    assert (comparison.changes[0].n, comparison.changes[0].lost) == (170, (30, 0))


def test_the_family_is_corrected_together(baseline: Run, tmp_path: Path):
    """With more metrics compared the same raw p is corrected more."""
    new = evaluate_system(tmp_path / "new", make_verdicts(200, 2, grounding=0.1))
    alone = compare(baseline, new, metrics=["groundedness"]).changes[0]
    among = next(c for c in compare(baseline, new).changes if c.metric == "groundedness")
    assert alone.p == among.p
    assert alone.adjusted is not None
    assert among.adjusted is not None
    assert alone.adjusted <= among.adjusted


# --- bisecting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "layer", "branch"),
    [
        ({"retrieval": 0.3}, "retrieval", "1"),
        ({"grounding": 0.3}, "generation", "2"),
        ({"source": 0.3}, "source data", "3"),
        ({"truncation": 0.3}, "generation", "4"),
        ({"citing": 0.4}, "generation", "5"),
    ],
    ids=str,
)
def test_each_branch_of_the_tree_matches_its_fault(
    baseline: Run, tmp_path: Path, fault: dict[str, float], layer: str, branch: str
):
    """A fault put into one place is named with its layer and branch, its suspects, remedies and example traces."""
    comparison = bisect(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 2, **fault)))
    assert comparison.verdict == "fault"
    first = comparison.faults[0]
    assert (first.layer, first.branch[0]) == (layer, branch)
    assert first.suspects
    assert first.remedies
    assert first.examples
    assert comparison.sentence.startswith(layer.capitalize())
    walked = [ruling for ruling in comparison.tree if ruling.branch[0].isdigit()]
    assert [ruling.outcome for ruling in walked].count("fault") == 1
    assert len(walked) == 6


def test_answers_that_wander_and_are_right_by_their_key_break_no_layer(baseline: Run, tmp_path: Path):
    """Less relevant by the judge, they still state all that was asked for."""
    comparison = bisect(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 2, wander=0.4)))
    assert (comparison.verdict, comparison.faults) == ("no fault", ())
    changes = {change.metric: change for change in comparison.comparison.changes}
    assert changes["answer_relevance"].adjusted < 0.05


@pytest.mark.long
def test_the_metrics_of_a_bisection_have_four_fifths_of_alpha(baseline: Run, tmp_path: Path):
    """The search for a segment and the record have the rest: each corrected p is a quarter larger than alone."""
    bisection = bisect(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 2, grounding=0.05)))
    changes = [change for change in bisection.comparison.changes if change.adjusted is not None]
    alone = compare(baseline, Run(tmp_path / "new"), metrics=[c.metric for c in changes if c.metric != EQUAL_DEPTH])
    at_depth = {change.metric: change for change in alone.changes}
    shared = [(change, at_depth[change.metric]) for change in changes if change.metric in at_depth]
    assert shared
    assert all(change.adjusted >= min(1.0, other.adjusted / 0.8) - 1e-12 for change, other in shared)


@pytest.mark.long
def test_nothing_is_blamed_where_nothing_broke(tmp_path: Path):
    """Over 20 pairs of runs of the same system a fault is claimed at most twice, and never of a run against itself."""
    runs = [evaluate_system(tmp_path / f"r{seed}", make_verdicts(120, seed)) for seed in range(21)]
    claimed = [bisect(old, new).verdict == "fault" for old, new in pairwise(runs)]
    assert sum(claimed) <= 2
    assert bisect(runs[0], runs[0]).verdict != "fault"


@pytest.mark.long
def test_few_traces_give_no_wrong_layer(tmp_path: Path):
    """On 15 traces a moderate fault is not pinned to another layer: right, or cannot tell with a number."""
    for seed in range(6):
        old = evaluate_system(tmp_path / f"a{seed}", make_verdicts(15, seed))
        new = evaluate_system(tmp_path / f"b{seed}", make_verdicts(15, 50 + seed, grounding=0.25))
        comparison = bisect(old, new)
        assert not comparison.faults or comparison.faults[0].layer == "generation"
        if comparison.verdict == "cannot tell":
            assert "cannot" in comparison.sentence


@pytest.mark.parametrize(
    ("faults", "layers"),
    [
        ({"retrieval": 0.5, "grounding": 0.5}, ["retrieval", "generation"]),
        ({"retrieval": 0.2, "grounding": 0.6}, ["generation", "retrieval"]),
    ],
    ids=["retrieval", "generation"],
)
def test_of_two_faults_that_with_the_stronger_evidence_stands_first(
    baseline: Run, tmp_path: Path, faults: dict[str, float], layers: list[str]
):
    """Where retrieval and generation broke together both are named, generation by answers to the same chunks."""
    comparison = bisect(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 2, **faults)))
    assert [fault.layer for fault in comparison.faults] == layers


def test_a_drop_that_shows_on_no_pair_with_the_same_chunks_is_not_blamed(baseline: Run, tmp_path: Path):
    """Where every list holds another chunk, and no judge here tells, the record of the chunks is not ruled out."""
    traces = make_verdicts(200, 2, retrieval=0.2, grounding=0.6)
    moved = [
        (replace(t, chunks=(*(t.chunks or ()), Chunk(id=f"{t.id}-more", text="Of no use."))), v) for t, v in traces
    ]
    comparison = bisect(baseline, evaluate_system(tmp_path / "new", moved))
    assert [fault.layer for fault in comparison.faults] == ["retrieval"]


def invent_claims(pair: Pair) -> Pair:
    trace, seen = pair
    return trace, replace(seen, claim=tuple(replace(claim, support="unsupported") for claim in seen.claim or ()))


def use_first(pair: Pair) -> Pair:
    trace, seen = pair
    use = seen.use or ()
    return trace, replace(seen, use=(use[0], *(replace(chunk, used=False) for chunk in use[1:])))


def add_chunk(pair: Pair) -> Pair:
    trace, seen = pair
    return replace(trace, chunks=(*(trace.chunks or ()), Chunk(id=f"{trace.id}-more", text="Of no use."))), seen


def copy_first(pair: Pair) -> Pair:
    trace, seen = pair
    first, second, third = trace.chunks or ()
    return replace(trace, chunks=(first, second, replace(third, text=first.text))), seen


@pytest.mark.parametrize("everywhere", [True, False], ids=["everywhere", "there"])
def test_a_drop_only_where_the_chunks_are_others_is_no_second_fault(tmp_path: Path, everywhere: bool):
    """Where lists hold other chunks, these may be its cause; a drop also where they are the same is a second fault."""
    new = make_verdicts(200, 2, retrieval=0.4)
    odd = [invent_claims(pair) if everywhere else pair for pair in new[1::2]]
    even = [invent_claims(add_chunk(pair)) for pair in new[::2]]
    runs = [evaluate_system(tmp_path / "old", make_verdicts(200, 1)), evaluate_system(tmp_path / "new", [*even, *odd])]
    assert sorted(fault.layer for fault in bisect(*runs).faults) == ["generation"] * everywhere + ["retrieval"]


@pytest.mark.parametrize("change", [copy_first, add_chunk])
def test_a_drop_on_other_lists_everywhere_is_no_second_fault(tmp_path: Path, change: Callable[[Pair], Pair]):
    """Where every list holds a text twice, or one more, the answers may follow it."""
    old = [use_first(pair) for pair in make_verdicts(200, 1)]
    new = [invent_claims(change(use_first(pair))) for pair in make_verdicts(200, 2, retrieval=0.4)]
    runs = [evaluate_system(tmp_path / "old", old), evaluate_system(tmp_path / "new", new)]
    assert [fault.layer for fault in bisect(*runs).faults] == ["retrieval"]


@pytest.mark.long
def test_a_longer_list_alone_does_not_lower_relevance_at_equal_depth(baseline: Run, tmp_path: Path):
    """Chunks added at the end leave context_relevance at equal depth where it was."""
    side = pair_runs(baseline, evaluate_system(tmp_path / "new", make_verdicts(200, 1, extra=5)))
    comparison = bisect(side)
    deep = next(change for change in comparison.comparison.changes if change.metric == EQUAL_DEPTH)
    assert deep.difference is not None
    assert deep.difference.mean == pytest.approx(0, abs=1e-12)
    assert any(clue.name == "depth" and "top-k" in clue.suspects for clue in comparison.differences)


def test_void_labels_are_noticed_instead_of_a_collapse(baseline: Run, tmp_path: Path):
    """After re-chunking with the old gold ids, recall by id is left out and a warning says why."""
    recut = []
    for trace, seen in make_verdicts(200, 1):
        chunks = tuple(
            replace(chunk, id=f"new-{chunk.id}", text=f"Cut anew: {chunk.text}") for chunk in trace.chunks or ()
        )
        verdicts = tuple(replace(v, chunk=f"new-{v.chunk}") for v in seen.chunk or ())
        use = tuple(replace(v, chunk=f"new-{v.chunk}") for v in seen.use or ())
        recut.append((replace(trace, chunks=chunks), replace(seen, chunk=verdicts, use=use)))
    new = evaluate_system(tmp_path / "new", recut)
    assert stale_gold_share(*pair_runs(baseline, new).profiles) == 1.0
    comparison = bisect(baseline, new)
    assert comparison.verdict != "fault"
    assert "labels no longer describe the corpus: 100 % of gold ids are gone" in comparison.comparison.warnings[0]


@pytest.mark.long
def test_gold_that_names_lost_ids_alone_raises_no_chunk_of_either_run(tmp_path: Path):
    """After re-chunking with the old gold ids, relevance moves as it does where no trace has gold."""
    corpus = load_handbook_corpus()
    questions = corpus.questions[:60]
    recut = Config(indexing=Indexing(chunker="window", size=1100))
    old, new = (answer_questions(corpus, config, questions) for config in (Config(), recut))
    old = [replace(trace, gold=trace.gold and Gold(chunks=trace.gold.chunks)) for trace in old]
    stale = keep_labels(old, new)
    sides = ((old, stale), ([replace(t, gold=None) for t in old], [replace(t, gold=None) for t in new]))
    drops = []
    for at, pair in enumerate(sides):
        runs = [evaluate(side, tmp_path / f"{at}-{i}", judge=LEXICAL) for i, side in enumerate(pair)]
        change = next(c for c in bisect(*runs).comparison.changes if c.metric == EQUAL_DEPTH)
        assert change.difference is not None
        drops.append(change.difference.mean)
    assert drops[0] == drops[1]


def test_changed_sources_point_to_the_documents(baseline: Run, tmp_path: Path):
    """Chunks whose text changed under the same id are a clue for the source data."""
    stale = [
        (replace(t, chunks=tuple(Chunk(id=c.id, text=c.text + " Now 9.") for c in t.chunks or ())), v)
        for t, v in make_verdicts(200, 2, source=0.3)
    ]
    comparison = bisect(baseline, evaluate_system(tmp_path / "new", stale))
    assert comparison.faults[0].layer == "source data"
    assert [clue.name for clue in comparison.faults[0].differences] == ["texts"]


def test_what_was_never_there_did_not_fall(baseline: Run):
    """Between a run and itself there is no clue, also where its answers cite nothing."""
    bare = replace(pair_runs(baseline, baseline).profiles[0], citation_counts=[0, 0])
    assert compare_profiles(bare, bare) == ()


def test_the_same_seed_gives_the_same_bisection(baseline: Run, tmp_path: Path):
    """Every random step is seeded."""
    new = evaluate_system(tmp_path / "new", make_verdicts(200, 2, grounding=0.1))
    assert bisect(baseline, new) == bisect(baseline, new)


def test_a_refusal_is_not_compared_with_one_that_other_labels_decide(tmp_path: Path):
    """Whether an answer should have refused is decided by gold and the key: without them on one side, nothing moved."""
    chunk = Chunk(id="a", text="The hall is open on weekdays.")
    bare = [Trace(id=str(i), query="May I sail?", chunks=(chunk,), answer="Yes, from noon.") for i in range(30)]
    keyed = [replace(trace, gold=Gold(chunks={"a": 1.0})) for trace in bare]
    runs = [evaluate(part, tmp_path / name, judge=LEXICAL) for part, name in ((keyed, "old"), (bare, "new"))]
    scores = [next(score.value for score in run.scores(["0"]) if score.metric == "missed_refusal") for run in runs]
    assert scores == [0.0, 1.0]
    assert not [change.metric for change in compare(*runs).changes if change.state in ("dropped", "rose")]
