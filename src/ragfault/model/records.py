"""Small, frozen, typed records: traces, verdicts and scores.

`Trace` is what happened, `Verdicts` is what a judge saw in it, `Score` is what a metric made of that.
All of them travel as JSON through msgspec under the names given here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from ragfault.text.citation_marks import remove_citations
from ragfault.text.markup import strip_emphasis

Layer = Literal["retrieval", "generation", "crosscut", "operation"]
"""The part of a RAG system that a metric measures."""

RelevanceLevel = Literal["high", "medium", "low", "none"]
"""Relevance in words: high ≥ 0.75, medium ≥ 0.5, low ≥ 0.25, else none; a domain profile may set other levels."""

ClaimSupport = Literal["supported", "inferred", "unsupported", "contradicted"]
"""Support of a claim by the chunks."""

StepKind = Literal["plan", "rewrite", "route", "tool", "memory", "retrieve", "rerank", "read", "generate", "cite"]
"""The kind of work that a step of a trace does."""

ScoreStatus = Literal["scored", "undefined", "failed"]
"""The metric has a value, has none on this trace, or failed."""

GoldMode = Literal["apply", "ignore"]
"""Use of gold in metrics: it decides before the judge's verdicts, or these stand alone."""


class FrozenRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape of all records: immutable, by keyword, silent about defaults."""


class Chunk(FrozenRecord, frozen=True):
    """A passage that the retriever handed to the generator."""

    id: str
    """The same id means the same passage, within a trace and across runs."""
    text: str = ""
    score: float | None = None
    """The retriever's or reranker's own score; ragfault trusts the order of the chunks, not this."""
    document: str | None = None
    """The source document it was cut from."""
    start: int | None = None
    """Start of the span in the document, in characters."""
    end: int | None = None
    """End of the span in the document, in characters, exclusive."""
    kind: Literal["text", "table", "image", "record"] = "text"
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything else; `valid_from`, `valid_to` and `updated_at` (ISO dates) feed `staleness`."""


class Citation(FrozenRecord, frozen=True):
    """A place where the answer points to a chunk."""

    chunk: str
    """The id of the chunk it points to."""
    quote: str | None = None
    """The words it says stand there."""
    claim: str | None = None
    """The sentence of the answer that it stands by."""
    start: int | None = None
    """Start of its mark in the answer, in characters; None: it was recorded apart from the text."""
    end: int | None = None
    """End of its mark in the answer, in characters, exclusive."""


class Document(FrozenRecord, frozen=True):
    """A text of the corpus, from which chunks are cut."""

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """Fields for filters, such as date, category, language or access; every chunk of the document inherits them."""


class Span(FrozenRecord, frozen=True):
    """A stretch of a source document that answers the query."""

    document: str
    start: int
    """First character."""
    end: int
    """Last character, exclusive."""
    grade: float = 1.0
    """How relevant it is, as the grade of a chunk."""
    quote: str | None = None
    """The text of the span, by which it is located again after the document was edited."""
    prefix: str | None = None
    """The text right before the span, which tells equal quotes apart."""
    suffix: str | None = None
    """The text right after the span."""


class Gold(FrozenRecord, frozen=True):
    """Gold relevance labels: chunk ids with grades, spans of source documents, or both."""

    chunks: dict[str, float] = field(default_factory=dict)
    """Id of a chunk → its grade; 0: judged not relevant."""
    spans: tuple[Span, ...] = ()


class Latency(FrozenRecord, frozen=True):
    """Milliseconds spent."""

    retrieval: float | None = None
    generation: float | None = None
    total: float | None = None


class TokenCounts(FrozenRecord, frozen=True):
    """Tokens paid for."""

    prompt: int | None = None
    completion: int | None = None


class ConversationTurn(FrozenRecord, frozen=True):
    """One message of the conversation before the query."""

    role: Literal["user", "assistant", "system", "tool"]
    text: str


class Step(FrozenRecord, frozen=True):
    """One stage of a pipeline or one step of an agent."""

    id: str
    """Identifies the step within its trace."""
    parent: str | None = None
    """The id of the step that this one is part of."""
    kind: StepKind | None = None
    """None: of no known kind."""
    name: str | None = None
    """The name of the stage, tool or span."""
    agent: str | None = None
    """The agent that took the step."""
    input: str | None = None
    output: str | None = None
    chunks: tuple[str, ...] | None = None
    """Ids of the chunks that the step returned, in order; None: it returns no chunks, or they were not recorded."""
    start: float | None = None
    """Milliseconds from the start of the trace to the start of the step."""
    duration: float | None = None
    """Milliseconds."""
    tokens: TokenCounts | None = None
    error: str | None = None
    """Reason of a failure; None if the step succeeded."""


ATTEMPT_MARK = "#"
"""Mark between the id of a query and the number of its attempt."""


def name_attempt(query_id: str, attempt: int) -> str:
    """Return the id of an attempt in a run: that of the query for the first one, else with its number.

    >>> name_attempt("7", 1), name_attempt("7", 2)
    ('7', '7#2')
    """
    return query_id if attempt == 1 else f"{query_id}{ATTEMPT_MARK}{attempt}"


def get_query_id(trace_id: str, attempt: int) -> str:
    """Return the id that all attempts of a query share.

    >>> get_query_id("7#2", 2), get_query_id("7#2", 1)
    ('7', '7#2')
    """
    return trace_id.removesuffix(f"{ATTEMPT_MARK}{attempt}")


class Trace(FrozenRecord, frozen=True):
    """One query's way through a RAG system.

    >>> trace = Trace(id="1", query="When was Oslo founded?", chunks=(Chunk(id="a", text="Oslo, 1040"),))
    >>> trace.chunks[0].id, trace.answer
    ('a', None)
    """

    id: str
    """Names the trace within a run, and pairs it with the same query in another run."""
    query: str
    """The question of the user."""
    attempt: int = 1
    """Which of several runs of one query this is, from 1; unique together with `id`. In a run, the id of an attempt
    after the first ends with it: `7#2`."""
    history: tuple[ConversationTurn, ...] | None = None
    """Earlier turns of the conversation, the oldest first."""
    chunks: tuple[Chunk, ...] | None = None
    """Retrieved chunks in the order the generator saw them; empty: none retrieved; None: not recorded."""
    answer: str | None = None
    """The text that the user got; empty: the system answered nothing; None: not recorded."""
    citations: tuple[Citation, ...] | None = None
    """Absent: the system does not cite; empty: it cites, but did not here."""
    messages: tuple[ConversationTurn, ...] | None = None
    """The request that the generator got, in its order; None: not recorded."""

    reference: str | tuple[str, ...] | None = None
    """A right answer, or several."""
    facts: tuple[str, ...] | None = None
    """Facts that a complete answer states."""
    gold: Gold | None = None
    """Gold relevance labels."""
    answerable: bool | None = None
    """True if the corpus holds an answer; False: a refusal is correct."""

    route: str | None = None
    """The product path it came through; findings are made per route."""
    time: datetime | None = None
    """When the query came; in a run with an offset."""
    conversation: str | None = None
    """Traces of one conversation are not independent; statistics resample them together."""
    turn: int | None = None
    """Position in the conversation, from 1."""
    model: str | None = None
    """The generator's model."""
    finish_reason: str | None = None
    """Why the generator stopped, in the words of its service: stop, length, content_filter …; None: not recorded."""
    latency: Latency | None = None
    steps: tuple[Step, ...] | None = None
    """Stages of the pipeline and steps of the agent, by their start."""
    tokens: TokenCounts | None = None
    error: str | None = None
    """Reason of a pipeline failure on this query; None if it succeeded."""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def query_id(self) -> str:
        """The id that all attempts of the query share.

        >>> Trace(id="7#2", query="When?", attempt=2).query_id
        '7'
        """
        return get_query_id(self.id, self.attempt)

    @property
    def references(self) -> tuple[str, ...]:
        """The references as a tuple, however many were given, without citations in their text."""
        if self.reference is None:
            return ()
        given = (self.reference,) if isinstance(self.reference, str) else self.reference
        return tuple(map(remove_citations, given))

    @property
    def stated(self) -> str | None:
        """What the answer states: its text without citations, a list of sources, and the marks of bold and italics."""
        return None if self.answer is None else strip_emphasis(remove_citations(self.answer))


class Evidence(FrozenRecord, frozen=True):
    """The stretch of a chunk that a verdict rests on."""

    chunk: str
    start: int
    """First character in the chunk's text."""
    end: int
    """Last character, exclusive."""


class ChunkVerdict(FrozenRecord, frozen=True):
    """Relevance of a chunk to the query, judged without the answer."""

    chunk: str
    relevance: float
    """In [0, 1]."""
    level: RelevanceLevel
    reason: str | None = None
    spread: float | None = None
    """The standard deviation of the relevance over the judge's votes; None where it voted once."""


class UseVerdict(FrozenRecord, frozen=True):
    """Use of a chunk by the answer."""

    chunk: str
    used: bool
    overlap: float = 0.0
    """The share of the chunk's best sentence that reappears in the answer, in [0, 1]."""


class ClaimVerdict(FrozenRecord, frozen=True):
    """Support of one claim of the answer by the chunks."""

    claim: str
    start: int
    """Start of the claim in the answer, in characters."""
    end: int
    support: ClaimSupport
    p: float | None = None
    """The judge's probability that the chunks support the claim, in [0, 1]."""
    unsure: bool = False
    """True if `p` is so near the threshold that the judge is often wrong."""
    evidence: tuple[Evidence, ...] = ()
    """The best stretches of the chunks for it, or against it where it is contradicted."""
    misquoted: bool = False
    """True if the judge quoted as evidence words that occur in no chunk."""
    reason: str | None = None
    spread: float | None = None
    """The standard deviation of `p` over the judge's votes; None where it voted once."""
    unsupported_spans: tuple[tuple[int, int], ...] = ()
    """Start and end, in characters of the answer, of the words of an unsupported or contradicted claim that the judge
    doubts. Empty where it cannot tell which words they are."""


class CitationVerdict(FrozenRecord, frozen=True):
    """Support of the claim that a citation belongs to by the cited chunk."""

    chunk: str
    claim: str
    supports: bool
    p: float | None = None
    """The judge's probability that it does."""
    unsure: bool = False


class FactVerdict(FrozenRecord, frozen=True):
    """Presence of an expected fact in the answer."""

    fact: str
    present: bool
    contradicted: bool = False


class RecallVerdict(FrozenRecord, frozen=True):
    """Support of an expected fact, or of a statement of the reference, by the chunks."""

    statement: str
    covered: bool
    evidence: tuple[Evidence, ...] = ()


class Aspect(FrozenRecord, frozen=True):
    """One of the things a query asks for."""

    text: str
    answered: bool


class AnswerVerdict(FrozenRecord, frozen=True):
    """Verdict on the answer as a whole."""

    relevance: float | None
    """In [0, 1]; None where the judge cannot tell, as of a terse answer without chunks."""
    aspects: tuple[Aspect, ...] = ()
    """What the query asks for."""
    refused: bool = False
    """True if the answer says that it cannot answer."""
    grounded: float | None = None
    """The judge's probability that the chunks support all that the answer claims; None without chunks."""
    spread: float | None = None
    """The standard deviation of the relevance over the judge's votes; None where it voted once."""
    agreement: float | None = None
    """The judge's probability that the answer says what a reference says; None without one, or if it reads words."""


class TruthVerdict(FrozenRecord, frozen=True):
    """Agreement of a claim with the reference or the expected facts, independent of the chunks."""

    claim: str
    status: Literal["supported", "contradicted", "unknown"]


class Harm(FrozenRecord, frozen=True):
    """A category of harm and how strongly the answer shows it."""

    category: str
    score: float
    """In [0, 1]."""


class RubricVerdict(FrozenRecord, frozen=True):
    """Verdict on the answer by a rubric of the user."""

    rubric: str
    """The name of the rubric."""
    version: str
    """The hash of its criterion, levels and examples."""
    value: float
    """That of the level, in [0, 1]; over several votes the level nearest to their mean."""
    level: str
    """The description of the level."""
    reason: str | None = None
    spread: float | None = None
    """The standard deviation of the value over the judge's votes; None where it voted once."""


class Injection(FrozenRecord, frozen=True):
    """Text of a trace that looks like an order to the judge; it is flagged, and never obeyed."""

    place: str
    """Field that holds it: "query", "answer", "reference", "fact", or "chunk " and the id of the chunk."""
    kind: str
    """Kind of injection: "order", "role", "mark", "verdict", "hidden", "link"."""
    text: str
    """The stretch itself, at most 200 characters of it, hidden characters made visible."""


class Usage(FrozenRecord, frozen=True):
    """Calls, tokens and cost of a model."""

    calls: int = 0
    """Requests that were sent and may have been charged for, failed ones included."""
    cached: int = 0
    """Requests that the cache answered instead."""
    prompt: int = 0
    """Tokens sent."""
    completion: int = 0
    """Tokens received."""
    cost: float | None = 0.0
    """US$; None where no price is known."""

    def combine(self, other: Usage, sign: int = 1) -> Usage:
        """Return the sum of both, with a `sign` of -1 the difference; no cost is known where one is not."""
        cost = None if self.cost is None or other.cost is None else self.cost + sign * other.cost
        counts = (name for name in self.__struct_fields__ if name != "cost")
        return Usage(cost=cost, **{name: getattr(self, name) + sign * getattr(other, name) for name in counts})


class PassagePlace(FrozenRecord, frozen=True):
    """Where the passage is that a query asks for, by the chunks that the run retrieved for all queries.

    What is left of the two probabilities is that of its being in no chunk of the run.
    """

    shown: float
    """The probability that it is among the chunks that were shown."""
    elsewhere: float
    """The probability that it is among those that were retrieved for other queries only."""
    chunk: str | None = None
    """The id of that chunk, if elsewhere is likeliest."""
    quote: str | None = None
    """How its text begins."""
    lost: tuple[str, ...] = ()
    """Words of the query, or of the turns before it, that the searched text lacks and the missed passage has, the
    rarest first: where that passage has more of the words of the query than any shown chunk, and no more of those that
    were searched."""


class MemberVerdicts(FrozenRecord, frozen=True):
    """All that one judge observed of one trace.

    A part is None where the judge does not offer it or the trace lacks what it is made from, and a (possibly empty)
    tuple where the judge looked. `chunk` and `use` follow the order of the trace's chunks, `citation` that of its
    citations, `claim` that of the answer; `truth` has one entry for each claim.
    """

    trace: str
    """The id of the trace."""
    judge: str = ""
    """The fingerprint of the judge that made them."""
    chunk: tuple[ChunkVerdict, ...] | None = None
    missing: tuple[str, ...] | None = None
    """Information the query needs and no chunk holds."""
    use: tuple[UseVerdict, ...] | None = None
    claim: tuple[ClaimVerdict, ...] | None = None
    citation: tuple[CitationVerdict, ...] | None = None
    fact: tuple[FactVerdict, ...] | None = None
    recall: tuple[RecallVerdict, ...] | None = None
    answer: AnswerVerdict | None = None
    truth: tuple[TruthVerdict, ...] | None = None
    harm: tuple[Harm, ...] | None = None
    rubric: tuple[RubricVerdict, ...] | None = None
    """One for each rubric that the judge was given."""
    similarity: float | None = None
    """Cosine of the embeddings of answer and reference (the best, where there are several)."""
    injections: tuple[Injection, ...] = ()
    """Suspected prompt injections in the trace (`suspected_injection`)."""
    failures: dict[str, str] = field(default_factory=dict)
    """Part → reason, for the parts that the judge tried and lost; `"*"` stands for all of them. Of a part that is
    named here some items may be there: those that the judge did judge."""


class Verdicts(MemberVerdicts, frozen=True):
    """All that a judge observed of one trace, and what the judges that it combines observed."""

    members: tuple[MemberVerdicts, ...] = ()
    """Of a jury or a cascade: the verdicts of each judge that saw the trace, as it gave them."""
    chance: float | None = None
    """Of a cascade: the probability with which the trace was shown to the second judge."""
    place: PassagePlace | None = None
    """Where the passage is that the query asks for; None where gold or references tell, or nothing was compared."""


class GoldVerdicts(Verdicts, frozen=True):
    """Verdicts of a judge with the answer key of their trace applied; computed, never stored."""

    covered: bool | None = None
    """True if the gold was retrieved, False if none of it was or the query is not answerable; None: unknown."""


class Score(FrozenRecord, frozen=True):
    """Result of one metric on one trace."""

    trace: str
    metric: str
    """The metric as it prints, with its parameters: `ndcg@10`, `recall(relevant=2)@20`."""
    layer: Layer
    status: ScoreStatus
    value: float | None = None
    """A number exactly where `status` is "scored"."""
    reason: str | None = None
    """Reason of a missing value, or the convention behind a value."""
