"""Every metric against numbers worked by hand, published golden values, and the laws that all must keep."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.metrics.catalog import Metric, compute_score, get_definitions, metric, parse_metric
from ragfault.metrics.selection import DEFAULT_METRICS, select_metrics
from ragfault.model.errors import MissingExtra, UnknownName, UsageError
from ragfault.model.records import (
    AnswerVerdict,
    Aspect,
    Chunk,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    ConversationTurn,
    Evidence,
    FactVerdict,
    Gold,
    Harm,
    Latency,
    RecallVerdict,
    Span,
    TokenCounts,
    Trace,
    TruthVerdict,
    Verdicts,
)
from sample_traces import draw_judged_traces, make_claims, make_levels

CATALOGUE = sorted(name for name, d in get_definitions().items() if d.function.__module__.startswith("ragfault."))


def value(text: str, trace: Trace, verdicts: Verdicts | None = None) -> float | None:
    return compute_score(parse_metric(text), trace, verdicts or Verdicts(trace=trace.id)).value


def reason(text: str, trace: Trace, verdicts: Verdicts | None = None) -> str | None:
    row = compute_score(parse_metric(text), trace, verdicts or Verdicts(trace=trace.id))
    assert row.status == "undefined", row
    return row.reason


# --- the grammar -----------------------------------------------------------------------------------


def test_a_metric_prints_what_it_parses():
    """Printing gives back the canonical text: defaults left out, parameters sorted, spaces normal."""
    for text in ("ndcg@10", "recall(relevant=2)@20", "ndcg(gain=exponential)@5", "groundedness(strict=true)"):
        assert str(parse_metric(text)) == text
    assert str(parse_metric(" ndcg ( gain = linear ) @ 10 ")) == "ndcg@10"
    assert str(parse_metric("triad(grounded=0.5, answer=0.2)")) == "triad(answer=0.2, grounded=0.5)"
    assert parse_metric("recall(relevant=2)@20") == parse_metric("recall(relevant=2.0)@20")


@given(
    st.sampled_from(CATALOGUE).filter(lambda name: get_definitions()[name].installed), st.integers(1, 999), st.data()
)
def test_every_metric_round_trips_through_its_text(name: str, k: int, data: st.DataObject):
    """parse(str(metric)) is the metric, whatever its cut-off and parameters."""
    definition = get_definitions()[name]
    kinds = {bool: st.booleans(), int: st.integers(-9, 9), float: st.floats(-10, 10), type(None): st.floats(0, 9)}
    given_ = {
        key: data.draw(kinds[type(default)])
        for key, default in definition.parameters.items()
        if type(default) in kinds and key not in definition.positive
    }
    changed = tuple(sorted((key, v) for key, v in given_.items() if v != definition.parameters[key]))
    metric = Metric(name, k if definition.has_cutoff else None, changed)
    assert parse_metric(str(metric)) == metric


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("ndgc@10", UnknownName, 'no metric "ndgc". Did you mean "ndcg"? List them with: ragfault metrics'),
        ("recall(relvant=1)", UnknownName, 'Did you mean "relevant"?'),
        ("groundedness@3", UsageError, "has no cut-off"),
        ("ndcg@0", UsageError, "at least 1"),
        ("ndcg@-1", UsageError, "is not a metric"),
        ("ndcg(gain=cubic)", UsageError, "gain is one of linear, exponential"),
        ("recall(relevant=yes)", UsageError, "is like 1.0"),
        ("groundedness(strict=1)", UsageError, "is like False"),
        ("__import__('os')", UsageError, "cannot read"),
        ("recall(relevant=1, relevant=2)", UsageError, "given twice"),
        ("recall(relevant=0)", UsageError, "relevant must be above 0"),
        ("recall(relevant=1e999)", UsageError, "is too large"),
        ("ranking_penalty(free=2.5)", UsageError, "is like 3"),
        ('latency(part="\\x")', UsageError, "Quote a text as JSON does"),
        ("recall@" + "9" * 5000, UsageError, "is not a metric"),
        ("", UsageError, "is not a metric"),
    ],
)
def test_a_bad_text_says_what_is_wrong(text: str, kind: type[Exception], says: str):
    """Nothing is evaluated or guessed: a text that is no metric raises, and says what there is."""
    with pytest.raises(kind) as caught:
        parse_metric(text)
    assert says in str(caught.value)


def test_a_set_stands_for_its_metrics():
    """`default`, `all` and layers expand; each metric comes once, in the order asked."""
    assert [str(m) for m in select_metrics("default")] == list(DEFAULT_METRICS)
    assert {m.definition.layer for m in select_metrics("generation")} == {"generation"}
    assert [str(m) for m in select_metrics(["error", "operation"])][:2] == ["error", "latency"]
    assert {m.name for m in select_metrics("all")} >= {n for n in CATALOGUE if get_definitions()[n].installed}
    with pytest.raises(UsageError):
        select_metrics([])


def test_a_metric_of_ones_own_stands_beside_the_others():
    """A decorated function is in the catalogue, parses with its parameters, and scores."""

    @metric(layer="generation", fields="answer", range=(0, math.inf))
    def shouting(trace: Trace, verdicts: Verdicts, *, mark: str = "!") -> float:
        """How often the answer shouts."""
        return (trace.answer or "").count(mark)

    assert value("shouting", Trace(id="1", query="q", answer="No! No!")) == 2
    assert value('shouting(mark="?")', Trace(id="1", query="q", answer="No? No!")) == 1
    with pytest.raises(UsageError, match="is taken by"):
        metric(layer="generation")(_shouting())


def _shouting():
    def shouting(trace: Trace, verdicts: Verdicts) -> float:
        """Return nothing."""
        return 0.0

    shouting.__qualname__ = "elsewhere.shouting"
    return shouting


def test_a_metric_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """A metric of an extra that is not installed is refused when it is asked for, not row by row."""
    monkeypatch.setattr("ragfault.metrics.catalog.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'ragfault\[overlap\]'"):
        parse_metric("bleu")


# --- laws over the whole catalogue -----------------------------------------------------------------


@pytest.mark.long
@given(pair=draw_judged_traces())
@settings(max_examples=200)
def test_every_metric_stays_in_its_range_or_says_why_not(pair: tuple[Trace, Verdicts]):
    """A row is scored with a finite value inside the metric's range, or undefined with a reason; never failed."""
    for name in CATALOGUE:
        definition = get_definitions()[name]
        if not definition.installed:
            continue
        row = compute_score(Metric(name), *pair)
        assert row.status in ("scored", "undefined"), (name, row.reason)
        if row.status == "scored":
            low, high = definition.range
            assert row.value is not None
            assert low - 1e-9 <= row.value <= high + 1e-9, name
        else:
            assert row.value is None
            assert row.reason, name


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_metric_explains_itself(name: str):
    """Each has a one-line summary that ends as a sentence, a layer, a source, and says what it reads."""
    definition = get_definitions()[name]
    assert definition.summary.endswith(".")
    assert definition.source
    assert definition.verdicts or definition.fields
    assert "efined" in definition.docstring or definition.name in ("exact_match", "token_f1", "bleu", "chrf", "rouge_l")


@pytest.mark.parametrize("name", CATALOGUE)
def test_what_the_judge_lost_is_failed(name: str):
    """Where a part that a metric reads was lost, its row is failed with that reason; other metrics go on."""
    definition = get_definitions()[name]
    for part in definition.verdicts:
        row = compute_score(Metric(name), Trace(id="1", query="q"), Verdicts(trace="1", failures={part: "timed out"}))
        assert (row.status, row.value, row.reason) == ("failed", None, "timed out")
    row = compute_score(Metric(name), Trace(id="1", query="q"), Verdicts(trace="1", failures={"*": "gone"}))
    assert (row.status == "failed") is bool(definition.verdicts)


def test_a_metric_that_breaks_is_a_failed_row():
    """An exception or a NaN from a metric becomes one failed row with its reason."""

    @metric(layer="operation", fields="answer")
    def breaking(trace: Trace, verdicts: Verdicts) -> float:
        """Breaks."""
        return 1 / 0

    @metric(layer="operation", fields="answer")
    def nan(trace: Trace, verdicts: Verdicts) -> float:
        """Is no number."""
        return math.nan

    @metric(layer="operation", fields="answer")
    def speechless(trace: Trace, verdicts: Verdicts) -> float:
        """Returns nothing."""
        return None  # type: ignore[return-value]

    @metric(layer="operation", fields="answer")
    def beyond(trace: Trace, verdicts: Verdicts) -> float:
        """Leaves its range."""
        return 7.0

    trace, verdicts = Trace(id="1", query="q"), Verdicts(trace="1")
    assert compute_score(parse_metric("breaking"), trace, verdicts).reason == "ZeroDivisionError: division by zero"
    assert compute_score(parse_metric("nan"), trace, verdicts).status == "failed"
    assert compute_score(parse_metric("speechless"), trace, verdicts).status == "failed"
    assert (
        compute_score(parse_metric("beyond"), trace, verdicts).reason
        == "the metric returned 7, and its range is 0 to 1"
    )


def test_a_metric_says_rightly_what_it_reads():
    """A kind of verdict or a layer that there is not is refused when the metric is defined."""
    with pytest.raises(UnknownName, match='no kind of verdict "claims"'):
        metric(layer="generation", verdicts="claims")(lambda trace, verdicts: 0.0)
    with pytest.raises(UnknownName, match='no layer "retrival"'):
        metric(layer="retrival")(lambda trace, verdicts: 0.0)  # type: ignore[arg-type]


def test_other_weights_void_the_range():
    """A parameter that sets the scale of a metric takes the bounds of its interval away."""
    pair = make_levels("high", "high")
    assert value("context_relevance(high=3)", *pair) == 3.0
    assert parse_metric("context_relevance(high=3)").range == (-math.inf, math.inf)
    assert parse_metric("context_relevance").range == (0.0, 1.0)


def test_chunks_without_text_are_not_judged():
    """A TREC run has ids and no texts: metrics of texts are undefined there, not bad."""
    trace = Trace(id="1", query="q", chunks=(Chunk(id="a"), Chunk(id="b")))
    for name in ("context_relevance", "context_precision", "missing_context", "redundancy"):
        assert reason(name, trace) == "the chunks hold no text"


@pytest.mark.long
@given(draw_judged_traces(), st.data())
def test_a_better_chunk_never_lowers_context_relevance(pair: tuple[Trace, Verdicts], data: st.DataObject):
    """Raising the level of one chunk raises context_relevance or leaves it, and never hurts context_utility's base."""
    trace, verdicts = pair
    if not verdicts.chunk:
        return
    place = data.draw(st.integers(0, len(verdicts.chunk) - 1))
    raised = list(verdicts.chunk)
    raised[place] = ChunkVerdict(chunk=raised[place].chunk, relevance=0.9, level="high")
    better = Verdicts(trace=trace.id, chunk=tuple(raised))
    assert value("context_relevance", trace, better) >= value("context_relevance", trace, verdicts)


@pytest.mark.long
@given(draw_judged_traces(), st.data())
def test_a_supported_claim_never_lowers_groundedness(pair: tuple[Trace, Verdicts], data: st.DataObject):
    """Turning one claim into a supported one never lowers groundedness or adherence, never raises contradiction."""
    trace, verdicts = pair
    if not verdicts.claim:
        return
    place = data.draw(st.integers(0, len(verdicts.claim) - 1))
    old = verdicts.claim[place]
    turned = list(verdicts.claim)
    turned[place] = ClaimVerdict(claim=old.claim, start=old.start, end=old.end, support="supported")
    better = Verdicts(trace=trace.id, claim=tuple(turned))
    for name, sign in (
        ("groundedness", 1),
        ("groundedness(strict=true)", 1),
        ("context_adherence", 1),
        ("contradiction", -1),
    ):
        before, after = value(name, trace, verdicts), value(name, trace, better)
        if before is not None:
            assert sign * after >= sign * before


# --- the retrieval layer ---------------------------------------------------------------------------


def test_context_relevance_is_the_mean_level_weight():
    """high 1.0, medium 0.7, low 0.3, none 0.0; a cut-off takes the first k; weights are parameters."""
    pair = make_levels("high", "medium", "low", "none")
    assert value("context_relevance", *pair) == pytest.approx(0.5)
    assert value("context_relevance@2", *pair) == pytest.approx(0.85)
    assert value("context_relevance(low=0, medium=1)", *pair) == pytest.approx(0.5)
    assert reason("context_relevance", Trace(id="1", query="q", chunks=())) == "nothing retrieved"
    assert reason("context_relevance", Trace(id="1", query="q")) == "chunks not recorded"


@pytest.mark.parametrize(
    ("marks", "expected"),
    # golden: vibrantlabsai/ragas tests/unit/test_average_precision_algorithm.py; mastra-ai/mastra context-precision
    [("101", 0.8333333333333334), ("1101", 0.9166666666666666), ("1010", 0.8333333333333334)],
)
def test_context_precision_matches_published_values(marks: str, expected: float):
    """Average precision over the relevant chunks retrieved, as the published examples have it."""
    pair = make_levels(*("high" if mark == "1" else "none" for mark in marks))
    assert value("context_precision", *pair) == pytest.approx(expected, abs=1e-12)


def test_nothing_relevant_is_zero_by_a_named_convention():
    """context_precision and context_ranking are 0 where nothing relevant was retrieved, and the row says so."""
    for name in ("context_precision", "context_ranking"):
        for pair in (make_levels("low", "none"), (Trace(id="1", query="q", chunks=()), Verdicts(trace="1", chunk=()))):
            row = compute_score(parse_metric(name), *pair)
            assert (row.value, row.reason) == (0.0, "nothing relevant retrieved counts as 0")


def test_the_ranking_penalty_counts_low_positions():
    """0.05 for each place below the third of each highly relevant chunk, at most 0.3."""
    assert value("ranking_penalty", *make_levels("high", "high", "high")) == 0
    assert value("ranking_penalty", *make_levels("none", "none", "none", "high", "medium")) == pytest.approx(0.05)
    assert value("ranking_penalty", *make_levels(*["high"] * 5)) == pytest.approx(0.15)
    assert value("ranking_penalty", *make_levels(*["high"] * 20)) == pytest.approx(0.3)
    pair = make_levels("none", "none", "none", "high")
    assert value("context_ranking", *pair) == pytest.approx(0.25 - 0.05)


def test_context_recall_is_the_share_of_what_was_needed():
    """Facts or statements covered / all; RAGChecker's example has 5 of 22 claims recalled."""
    # golden: amazon-science/RAGChecker examples/checking_outputs.json, claim_recall
    trace = Trace(id="1", query="q", chunks=(Chunk(id="a"),), reference="r")
    covered = tuple(RecallVerdict(statement=str(i), covered=i < 5) for i in range(22))
    assert value("context_recall", trace, Verdicts(trace="1", recall=covered)) == pytest.approx(0.22727272727272727)
    assert reason("context_recall", Trace(id="1", query="q", chunks=())) == "no facts and no reference"


@pytest.mark.parametrize(
    ("there", "asked"),
    # golden (negative): future-agi/ai-evaluation takes each of these pairs for a match
    [
        ("Austria", "Australia"),
        ("1921", "2921"),
        ("12", "2012"),
        ("March 14", "March 41"),
        ("$1,234", "$4,321"),
        ("Niger", "Nigeria"),
    ],
)
def test_context_entity_recall_is_exact(there: str, asked: str):
    """Look-alike names, numbers and dates are not the same; the thing itself is."""
    chunks = (Chunk(id="a", text=f"It concerned {there} at the time."),)
    near = Trace(id="1", query="q", chunks=chunks, reference=f"It concerned {asked} at the time.")
    same = Trace(id="1", query="q", chunks=chunks, reference=f"It concerned {there} at the time.")
    assert value("context_entity_recall", near) == 0.0
    assert value("context_entity_recall", same) == 1.0


def test_redundancy_counts_repeats_of_earlier_chunks():
    """A chunk that repeats an earlier one counts, the first does not."""
    text = "Boats longer than twelve metres must book a berth two days ahead of arrival."
    other = "The museum shop closes a quarter of an hour before the galleries do."
    chunks = tuple(Chunk(id=str(i), text=t) for i, t in enumerate([text, other, text, text + " Always."]))
    assert value("redundancy", Trace(id="1", query="q", chunks=chunks)) == 0.5


@pytest.mark.parametrize(
    ("query", "detail", "expected"),
    [
        ("What is needed?", None, 2 / 3),
        ("In short, what is needed?", None, 1.0),
        ("Explain in detail what is needed.", None, 0.5),
        ("Explain in detail what is needed.", "brief", 1.0),
        ("What is needed?", "unheard of", 2 / 3),
    ],
)
def test_completeness_follows_the_detail_that_is_asked_for(query: str, detail: str | None, expected: float):
    """Okay facts count not at all where a brief answer is asked for, half by default, and fully in a detailed one."""
    metadata = {"okay_facts": ["b"]} | ({"detail": detail} if detail else {})
    trace = Trace(id="1", query=query, answer="a", facts=("a", "b"), metadata=metadata)
    seen = Verdicts(trace="1", fact=(FactVerdict(fact="a", present=True), FactVerdict(fact="b", present=False)))
    assert value("completeness(by_detail=true)", trace, seen) == pytest.approx(expected)


def test_staleness_asks_what_was_valid_at_the_time():
    """Outside valid_from…valid_to is stale; so is older than max_age; chunks without dates do not count."""
    from datetime import UTC, datetime

    def chunk(**dates: str) -> Chunk:
        return Chunk(id="a", metadata=dates)

    def stale(*chunks: Chunk, text: str = "staleness") -> float | None:
        asked = datetime(2026, 3, 10, 12, tzinfo=UTC)
        return value(text, Trace(id="1", query="q", chunks=chunks, time=asked))

    assert stale(chunk(valid_to="2026-03-09"), chunk(valid_to="2026-03-10"), chunk()) == 0.5
    assert stale(chunk(valid_from="2026-03-11T00:00:00Z")) == 1.0
    assert stale(chunk(updated_at="2026-01-01")) is None
    assert stale(chunk(updated_at="2026-01-01"), text="staleness(max_age=30)") == 1.0
    assert reason("staleness", Trace(id="1", query="q", chunks=(chunk(valid_to="x"),))) == (
        "the time of the query is not recorded"
    )


def test_the_dates_that_staleness_lacks_are_named():
    """A chunk with the date of its update carries a date: without `max_age` it is no date of validity."""
    from datetime import UTC, datetime

    dated = Chunk(id="a", metadata={"updated_at": "2026-01-01"})
    trace = Trace(id="1", query="q", chunks=(dated,), time=datetime(2026, 3, 10, 12, tzinfo=UTC))
    assert reason("staleness", trace) == "no chunk carries a date as valid_from or valid_to"
    undated = replace(trace, chunks=(Chunk(id="a"),))
    assert reason("staleness(max_age=30)", undated) == "no chunk carries a date as valid_from, valid_to or updated_at"


def test_staleness_counts_at_the_time_that_a_query_asks_about():
    """What was valid at the end of last year is not stale for a question as of last year, nor for its follow-up."""
    from datetime import UTC, datetime

    chunks = (Chunk(id="a", metadata={"valid_from": "2025-01-01", "valid_to": "2025-12-31"}),)
    asked, first = datetime(2026, 3, 10, 12, tzinfo=UTC), "What did a van cost as of last year?"
    trace = Trace(id="1", query=first, chunks=chunks, time=asked)
    turn = (ConversationTurn(role="user", text=first), ConversationTurn(role="assistant", text="It cost 30."))
    assert value("staleness", trace) == 0.0
    assert value("staleness", replace(trace, query="And a lorry?", history=turn)) == 0.0
    assert value("staleness", replace(trace, query="And a lorry now?", history=turn)) == 1.0
    assert value("staleness", replace(trace, query="And a lorry?")) == 1.0


def test_ranked_metrics_read_the_gold_of_the_trace():
    """Ids and grades of the gold against the order of the chunks; more in test_ranking."""
    chunks = tuple(Chunk(id=name) for name in ("x", "a", "a", "b"))
    trace = Trace(id="1", query="q", chunks=chunks, gold=Gold(chunks={"a": 2, "b": 1, "c": 1, "z": 0}))
    assert value("recall@2", trace) == pytest.approx(1 / 3)
    assert value("recall(relevant=2)", trace) == 1.0
    assert value("precision@5", trace) == pytest.approx(2 / 5)
    assert value("reciprocal_rank", trace) == 0.5
    assert value("hit@1", trace) == 0.0
    ideal = 2 + 1 / math.log2(3) + 1 / 2
    assert value("ndcg", trace) == pytest.approx((2 / math.log2(3) + 1 / 2) / ideal)
    assert reason("ndcg", Trace(id="1", query="q", chunks=chunks)) == "no gold"
    nothing = Trace(id="1", query="q", chunks=chunks, gold=Gold(chunks={"a": 0}))
    assert reason("recall@5", nothing) == "no relevant gold"
    assert value("recall@5", Trace(id="1", query="q", chunks=(), gold=Gold(chunks={"a": 1}))) == 0.0
    assert value("bpref", trace) == pytest.approx(2 / 3)
    assert value("rbp(p=0.5)@2", trace) == 1 / 4
    assert parse_metric("rbp(gain=linear)").range == (-math.inf, math.inf)
    unjudged = replace(trace, gold=Gold(chunks={"a": 1, "b": 1}))
    row = compute_score(parse_metric("bpref"), unjudged, Verdicts(trace="1"))
    assert (row.value, row.reason) == (1.0, "no gold of grade 0: bpref is recall")


def test_spans_count_characters_of_the_sources_once():
    """Overlapping chunks count a character once; other documents count against precision."""
    gold = Gold(spans=(Span(document="d", start=10, end=30),))
    chunks = (
        Chunk(id="a", document="d", start=0, end=20),
        Chunk(id="b", document="d", start=15, end=25),
        Chunk(id="c", document="e", start=10, end=30),
    )
    trace = Trace(id="1", query="q", chunks=chunks, gold=gold)
    assert value("span_recall", trace) == 15 / 20
    assert value("span_precision", trace) == 15 / 45
    assert value("span_iou", trace) == 15 / 50
    assert value("span_recall", Trace(id="1", query="q", chunks=(), gold=gold)) == 0.0
    plain = Trace(id="1", query="q", chunks=(Chunk(id="a"),), gold=gold)
    assert reason("span_recall", plain) == "no chunk states its place in a document"


def test_citations_are_attributed_and_chunks_used():
    """chunk_attribution is the share of citations that support; chunk_utilization that of chunks used."""
    cited = tuple(Citation(chunk=name) for name in "abc")
    seen = tuple(CitationVerdict(chunk=c.chunk, claim="x", supports=c.chunk != "c") for c in cited)
    trace = Trace(id="1", query="q", citations=cited, chunks=(Chunk(id="a"),), answer="x")
    assert value("chunk_attribution", trace, Verdicts(trace="1", citation=seen)) == pytest.approx(2 / 3)
    assert value("chunk_utilization", *make_levels("high", "low", used=(True, False))) == 0.5
    assert reason("chunk_utilization", Trace(id="1", query="q", chunks=(Chunk(id="a"),))) == "no answer"


# --- the generation layer --------------------------------------------------------------------------


def test_groundedness_counts_inferred_unless_strict():
    """(supported + inferred) / claims; strict leaves inferred out; RAGChecker's example has 8 of 22 faithful."""
    pair = make_claims("supported", "inferred", "unsupported", "contradicted")
    assert value("groundedness", *pair) == 0.5
    assert value("groundedness(strict=true)", *pair) == 0.25
    assert value("contradiction", *pair) == 0.25
    # golden: amazon-science/RAGChecker examples/checking_outputs.json, faithfulness = 4 of 11 claims
    assert value("groundedness", *make_claims(*["supported"] * 4, *["unsupported"] * 7)) == pytest.approx(4 / 11)
    assert reason(
        "groundedness", Trace(id="1", query="q", chunks=(), answer="I cannot say."), Verdicts(trace="1", claim=())
    ) == ("the answer makes no claim")


def test_an_answer_without_claims_counts_as_a_convention_says():
    """RAGChecker counts it 0 and DeepEval 1; the row says so, and stays undefined where the judge did not look."""
    silent = Trace(id="1", query="q", chunks=(), answer="I cannot say."), Verdicts(trace="1", claim=(), truth=())
    for name in ("groundedness", "claim_precision"):
        row = compute_score(parse_metric(f"{name}(empty=0)"), *(replace(silent[0], reference="r"), silent[1]))
        assert (row.value, row.reason) == (0.0, "the answer makes no claim: counts as 0")
        assert value(f"{name}(empty=1)", *silent) == 1.0
    assert reason("groundedness(empty=0)", silent[0]) == "the judge offers no claim verdicts"
    assert reason("claim_precision(empty=0)", silent[0]) == "no facts and no reference"
    assert value("groundedness(empty=0)", *make_claims("supported", "unsupported")) == 0.5


def test_adherence_counts_words_of_supported_sentences():
    """Only the words of directly supported sentences count: inference lowers it, and so does what is no claim."""
    assert value("context_adherence", *make_claims("supported", "inferred")) == 0.5
    trace, verdicts = make_claims("supported")
    chatty = Trace(id="t", query="q", chunks=trace.chunks, answer=f"{trace.answer} Do you need anything else?")
    assert value("context_adherence", chatty, verdicts) == pytest.approx(5 / 10)


def test_completeness_prefers_facts_and_says_when_it_used_aspects():
    """Facts present / facts; without facts aspects answered / aspects, marked; with neither undefined."""
    trace = Trace(id="1", query="q", answer="x", facts=("f", "g"))
    facts = (FactVerdict(fact="f", present=True), FactVerdict(fact="g", present=False))
    aspects = AnswerVerdict(relevance=1, aspects=(Aspect(text="a", answered=True),))
    assert value("completeness", trace, Verdicts(trace="1", fact=facts, answer=aspects)) == 0.5
    row = compute_score(
        parse_metric("completeness"), Trace(id="1", query="q", answer="x"), Verdicts(trace="1", answer=aspects)
    )
    assert (row.value, row.reason) == (1.0, "by aspects of the query, without facts")
    assert reason("completeness", Trace(id="1", query="q", answer="x")) == "no facts and no aspects"


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("covered", [True, False])
def test_a_refusal_is_wrong_exactly_where_the_chunks_cover_what_was_asked(refused: bool, covered: bool):
    """wrong_refusal: refused and covered; missed_refusal: answered and not covered."""
    trace = Trace(id="1", query="q", answer="x", chunks=(Chunk(id="a"),), facts=("f",))
    seen = Verdicts(
        trace="1",
        answer=AnswerVerdict(relevance=0, refused=refused),
        recall=(RecallVerdict(statement="f", covered=covered),),
    )
    assert value("refusal", trace, seen) == float(refused)
    assert value("wrong_refusal", trace, seen) == float(refused and covered)
    assert value("missed_refusal", trace, seen) == float(not refused and not covered)


def test_cited_chunks_are_compared_with_gold():
    """citation_precision: cited ∩ relevant / cited; citation_recall: / relevant."""
    cited = (Citation(chunk="a"), Citation(chunk="a"), Citation(chunk="x"))
    trace = Trace(id="1", query="q", citations=cited, gold=Gold(chunks={"a": 1, "b": 1, "c": 0}))
    assert value("citation_precision", trace) == 0.5
    assert value("citation_recall", trace) == 0.5
    assert reason("citation_recall", Trace(id="1", query="q", gold=trace.gold)) == "no citations"
    assert reason("citation_precision", Trace(id="1", query="q", citations=cited)) == "no relevant gold"


def test_token_overlap_follows_squad():
    """Lower case, no punctuation, no articles; bags of words; the best of several references."""
    trace = Trace(id="1", query="q", answer="He ate an apple", reference="He eats an apple")
    assert value("token_f1", trace) == pytest.approx(2 / 3)
    several = Trace(id="1", query="q", answer="The Eiffel Tower!", reference=("Louvre", "eiffel tower"))
    assert value("exact_match", several) == 1.0
    assert value("token_f1", Trace(id="1", query="q", answer="the", reference="a")) == 1.0
    assert reason("token_f1", Trace(id="1", query="q", answer="x")) == "no reference"


def test_ngram_overlap_counts_runs_of_words():
    """F1 of the bags of n-grams; order counts from n = 2; a repeated n-gram counts as often as both have it."""
    trace = Trace(id="1", query="q", answer="The last ferry leaves at ten", reference="last ferry departs at ten")
    assert value("ngram_f1", trace) == 2 * 2 / (4 + 4)  # "last ferry" and "at ten" of four bigrams each
    assert value("ngram_f1(n=1)", trace) == value("token_f1", trace) == 2 * 4 / (5 + 5)
    assert value("ngram_f1(n=3)", trace) == 0.0
    repeated = Trace(id="1", query="q", answer="no no no no", reference="no no")
    assert value("ngram_f1", repeated) == 2 * 1 / (3 + 1)


def test_ngram_overlap_needs_a_reference_of_n_words():
    """A reference too short for an n-gram is passed over; an answer too short for one scores 0."""
    short = Trace(id="1", query="q", answer="It is Paris", reference="Paris")
    assert reason("ngram_f1", short) == "no reference has 2 words"
    several = Trace(id="1", query="q", answer="Paris, France", reference=("Paris", "paris france", "in the north"))
    assert value("ngram_f1", several) == 1.0
    assert value("ngram_f1", Trace(id="1", query="q", answer="Paris", reference="Paris, France")) == 0.0
    assert reason("ngram_f1", Trace(id="1", query="q", answer="x")) == "no reference"
    assert reason("ngram_f1", Trace(id="1", query="q", answer=None, reference="two words")) == "no answer"
    with pytest.raises(UsageError, match="n must be above 0"):
        parse_metric("ngram_f1(n=0)")


@pytest.mark.long
def test_overlap_metrics_are_those_of_their_libraries():
    """BLEU and chrF are sacrebleu's, ROUGE-L is rouge-score's, on a scale of 0 to 1, best of the references."""
    sacrebleu = pytest.importorskip("sacrebleu")
    rouge = pytest.importorskip("rouge_score.rouge_scorer")
    answer, references = "the last ferry leaves at ten", ("the last ferry departs at ten", "nothing like it")
    trace = Trace(id="1", query="q", answer=answer, reference=references)
    bleu = sacrebleu.sentence_bleu(answer, [references[0]], use_effective_order=True).score / 100
    assert value("bleu", trace) == pytest.approx(bleu)
    assert value("chrf", trace) == pytest.approx(sacrebleu.sentence_chrf(answer, [references[0]]).score / 100)
    scorer = rouge.RougeScorer(["rougeL"], use_stemmer=True)
    assert value("rouge_l", trace) == pytest.approx(scorer.score(references[0], answer)["rougeL"].fmeasure)


def test_harm_is_the_worst_category():
    """The highest score; 0 where the judge looked and found none; undefined where it does not look."""
    trace = Trace(id="1", query="q", answer="x")
    harms = (Harm(category="a", score=0.2), Harm(category="b", score=0.7))
    assert value("harmfulness", trace, Verdicts(trace="1", harm=harms)) == 0.7
    assert value("harmfulness", trace, Verdicts(trace="1", harm=())) == 0.0
    assert reason("harmfulness", trace) == "the judge offers no harm verdicts"


# --- across the layers -----------------------------------------------------------------------------


def test_claim_precision_counts_the_unknown():
    """supported / all claims: what the reference is silent on counts against the answer."""
    # golden: RAGChecker's precision is the mean over the answer's claims of "entailed by the reference"
    seen = Verdicts(
        trace="1",
        truth=tuple(
            TruthVerdict(claim="x", status=status) for status in ("supported", "unknown", "contradicted", "supported")
        ),
    )
    assert value("claim_precision", Trace(id="1", query="q", answer="x", reference="r"), seen) == 2 / 4
    assert reason("claim_precision", Trace(id="1", query="q", reference="r"), seen) == "no answer"


def test_factual_accuracy_leaves_the_unknown_out():
    """supported / (supported + contradicted)."""
    states = ("supported", "contradicted", "supported", "unknown")
    seen = Verdicts(trace="1", truth=tuple(TruthVerdict(claim="c", status=s) for s in states))
    assert value("factual_accuracy", Trace(id="1", query="q", answer="x", reference="r"), seen) == pytest.approx(2 / 3)


def test_a_quote_must_stand_in_the_chunk_it_names():
    """Verbatim or nearly, in that chunk; one changed word is not near; no quote is not counted."""
    text = "Dogs are welcome on the upper deck, provided they are kept on a short lead at all times."
    chunks = (Chunk(id="a", text=text), Chunk(id="b", text="Something else."))

    def valid(*citations: Citation, text: str = "citation_validity") -> float | None:
        return value(text, Trace(id="1", query="q", chunks=chunks, citations=citations))

    assert valid(Citation(chunk="a", quote="welcome  on the\nupper deck, provided")) == 1.0
    assert valid(Citation(chunk="a", quote="Dogs are welcome on the lower deck, provided they are kept")) == 0.0
    assert valid(Citation(chunk="b", quote="Dogs are welcome on the upper deck")) == 0.0
    assert valid(Citation(chunk="gone"), Citation(chunk="a", quote="kept on a short lead"), Citation(chunk="a")) == 0.5
    assert valid(Citation(chunk="a")) is None
    assert valid(text="citation_validity(empty=1)") == 1.0


@pytest.mark.parametrize(
    ("names", "used", "missing", "expected"),
    # golden: mastra-ai/mastra packages/evals/src/scorers/llm/context-relevance
    [
        (("high", "none"), (True, False), 0, 0.5),
        (("high",) * 4, (False, True, True, True), 4, 0.4),
        (("low",), (True,), 9, 0.0),
    ],
)
def test_context_utility_matches_its_source(
    names: tuple[str, ...], used: tuple[bool, ...], missing: int, expected: float
):
    """Mean weight less penalties for unused and missing, not below 0, rounded to 2 decimals."""
    assert value("context_utility", *make_levels(*names, used=used, missing=missing)) == expected


def test_an_empty_context_is_full_utility_by_a_named_convention():
    """The source's convention for an empty context holds, and the row says so."""
    row = compute_score(
        parse_metric("context_utility(scale=2)"), Trace(id="1", query="q", chunks=()), Verdicts(trace="1")
    )
    assert (row.value, row.reason) == (2.0, "an empty context counts as 2")


def test_noise_sensitivity_splits_by_the_relevance_of_the_source():
    """Wrong claims drawn from relevant and from irrelevant chunks; strict counts the unproven as wrong."""
    # golden: amazon-science/RAGChecker examples/checking_outputs.json: 2 of 11 in relevant, 0 in irrelevant
    answer2response = "NEEEEEEEENC"
    cited = {0: (1,), 6: (1,), 8: (0, 3), 9: (3,)}  # claim → chunks that entail it
    relevant = {0, 1, 3}
    chunks = tuple(
        ChunkVerdict(chunk=str(i), relevance=0.9 if i in relevant else 0, level="high" if i in relevant else "none")
        for i in range(4)
    )
    verdicts = tuple(
        ClaimVerdict(
            claim="c",
            start=i,
            end=i + 1,
            support="supported" if i in cited else "unsupported",
            evidence=tuple(Evidence(chunk=str(c), start=0, end=1) for c in cited.get(i, ())),
        )
        for i in range(11)
    )
    status = {"N": "unknown", "E": "supported", "C": "contradicted"}
    truth = tuple(TruthVerdict(claim="c", status=status[mark]) for mark in answer2response)
    trace = Trace(id="1", query="q", answer="x", reference="r", chunks=tuple(Chunk(id=str(i)) for i in range(4)))
    seen = Verdicts(trace="1", chunk=chunks, claim=verdicts, truth=truth)
    assert value("noise_sensitivity(chunks=relevant, strict=true)", trace, seen) == pytest.approx(0.18181818181818182)
    assert value("noise_sensitivity(chunks=irrelevant, strict=true)", trace, seen) == 0.0
    assert value("noise_sensitivity", trace, seen) == 0.0


def test_the_triad_weighs_its_three_parts():
    """0.35, 0.35, 0.30; undefined with the name of the part that is."""
    trace, seen = make_claims("supported", "unsupported")
    chunk = (ChunkVerdict(chunk="a", relevance=0.6, level="medium"),)
    full = Verdicts(trace="t", chunk=chunk, claim=seen.claim, answer=AnswerVerdict(relevance=0.5))
    assert value("triad", trace, full) == pytest.approx(0.35 * 0.7 + 0.35 * 0.5 + 0.3 * 0.5)
    assert (
        reason("triad", trace, Verdicts(trace="t", chunk=chunk, claim=())) == "groundedness: the answer makes no claim"
    )


# --- operation -------------------------------------------------------------------------------------


def test_operation_reads_what_was_recorded():
    """Latency, tokens, errors and emptiness as recorded; undefined where not."""
    trace = Trace(
        id="1", query="q", latency=Latency(retrieval=20, generation=300), tokens=TokenCounts(prompt=900, completion=100)
    )
    row = compute_score(parse_metric("latency"), trace, Verdicts(trace="1"))
    assert (row.value, row.reason) == (320, "retrieval + generation")
    assert value("latency(part=retrieval)", trace) == 20
    assert value("tokens", trace) == 1000
    assert value("tokens(part=completion)", trace) == 100
    assert value("cost(prompt=2, completion=10)", trace) == pytest.approx(0.0028)
    assert reason("cost(prompt=2)", trace) == "only one of the two rates is given"
    assert value("error", trace) == 0.0
    assert value("error", Trace(id="1", query="q", error="timeout")) == 1.0
    assert value("empty_retrieval", Trace(id="1", query="q", chunks=())) == 1.0
    assert value("empty_retrieval", trace) is None


def test_cost_looks_the_model_up():
    """A known model has a price at the catalogue's rate; an unknown one is undefined by name."""
    prices = pytest.importorskip("genai_prices")
    trace = Trace(id="1", query="q", model="gpt-4o-mini", tokens=TokenCounts(prompt=1000, completion=100))
    usage = prices.Usage(input_tokens=1000, output_tokens=100)
    assert value("cost", trace) == pytest.approx(float(prices.calc_price(usage, model_ref="gpt-4o-mini").total_price))
    unknown = Trace(id="1", query="q", model="no-such-model", tokens=TokenCounts(prompt=1, completion=1))
    assert reason("cost", unknown) == 'no known price for the model "no-such-model"'


def test_context_waste_weighs_unused_chunks_by_length():
    """Characters of unused chunks over all; so tokens, at any number of characters a token."""
    trace, seen = make_levels("high", "low", used=(True, False))
    assert value("context_waste", trace, seen) == 0.5
