"""Laws of the findings, on real small runs with verdicts written by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.run_analysis import (
    analyze,
    compute_insights,
    diagnose,
    diagnose_run,
    suggest_remedies,
    worst_traces,
)
from ragfault.diagnosis.run_table import RunTable
from ragfault.diagnosis.scorecard import (
    assess_rag,
    build_scorecard,
    build_segments,
    count_quality,
    pair_tradeoffs,
    quality_level,
)
from ragfault.diagnosis.thresholds import Threshold
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import RunError, UnknownName
from ragfault.model.records import (
    AnswerVerdict,
    Aspect,
    Chunk,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    Evidence,
    FactVerdict,
    RecallVerdict,
    Trace,
    TruthVerdict,
    Verdicts,
)
from ragfault.stats.intervals import mean_interval
from sample_runs import evaluate_pairs, pair
from sample_traces import draw_judged_traces


def only(card, metric):
    """Return the aggregate of one metric."""
    return next(item for item in card.aggregates if item.metric == metric)


def kinds(trace, verdicts):
    """Return the kinds of problem of a trace, in order."""
    return [problem.kind for problem in diagnose(trace, verdicts).problems]


# --- the scorecard ---------------------------------------------------------------------------------


def test_an_aggregate_is_the_mean_over_the_scored_alone(tmp_path):
    """Two grounded shares, 1.0 and 0.5, and one answer without claims: mean 0.75 of 2, one undefined."""
    run = evaluate_pairs(tmp_path, [pair("a", "h", "ss"), pair("b", "h", "su"), pair("c", "h", "")], ["groundedness"])
    result = only(build_scorecard(run), "groundedness")
    assert (result.interval.mean, result.scored, result.undefined, result.failed) == (0.75, 2, 1, 0)
    assert result.why_undefined[0].text == "the answer makes no claim"
    assert result.interval == mean_interval([1.0, 0.5], bounds=(0, 1))


def test_what_a_judge_lost_is_counted_as_failed(tmp_path):
    """A lost part gives failed scores with the judge's reason, and no value."""
    trace, seen = pair("b", "h", "s")
    lost = replace(seen, claim=None, failures={"claim": "timed out"})
    result = only(
        build_scorecard(evaluate_pairs(tmp_path, [pair("a", "h", "s"), (trace, lost)], ["groundedness"])),
        "groundedness",
    )
    assert (result.scored, result.failed) == (1, 1)
    assert [(reason.text, reason.count) for reason in result.why_failed] == [("timed out", 1)]


def test_nothing_scored_has_no_interval(tmp_path):
    """A metric undefined on every trace has no mean at all, not zero."""
    result = only(build_scorecard(evaluate_pairs(tmp_path, [pair("a", "h", "s")], ["ndcg@10"])), "ndcg@10")
    assert result.interval is None
    assert result.result is None
    assert result.undefined == 1


def test_turns_of_a_conversation_count_as_one_cluster(tmp_path):
    """Four traces of two conversations and one of none make three clusters."""
    run = [
        pair("a", "h", "s", conversation="x"),
        pair("b", "h", "s", conversation="x"),
        pair("c", "h", "u", conversation="y"),
        pair("d", "h", "u", conversation="y"),
        pair("e", "h", "s"),
    ]
    result = only(build_scorecard(evaluate_pairs(tmp_path, run, ["groundedness"])), "groundedness").interval
    assert (result.n, result.clusters) == (5, 3)
    assert result == mean_interval([1, 1, 0, 0, 1], ["x", "x", "y", "y", "e"], bounds=(0, 1))


def test_a_target_is_met_only_with_all_of_the_interval(tmp_path):
    """40 of 40 meet a target of 0.85, 0 of 40 miss it, 3 of 4 are unclear."""
    for signs, result in (("s" * 40, "pass"), ("u" * 40, "fail"), ("sssu", "cannot tell")):
        run = [pair(f"t{at}", "h", sign) for at, sign in enumerate(signs)]
        place = tmp_path / result
        place.mkdir()
        aggregate = only(build_scorecard(evaluate_pairs(place, run, ["groundedness"])), "groundedness")
        assert (aggregate.result, aggregate.target) == (result, Threshold("groundedness", ">", 0.85))


def test_a_target_for_a_name_goes_for_every_cut_off_unless_there_is_a_closer_one(tmp_path):
    """`recall>=0.5` goes for recall@5, and gives way to `recall@5>=0.1`; precision@k has none of its own."""
    run = evaluate_pairs(tmp_path, [pair("a", "h", "s")], ["recall@5", "precision@5"])
    assert only(build_scorecard(run), "recall@5").target == Threshold("recall@5", ">=", 0.9)
    assert only(build_scorecard(run), "precision@5").target is None
    card = build_scorecard(run, ["recall>=0.5", "recall@5 >= 0.1"])
    assert only(card, "recall@5").target == Threshold("recall@5", ">=", 0.1)


def test_an_unbounded_metric_keeps_an_unbounded_interval(tmp_path):
    """One latency says nothing of the spread: the interval runs from 0 without end."""
    from ragfault.model.records import Latency

    run = evaluate_pairs(tmp_path, [pair("a", "h", "s", latency=Latency(total=120.0))], ["latency"])
    result = only(build_scorecard(run), "latency")
    assert (result.interval.mean, result.interval.low, result.interval.high) == (120.0, 0.0, math.inf)
    assert result.high is None


def test_the_scorecard_equals_the_rows(tmp_path):
    """Means and counts are those of the score rows, for every metric of the default set."""
    pairs = [pair("a", "hn", "su"), pair("b", "", "s"), pair("c", "lmn", "", missing=("x",)), pair("d", "hh", "c")]
    run = evaluate_pairs(tmp_path, pairs)
    rows = list(run.scores())
    for result in build_scorecard(run).aggregates:
        values = [row.value for row in rows if row.metric == result.metric and row.status == "scored"]
        assert result.scored == len(values)
        assert result.traces == 4
        assert values == [] or result.interval.mean == pytest.approx(sum(values) / len(values), abs=1e-12)


def test_a_run_with_missing_score_rows_is_refused(tmp_path):
    """A scores table with a row missing is not silently averaged."""
    import pyarrow.parquet as pq

    run = evaluate_pairs(tmp_path, [pair("a", "h", "s"), pair("b", "h", "s")], ["groundedness", "error"])
    pq.write_table(run.to_arrow().slice(1), run.path / "scores.parquet")
    with pytest.raises(RunError, match="its checksum is not that of the manifest"):
        build_scorecard(run)


# --- segments --------------------------------------------------------------------------------------


def test_segments_divide_the_traces(tmp_path):
    """By route: the largest first, those without one on their own, each with its own mean and targets."""
    pairs = [
        pair("a", "h", "s", route="faq"),
        pair("b", "h", "u", route="law"),
        pair("c", "h", "s", route="faq"),
        pair("d", "h", "u"),
    ]
    run = evaluate_pairs(tmp_path, pairs, ["groundedness"])
    cards = build_segments(run, "route", routes={"law": ["groundedness>=0.5"]})
    assert [(card.segment, card.traces) for card in cards] == [("faq", 2), ("law", 1), (None, 1)]
    assert [only(card, "groundedness").interval.mean for card in cards] == [1.0, 0.0, 0.0]
    assert [str(only(card, "groundedness").target) for card in cards] == [
        "groundedness>0.85",
        "groundedness>=0.5",
        "groundedness>0.85",
    ]


def test_segments_by_a_key_of_the_metadata(tmp_path):
    """`metadata.tier` divides by that key; a key that no trace has is an error that names those there are."""
    pairs = [pair("a", "h", "s", metadata={"tier": 1}), pair("b", "h", "s", metadata={"tier": "x"}), pair("c", "h")]
    run = evaluate_pairs(tmp_path, pairs, ["error"])
    assert {card.segment for card in build_segments(run, "metadata.tier")} == {"1", "x", None}
    with pytest.raises(UnknownName, match=r'Did you mean "metadata.tier"'):
        build_segments(run, "metadata.teir")
    with pytest.raises(UnknownName, match="field to divide by"):
        build_segments(run, "colour")


# --- health ----------------------------------------------------------------------------------------


def test_the_health_of_a_layer_is_the_share_of_traces_on_which_it_did_its_part(tmp_path):
    """Retrieval finds what two of three queries ask for; of the answers that it did not spoil all are right."""
    pairs = [pair("a", "h", "s"), pair("b", "nn", "u"), pair("c", "h", "s")]
    findings = analyze(evaluate_pairs(tmp_path, pairs))
    retrieval, generation = findings.health
    assert retrieval.interval.mean == pytest.approx(2 / 3)
    assert (retrieval.source, generation.source) == ("judge", "causes")
    assert generation.interval.mean == 1.0


def test_refusals_miss_no_target_of_use(tmp_path):
    """The use of chunks misses its target and alarms only where answers that do not refuse do not draw on them."""
    silent = AnswerVerdict(relevance=0.0, refused=True)
    for name, used in (("all", ""), ("used", "yyyy"), ("unused", "----")):
        pairs = [pair(f"t{at}", "hhhh", used=used if at % 2 and used else "----") for at in range(40)]
        pairs = [
            (trace, seen if used and at % 2 else replace(seen, answer=silent)) for at, (trace, seen) in enumerate(pairs)
        ]
        run = evaluate_pairs(tmp_path / name, pairs)
        result = only(build_scorecard(run, ["chunk_utilization >= 0.6"]), "chunk_utilization").result
        alarms = [alert.name for alert in assess_rag(run).alerts]
        assert (result, alarms) == (("fail", ["LOW_USAGE"]) if name == "unused" else (None, [])), name


def test_rag_health_by_hand(tmp_path):
    """RAG health has the numbers of the metrics it names; missing by trace, optimal contexts with 3 to 5 relevant."""
    pairs = [
        pair("a", "hhh", "s", used="yy-"),
        pair("b", "n", "s", used="-", missing=("the date",)),
        pair("c", "hmln", "s", used="----", missing=None),
        pair("d", "", "s"),
    ]
    run = evaluate_pairs(tmp_path, pairs)
    result = assess_rag(run)
    means = {item.metric: item.interval for item in build_scorecard(run).aggregates}
    for name in ("context_relevance", "chunk_utilization", "context_ranking"):
        assert getattr(result, name) == means[name] is not None
    assert (result.missing_context_rate.mean, result.missing_context_rate.n) == (pytest.approx(1 / 3), 3)
    assert (result.optimal_context_rate.mean, result.optimal_context_rate.n) == (pytest.approx(1 / 4), 4)
    assert [alert.name for alert in result.alerts] == ["LOW_RELEVANCE", "LOW_USAGE", "MISSING_CONTEXT"]
    assert not result.alerts[2].certain


def test_rag_health_without_verdicts_is_silent(tmp_path):
    """Where no judge looked, no figure is made up and nothing alarms."""
    result = assess_rag(evaluate_pairs(tmp_path, [(Trace(id="a", query="q"), Verdicts(trace="a"))], ["error"]))
    figures = (result.context_relevance, result.chunk_utilization, result.missing_context_rate)
    assert (*figures, result.optimal_context_rate, result.alerts) == (None,) * 4 + ((),)


@pytest.mark.parametrize(
    ("triad", "name"),
    [
        (1.0, "excellent"),
        (0.85, "excellent"),
        (0.849, "good"),
        (0.7, "good"),
        (0.5, "fair"),
        (0.49, "poor"),
        (0, "poor"),
    ],
)
def test_quality_levels(triad, name):
    """The levels begin at 0.85, 0.70 and 0.50."""
    assert quality_level(triad).name == name


def test_the_quality_levels_hold_every_trace_with_a_triad(tmp_path):
    """The counts of the levels and of the traces without a triad sum to all."""
    run = [pair("a", "h", "s"), pair("b", "n", "u", relevance=0.1), pair("c", "h", ""), pair("d", "m", "s")]
    levels, unrated = count_quality(evaluate_pairs(tmp_path, run))
    assert [result.count for result in levels] == [2, 0, 0, 1]
    assert unrated == 1
    assert levels[0].share.mean == pytest.approx(2 / 3)
    assert levels[-1].action == "self-correct"


def test_trade_offs_are_shown_together(tmp_path):
    """A pair of which the run has one side names the other as absent; one without any value is left out."""
    result = pair_tradeoffs(evaluate_pairs(tmp_path, [pair("a", "h", "s")], ["groundedness", "context_precision"]))
    assert [(p.names, p.first is None, p.second is None) for p in result] == [
        (("context_recall", "context_precision"), True, False),
        (("groundedness", "completeness"), False, True),
    ]


# --- insights --------------------------------------------------------------------------------------


def labelled(result, measure, by):
    """Return the buckets of one insight: label → (mean, chunks, traces)."""
    for item in result:
        if (item.measure, item.by) == (measure, by):
            return {b.label: (pytest.approx(b.interval.mean), b.interval.n, b.traces) for b in item.buckets}
    return None


def test_insights_by_number_position_and_turn(tmp_path):
    """Chunks fall into the bucket of their trace's count and turn and of their own place."""
    run = [pair("a", "hn", "s", used="y-", turn=1), pair("b", "hnnn", "s", used="y---", turn=7)]
    result = compute_insights(evaluate_pairs(tmp_path, run))
    assert labelled(result, "relevance", "chunks") == {"1–3": (0.5, 2, 1), "4–6": (0.3, 4, 1)}
    assert labelled(result, "use", "position") == {"1": (1, 2, 2), "2": (0, 2, 2), "3": (0, 1, 1), "4": (0, 1, 1)}
    assert labelled(result, "use", "turn") == {"1": (0.5, 2, 1), "5+": (0.25, 4, 1)}
    assert labelled(result, "use", "route") is None


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (0, "< 100"),
        (99, "< 100"),
        (100, "100–500"),
        (499, "100–500"),
        (500, "500–1000"),
        (1000, "500–1000"),
        (1001, "> 1000"),
    ],
)
def test_insights_by_length_count_characters(tmp_path, size, label):
    """A length on an edge belongs to the bucket that begins there, 1000 to the third; é is one character."""
    trace, seen = pair("a", "h", "s")
    trace = replace(trace, chunks=(replace(trace.chunks[0], text="é" * size),))
    assert set(labelled(compute_insights(evaluate_pairs(tmp_path, [(trace, seen)], ["error"])), "use", "length")) == {
        label
    }


@pytest.mark.parametrize(
    ("updated", "label"),
    [("2026-03-01", "0–30"), ("2026-01-30T12:00:00Z", "31–90"), ("2025-03-02", "91–365"), ("2024-01-01", "> 365")],
)
def test_insights_by_age(tmp_path, updated, label):
    """The age is counted in whole days from `updated_at` to the query."""
    trace, seen = pair("a", "h", "s", time=datetime(2026, 3, 2, 12, tzinfo=UTC))
    trace = replace(trace, chunks=(replace(trace.chunks[0], metadata={"updated_at": updated}),))
    assert set(labelled(compute_insights(evaluate_pairs(tmp_path, [(trace, seen)], ["error"])), "use", "age")) == {
        label
    }


@pytest.mark.parametrize("updated", ["2027-01-01", "soon", 7, None])
def test_an_age_that_cannot_be_computed_is_unknown(tmp_path, updated):
    """A date after the query, or none at all, puts a chunk in no bucket."""
    trace, seen = pair("a", "hh", "s", time=datetime(2026, 3, 2, tzinfo=UTC))
    dated = replace(trace.chunks[0], metadata={"updated_at": "2026-03-01"})
    vague = replace(trace.chunks[1], metadata={"updated_at": updated})
    run = evaluate_pairs(tmp_path, [(replace(trace, chunks=(dated, vague)), seen)], ["error"])
    result = next(item for item in compute_insights(run) if item.by == "age")
    assert (len(result.buckets), result.unknown) == (1, 1)


# --- diagnosis -------------------------------------------------------------------------------------


def test_a_good_trace_has_no_problem():
    """Relevant chunks, supported claims, nothing missing: nothing to show."""
    assert kinds(*pair("a", "hml", "si")) == []


def test_problems_of_chunks():
    """A chunk at level none is irrelevant, one at low is not; with none relevant the trace says so as well."""
    assert kinds(*pair("a", "hln", "s")) == ["irrelevant_chunk"]
    assert kinds(*pair("a", "ln", "s")) == ["nothing_relevant", "irrelevant_chunk", "missed_refusal"]
    assert kinds(*pair("a", "", "")) == ["nothing_retrieved", "missed_refusal"]
    assert kinds(*pair("a", "h", "s", missing=("a date", "a name"))) == ["missing_context"] * 2 + ["missed_refusal"]


def test_problems_of_claims_carry_their_span():
    """The span of the problem is the claim's place in the answer."""
    trace, seen = pair("a", "h", "suc")
    result = diagnose(trace, seen).problems
    assert [problem.kind for problem in result] == ["unsupported_claim", "contradicted_claim"]
    assert [trace.answer[problem.start : problem.end] for problem in result] == ["Claim 1 holds.", "Claim 2 holds."]


def test_problems_of_claims_quote_the_words_in_doubt():
    """The reason quotes the words that the judge doubts, but not where they are nearly all of the claim."""
    trace, seen = pair("a", "h", "su")
    claim = seen.claim[1]
    for span, expected in (
        ((claim.start, claim.start + 5), "no chunk supports it; in doubt: “Claim”"),
        ((claim.start, claim.end), "no chunk supports it"),
    ):
        marked = replace(seen, claim=(seen.claim[0], replace(claim, unsupported_spans=(span,))))
        assert [problem.reason for problem in diagnose(trace, marked).problems] == [expected]


def test_a_claim_that_only_the_key_contradicts_is_the_fault_of_the_source():
    """Supported by the chunks, contradicted by the reference: false_claim, across the layers."""
    trace, seen = pair("a", "h", "su")
    seen = replace(seen, truth=tuple(TruthVerdict(claim=c.claim, status="contradicted") for c in seen.claim))
    result = diagnose(trace, seen).problems
    assert [(problem.kind, problem.layer) for problem in result] == [
        ("unsupported_claim", "generation"),
        ("false_claim", "crosscut"),
    ]


def test_a_claim_that_rests_on_an_outdated_chunk_is_the_fault_of_the_source():
    """Supported by a chunk alone that was not valid when the question was asked: outdated_source, with the dates."""
    old = Chunk(id="old", text="A car costs 20 euros.", metadata={"valid_to": "2025-12-31"})
    new = Chunk(id="new", text="A car costs 25 euros.", metadata={"valid_from": "2026-01-01"})
    source = Evidence(chunk="old", start=0, end=21)
    claim = ClaimVerdict(claim="A car costs 20 euros.", start=0, end=21, support="supported", evidence=(source,))
    asked = datetime(2026, 3, 1, tzinfo=UTC)
    trace = Trace(id="1", query="What does a car cost?", chunks=(old, new), answer=claim.claim, time=asked)
    problem = diagnose(trace, Verdicts(trace="1", claim=(claim,))).problems[0]
    assert (problem.kind, problem.layer) == ("outdated_source", "crosscut")
    assert problem.reason == "its source old is valid to 2025-12-31; the query asks about 2026-03-01"
    both = replace(claim, evidence=(*claim.evidence, Evidence(chunk="new", start=0, end=21)))
    for sound, seen in (
        (trace, both),
        (replace(trace, query="What did a car cost as of 2025?"), claim),
        (replace(trace, time=None), claim),
    ):
        assert not diagnose(sound, Verdicts(trace="1", claim=(seen,))).problems


def test_an_absent_fact_is_laid_at_the_door_of_the_layer_that_lost_it():
    """A fact the chunks lack is the retriever's, one they hold the generator's, one denied is its own kind."""
    trace, seen = pair("a", "h", "s")
    seen = replace(
        seen,
        fact=(
            FactVerdict(fact="f1", present=False),
            FactVerdict(fact="f2", present=False),
            FactVerdict(fact="f3", present=False, contradicted=True),
        ),
        recall=(
            RecallVerdict(statement="f1", covered=False),
            RecallVerdict(statement="f2", covered=True),
            RecallVerdict(statement="f3", covered=True),
        ),
    )
    assert [(p.kind, p.text) for p in diagnose(trace, seen).problems] == [
        ("uncovered_statement", "f1"),
        ("absent_fact", "f2"),
        ("contradicted_fact", "f3"),
    ]


def test_a_refusal_is_wrong_only_where_the_chunks_cover_the_query():
    """Refused with cover: wrong; without: right, and its gaps are not held against it; answered without: missed."""
    refused = AnswerVerdict(relevance=0.0, refused=True, aspects=(Aspect(text="x", answered=False),))
    trace, seen = pair("a", "h", "")
    assert kinds(trace, replace(seen, answer=refused)) == ["wrong_refusal"]
    assert kinds(trace, replace(seen, answer=refused, missing=("x",))) == ["missing_context"]
    assert kinds(trace, replace(seen, missing=("x",))) == ["missing_context", "missed_refusal"]
    assert kinds(trace, replace(seen, answer=refused, missing=None)) == []


def test_unanswered_and_irrelevant_answers():
    """What the query asks and the answer passes over is named; an answer of relevance below 0.5 is beside it."""
    trace, seen = pair("a", "h", "s")
    answer = AnswerVerdict(
        relevance=0.2, aspects=(Aspect(text="when", answered=True), Aspect(text="who", answered=False))
    )
    result = diagnose(trace, replace(seen, answer=answer)).problems
    assert [(p.kind, p.text) for p in result] == [("unanswered_aspect", "who"), ("irrelevant_answer", trace.answer)]


def test_an_empty_answer_is_a_problem_and_an_unrecorded_one_is_not():
    """A generator that said nothing is at fault; a trace of retrieval alone has no answer to judge."""
    trace, seen = pair("a", "h", "")
    assert kinds(replace(trace, answer=""), replace(seen, answer=None)) == ["empty_answer"]
    assert kinds(replace(trace, answer=None), replace(seen, answer=None)) == []


def test_all_low_needs_all_three():
    """Poor chunks, poor grounding and a poor answer together call for the whole pipeline."""
    assert "all_low" in kinds(*pair("a", "nn", "uus", relevance=0.1))
    assert "all_low" not in kinds(*pair("a", "nn", "ss", relevance=0.1))
    assert "all_low" not in kinds(*pair("a", "hh", "uu", relevance=0.1))


def test_bad_citations():
    """A changed quote, a chunk that was not retrieved and one that does not support are told apart."""
    chunk = Chunk(id="a", text="The last ferry leaves at 22:40 from the north pier.")
    cited = (
        Citation(chunk="a", quote="The last ferry leaves  at 22:40"),
        Citation(chunk="a", quote="The last ferry leaves at 23:40"),
        Citation(chunk="b", quote="anything"),
        Citation(chunk="a", claim="It is free."),
    )
    seen = Verdicts(
        trace="t",
        citation=tuple(
            CitationVerdict(chunk=c.chunk, claim=c.claim or "x", supports=at != 3) for at, c in enumerate(cited)
        ),
    )
    result = diagnose(Trace(id="t", query="q", chunks=(chunk,), answer="x", citations=cited), seen).problems
    assert [(p.kind, p.text, p.chunk) for p in result] == [
        ("bad_quote", "The last ferry leaves at 23:40", "a"),
        ("bad_quote", "anything", "b"),
        ("bad_citation", "It is free.", "a"),
    ]


@given(draw_judged_traces())
@pytest.mark.long
def test_every_diagnosis_is_sound(case):
    """Each problem has the layer and remedies of its kind, in the order of kinds, and never more than was checked."""
    trace, seen = case
    result = diagnose(trace, seen)
    order = list(PROBLEM_KINDS)
    places = [order.index(problem.kind) for problem in result.problems]
    assert places == sorted(places)
    for problem in result.problems:
        assert (problem.layer, problem.remedies) == (
            PROBLEM_KINDS[problem.kind].layer,
            PROBLEM_KINDS[problem.kind].steps,
        )


@given(draw_judged_traces())
@pytest.mark.long
def test_the_diagnosis_agrees_with_the_metrics(case):
    """Problems and scores are two readings of the same verdicts."""
    trace, seen = case
    names = kinds(trace, seen)

    def value(text):
        return compute_score(parse_metric(text), trace, seen).value

    for metric in ("wrong_refusal", "missed_refusal"):
        assert (value(metric) == 1.0) == (metric in names)
    contradicted = value("contradiction")
    if contradicted is not None:
        assert contradicted * len(seen.claim) == pytest.approx(names.count("contradicted_claim"))
    validity = value("citation_validity")
    if validity is not None and trace.chunks is not None:
        assert (validity < 1) == ("bad_quote" in names)


# --- over the run ----------------------------------------------------------------------------------


def test_the_worst_traces_come_first(tmp_path):
    """A failed pipeline, then by triad, then by the number of problems; a faultless trace is not listed."""
    pairs = [
        pair("fine", "h", "s"),
        pair("half", "h", "su"),
        pair("bad", "n", "u", relevance=0.0),
        pair("worse", "nn", "uu", relevance=0.0),
        pair("down", "h", "s", error="time-out"),
    ]
    run = evaluate_pairs(tmp_path, pairs)
    result = worst_traces(run)
    assert [item.trace for item in result] == ["down", "worse", "bad", "half"]
    assert [item.trace for item in worst_traces(run, 2)] == ["down", "worse"]
    assert (result[-1].triad, result[-1].quality) == (pytest.approx(0.825), "good")


def test_a_bad_answer_comes_before_a_refusal_that_nothing_rates(tmp_path):
    """A refusal on chunks without use has no triad and only problems; without a key it may be right."""
    trace, seen = pair("refuses", "nn", missing=("x",))
    refusal = (trace, replace(seen, answer=AnswerVerdict(relevance=0.0, refused=True)))
    result = worst_traces(evaluate_pairs(tmp_path, [refusal, pair("bad", "h", "u")]))
    assert [(item.trace, item.cause.rating.outcome) for item in result] == [("bad", "bad"), ("refuses", "unsure")]


def test_without_a_triad_the_share_of_problems_ranks(tmp_path):
    """Where the run has no triad, 2 problems among 3 things are worse than 1."""
    run = [pair("one", "h", "su"), pair("two", "h", "uu")]
    result = worst_traces(evaluate_pairs(tmp_path, run, ["groundedness"]))
    assert [item.trace for item in result] == ["two", "one"]
    assert result[0].triad is None


def test_single_traces_can_be_diagnosed(tmp_path):
    """By id, as in the whole run; an id that is not there is an error that offers the nearest."""
    run = evaluate_pairs(tmp_path, [pair("one", "h", "su"), pair("two", "h", ""), pair("three", "n", "u")])
    everything = list(diagnose_run(run))
    assert [item.trace for item in everything] == ["one", "two", "three"]
    assert list(diagnose_run(run, ["three", "one"])) == [everything[0], everything[2]]
    assert everything[1].triad is None
    with pytest.raises(UnknownName, match='Did you mean "three"'):
        list(diagnose_run(run, ["thre"]))


def test_remedies_count_problems_and_traces(tmp_path):
    """The kind on most traces comes first; its examples are the worst traces that show it."""
    run = [pair("a", "hnn", "s"), pair("b", "h", "uu"), pair("c", "h", "u"), pair("d", "h", "s")]
    result = suggest_remedies(evaluate_pairs(tmp_path, run))
    assert [(item.kind, item.problems, item.traces) for item in result] == [
        ("unsupported_claim", 3, 2),
        ("irrelevant_chunk", 2, 1),
    ]
    assert result[0].examples == ("b", "c")
    assert (result[0].share.mean, result[0].share.n) == (0.5, 4)
    assert "require a citation for each claim" in result[0].steps


def test_analyze_collects_all_results(tmp_path):
    """The whole is made of the parts, and a run of one route has no segments."""
    run = evaluate_pairs(tmp_path, [pair("a", "hn", "su"), pair("b", "h", "s"), pair("c", "m", "c")])
    result = analyze(run, n=1)
    assert result.scorecard == build_scorecard(run)
    assert (result.rag, result.pairs) == (assess_rag(run), pair_tradeoffs(run))
    assert (result.quality, result.unrated) == count_quality(run)
    assert (result.insights, result.worst, result.remedies) == (
        compute_insights(run),
        worst_traces(run, 1),
        suggest_remedies(run),
    )
    assert (result.run, result.segments) == ("run", ())


@given(st.lists(st.sampled_from(["s", "u", "si", ""]), min_size=1, max_size=6))
@pytest.mark.long
def test_the_matrix_has_every_score_in_its_place(tmp_path_factory, signs):
    """Row i, column j of the grid is trace i, metric j of the run."""
    pairs = [pair(f"t{at}", "h", sign) for at, sign in enumerate(signs)]
    run = evaluate_pairs(tmp_path_factory.mktemp("grid"), pairs, ["groundedness", "error", "triad"])
    matrix = RunTable(run)
    for at, row in enumerate(run.scores()):
        value = matrix.values[at // 3, at % 3]
        assert np.isnan(value) if row.value is None else value == row.value
