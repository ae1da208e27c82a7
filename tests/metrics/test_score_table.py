"""Scores of many traces at once: the same as those of each trace alone."""

from __future__ import annotations

import math
import random

from ragfault.io.formats.arrow import SCORE_SCHEMA, table_to_records
from ragfault.metrics import catalog
from ragfault.metrics.catalog import compute_score, compute_score_table, compute_scores, metric, parse_metric
from ragfault.metrics.selection import select_metrics
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import Chunk, ChunkVerdict, Gold, Score, Span, Trace, Verdicts


def test_scores_of_many_traces_at_once_are_those_of_each_alone():
    """A table of scores holds what computing each metric on each trace gives, to the last digit."""
    chance = random.Random(7)
    traces = [make_random_trace(chance, number) for number in range(200)]
    metrics = select_metrics(
        ["default", "ndcg(gain=exponential)@3", "precision(over=retrieved)@4", "rbp(p=0.5)", "bpref", "r_precision"]
    )
    verdicts = [Verdicts(trace=trace.id) for trace in traces]
    alone = [
        compute_score(metric, trace, seen) for trace, seen in zip(traces, verdicts, strict=True) for metric in metrics
    ]
    table = compute_score_table(metrics, traces, verdicts, "ignore")
    assert table.schema.names == SCORE_SCHEMA.names
    assert table.schema.types == SCORE_SCHEMA.types
    assert list(table_to_records(table, Score)) == alone
    seen = [apply_gold(*pair) for pair in zip(traces, verdicts, strict=True)]
    keyed = [compute_score(metric, *pair) for pair in zip(traces, seen, strict=True) for metric in metrics]
    assert list(table_to_records(compute_score_table(metrics, traces, verdicts), Score)) == keyed


def test_a_metric_of_a_user_reads_gold_also_where_it_declares_no_verdicts():
    """Where gold decides, it does so in the verdicts that any metric reads, in a table as on each trace."""

    @metric(layer="retrieval", fields="chunks")
    def undeclared_relevance(trace: Trace, verdicts: Verdicts) -> float:
        """Return the relevance of the first chunk."""
        return verdicts.chunk[0].relevance

    trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At 7:30."),), gold=Gold(chunks={"a": 1}))
    seen = Verdicts(trace="1", chunk=(ChunkVerdict(chunk="a", relevance=0.1, level="none"),))
    try:
        metrics = [parse_metric("undeclared_relevance")]
        [alone] = compute_scores(metrics, trace, seen)
        assert alone.value > 0.1
        assert list(table_to_records(compute_score_table(metrics, [trace], [seen]), Score)) == [alone]
    finally:
        del catalog._catalog["undeclared_relevance"]


def make_random_trace(chance: random.Random, number: int) -> Trace:
    """Make a trace whose fields are there or absent, empty or filled, by chance."""
    words = ["the", "ferry", "leaves", "at 9:30", "on 4 May", "Oslo", "£12.50", "daily", ""]
    texts = [" ".join(chance.choices(words, k=chance.randrange(12))) for _ in range(4)]
    chunks = tuple(
        Chunk(id=chance.choice("abcdef"), text=chance.choice(texts), document="d", start=at * 10, end=at * 10 + 15)
        for at in range(chance.randrange(8))
    )
    grades = {
        name: chance.choice([-1.0, 0.0, 1.0, 2.0, math.nan if number == 50 else 3.0])
        for name in chance.sample("abcdef", 3)
    }
    gold = Gold(chunks=chance.choice([{}, grades, grades]), spans=(Span(document="d", start=5, end=30),))
    return Trace(
        id=str(number),
        query="When?",
        chunks=chance.choice([None, chunks, chunks, chunks]),
        answer=chance.choice([None, "", *texts]),
        reference=chance.choice([None, texts[0], tuple(texts[:2])]),
        gold=chance.choice([None, gold, gold]),
        error=chance.choice([None, None, "timed out"]),
    )


def test_a_trace_on_which_a_ranked_metric_fails_costs_no_other_trace_its_score():
    """A grade that is not finite fails that trace alone, also where many traces are computed at once."""
    chunks = (Chunk(id="a"),)
    traces = [
        Trace(id=str(grade), query="q", chunks=chunks, gold=Gold(chunks={"a": grade})) for grade in (1.0, math.inf)
    ]
    table = compute_score_table(select_metrics(["recall@5"]), traces, [Verdicts(trace=trace.id) for trace in traces])
    assert table["status"].to_pylist() == ["scored", "failed"]
