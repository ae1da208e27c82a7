"""Traces and verdicts for the tests: by hand, and by hypothesis."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

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
    Step,
    TokenCounts,
    Trace,
    TruthVerdict,
    UseVerdict,
    Verdicts,
)

LEVELS = ("high", "medium", "low", "none")
RELEVANCE = {"high": 0.9, "medium": 0.6, "low": 0.3, "none": 0.1}


def make_levels(*names: str, used: tuple[bool, ...] | None = None, missing: int = 0) -> tuple[Trace, Verdicts]:
    """Return a trace whose chunks have these levels."""
    ids = [f"c{number}" for number in range(len(names))]
    trace = Trace(
        id="t", query="q", chunks=tuple(Chunk(id=name, text=f"text {name}") for name in ids), answer="An answer."
    )
    seen = tuple(ChunkVerdict(chunk=i, relevance=RELEVANCE[n], level=n) for i, n in zip(ids, names, strict=True))
    use = tuple(UseVerdict(chunk=i, used=u) for i, u in zip(ids, used or (True,) * len(ids), strict=True))
    return trace, Verdicts(trace="t", chunk=seen, use=use, missing=tuple(f"m{i}" for i in range(missing)))


def make_claims(*supports: str) -> tuple[Trace, Verdicts]:
    """Return a trace whose answer makes one claim per sentence, with this support."""
    answer, claims_ = "", []
    for number, support in enumerate(supports):
        start = len(answer)
        answer += f"Claim number {number} holds here. "
        claims_.append(ClaimVerdict(claim=answer[start:-1], start=start, end=len(answer) - 1, support=support))
    return Trace(id="t", query="q", chunks=(Chunk(id="a", text="x"),), answer=answer.strip()), Verdicts(
        trace="t", claim=tuple(claims_)
    )


words = st.text(alphabet="abc de12.$", max_size=30)
names = st.sampled_from(["a", "b", "c", "d"])
shares = st.floats(0, 1)


@st.composite
def draw_traces(draw: st.DrawFn) -> Trace:
    """Draw any trace, plausible or not."""
    start = draw(st.integers(0, 50))
    chunk = st.builds(
        Chunk,
        id=names,
        text=words,
        document=st.none() | names,
        start=st.just(start),
        end=st.integers(start, start + 40),
        metadata=st.just({}) | st.just({"valid_to": "2026-01-01"}) | st.just({"updated_at": "2020-05-05"}),
    )
    gold = st.builds(
        Gold,
        chunks=st.dictionaries(names, st.integers(-1, 3).map(float), max_size=4),
        spans=st.lists(
            st.builds(Span, document=names, start=st.integers(0, 30), end=st.integers(31, 60)), max_size=2
        ).map(tuple),
    )
    return draw(
        st.builds(
            Trace,
            id=st.just("t"),
            query=words,
            chunks=st.none() | st.lists(chunk, max_size=5).map(tuple),
            answer=st.none() | words,
            citations=st.none()
            | st.lists(st.builds(Citation, chunk=names, quote=st.none() | words), max_size=3).map(tuple),
            reference=st.none() | words | st.lists(words, min_size=1, max_size=2).map(tuple),
            facts=st.none() | st.lists(words, max_size=3).map(tuple),
            gold=st.none() | gold,
            time=st.none() | st.just(datetime(2026, 2, 3, tzinfo=UTC)),
            latency=st.none() | st.builds(Latency, total=st.none() | st.floats(0, 1e6)),
            history=st.none()
            | st.lists(
                st.builds(ConversationTurn, role=st.sampled_from(["user", "assistant"]), text=words), max_size=2
            ).map(tuple),
            answerable=st.none() | st.booleans(),
            steps=st.none()
            | st.lists(
                st.builds(
                    Step,
                    id=names,
                    parent=st.none() | names,
                    kind=st.none() | st.sampled_from(["plan", "retrieve", "generate"]),
                    output=st.none() | words,
                    duration=st.none() | st.floats(0, 1e6),
                    chunks=st.none() | st.lists(names, max_size=2).map(tuple),
                    tokens=st.none() | st.builds(TokenCounts, prompt=st.integers(0, 9)),
                ),
                max_size=2,
            ).map(tuple),
            tokens=st.none()
            | st.builds(TokenCounts, prompt=st.integers(0, 10**6), completion=st.none() | st.integers(0, 9)),
            model=st.none() | st.just("no-such-model"),
            error=st.none() | words,
        )
    )


@st.composite
def draw_judged_traces(draw: st.DrawFn) -> tuple[Trace, Verdicts]:
    """Draw any trace with verdicts that fit it, as far as a judge offers them."""
    trace = draw(draw_traces())
    chunks = trace.chunks or ()
    count = draw(st.integers(0, 4)) if trace.answer and trace.chunks is not None else 0
    spans = sorted(draw(st.lists(st.integers(0, 30), min_size=2 * count, max_size=2 * count)))
    claims_ = tuple(
        ClaimVerdict(
            claim="c",
            start=spans[2 * n],
            end=spans[2 * n + 1],
            support=draw(st.sampled_from(["supported", "inferred", "unsupported", "contradicted"])),
            evidence=tuple(Evidence(chunk=c.id, start=0, end=1) for c in chunks[: draw(st.integers(0, 2))]),
        )
        for n in range(count)
    )
    verdicts = Verdicts(
        trace=trace.id,
        chunk=tuple(
            ChunkVerdict(chunk=c.id, relevance=RELEVANCE[level], level=level)
            for c in chunks
            for level in [draw(st.sampled_from(LEVELS))]
        ),
        missing=draw(st.lists(words, max_size=5)),
        use=tuple(UseVerdict(chunk=c.id, used=draw(st.booleans())) for c in chunks) if trace.answer else None,
        claim=claims_,
        citation=tuple(
            CitationVerdict(chunk=c.chunk, claim="c", supports=draw(st.booleans())) for c in trace.citations or ()
        ),
        fact=tuple(FactVerdict(fact=f, present=draw(st.booleans())) for f in trace.facts or ()),
        recall=tuple(RecallVerdict(statement=f, covered=draw(st.booleans())) for f in trace.facts or ()),
        answer=AnswerVerdict(
            relevance=draw(shares),
            aspects=tuple(Aspect(text="a", answered=draw(st.booleans())) for _ in range(draw(st.integers(0, 2)))),
            refused=draw(st.booleans()),
        ),
        truth=tuple(
            TruthVerdict(claim="c", status=draw(st.sampled_from(["supported", "contradicted", "unknown"])))
            for _ in claims_
        ),
        harm=draw(st.none() | st.lists(st.builds(Harm, category=st.just("x"), score=shares), max_size=2).map(tuple)),
        similarity=draw(st.none() | shares),
    )
    return trace, verdicts
