"""Scoring of single responses, and sampling of the traffic that is scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from ragfault.io.field_values import make_content_id
from ragfault.judges.assembly import observe_traces
from ragfault.judges.calibration import wrap_judge
from ragfault.judges.loading import DEFAULT_JUDGE, apply_profile, load_judge
from ragfault.metrics.catalog import Metric, compute_scores
from ragfault.metrics.selection import METRIC_LEVELS, select_metrics
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, Score, Trace, Verdicts

FAILURE_THRESHOLDS = {metric: critical for metric, (_, critical) in METRIC_LEVELS.items()}
"""Metric → the value below which a trace fails: the level at which the mean of a window is critical."""


class SamplingPolicy(Struct, frozen=True, kw_only=True):
    """The share of the traffic to sample, and factors for some traces, of which the largest counts."""

    # the chance of any trace, above 0, so that no sampling weight is infinite
    share: float = 0.05
    # the factor of a trace that fails (`FAILURE_THRESHOLDS`) or whose judging failed
    failing: float = 4.0
    # the factor of a trace that the judge is unsure of
    unsure: float = 2.0
    # the factor of the first traces of a route
    fresh: float = 4.0
    # the number of first traces of a route
    first: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share is above 0 and at most 1, such as 0.05, got {self.share:g}.")

    def compute_chance(self, scored: ScoredTrace, position: int) -> float:
        """Return the chance of a trace with its scores, at this position in its route, from 0.

        >>> from ragfault.evaluation.online.scorer import score_response
        >>> supported = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
        >>> unsupported = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
        >>> [SamplingPolicy().compute_chance(scored, 1000) for scored in (supported, unsupported)]
        [0.05, 0.2]
        >>> SamplingPolicy().compute_chance(supported, 0)
        0.2
        """
        factors = [1.0]
        if is_failing(scored.values, scored.verdicts):
            factors.append(self.failing)
        if is_unsure(scored.verdicts):
            factors.append(self.unsure)
        if position < self.first:
            factors.append(self.fresh)
        return min(1.0, self.share * max(factors))


class SamplingDraw(Struct, frozen=True):
    """The draw of a trace; stored for every trace, taken or not."""

    trace: str
    # the fingerprint of the judge that scores the taken traces
    judge: str
    chance: float
    taken: bool


class TraceSampler:
    """A sampler of the traffic of a server; a trace has the same lot at any time and on any machine.

    The salt is secret, so that nobody can choose an id that is never drawn. `routes` has the number of traces
    of each route that were drawn before.

    >>> from ragfault.evaluation.online.scorer import score_response
    >>> scored = score_response("When?", ["At noon."], "In June.", judge="lexical", metrics=["groundedness"])
    >>> sampler = TraceSampler(SamplingPolicy(share=0.25), salt="00ff", judge="llm/2")
    >>> sampler.draw(scored).taken, sampler.draw(scored).chance
    (True, 1.0)
    """

    def __init__(self, policy: SamplingPolicy, salt: str, judge: str, routes: Mapping[str, int] | None = None) -> None:
        self.policy, self.judge = policy, judge
        self._salt = bytes.fromhex(salt)
        self._routes: Counter[str] = Counter(routes or {})

    def draw(self, scored: ScoredTrace) -> SamplingDraw:
        """Draw one trace, and count it in its route."""
        route = scored.trace.route or ""
        chance = self.policy.compute_chance(scored, self._routes[route])
        self._routes[route] += 1
        return SamplingDraw(scored.trace.id, self.judge, chance, draw_lot(scored.trace.id, self._salt) < chance)


def draw_lot(trace: str, salt: bytes) -> float:
    """Return the lot of a trace: uniform in [0, 1) by its id; it is taken if the lot is below its chance.

    >>> draw_lot("a", b"1") == draw_lot("a", b"1") != draw_lot("a", b"2")
    True
    """
    digest = blake2b(trace.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def is_failing(values: Mapping[str, float], verdicts: Verdicts) -> bool:
    """Return whether a trace fails by its scores, or has a failed verdict.

    >>> is_failing({"groundedness": 0.4}, Verdicts(trace="1")), is_failing({"groundedness": 0.9}, Verdicts(trace="1"))
    (True, False)
    """
    is_low = any(values.get(name, threshold) < threshold for name, threshold in FAILURE_THRESHOLDS.items())
    return is_low or bool(verdicts.failures)


def is_unsure(verdicts: Verdicts) -> bool:
    """Return whether the judge is unsure of a claim or a citation.

    >>> from ragfault.model.records import ClaimVerdict
    >>> claim = ClaimVerdict(claim="It leaves.", start=0, end=10, support="supported", p=0.52, unsure=True)
    >>> is_unsure(Verdicts(trace="1", claim=(claim,)))
    True
    """
    claims = any(verdict.unsure for verdict in verdicts.claim or ())
    return claims or any(verdict.unsure for verdict in verdicts.citation or ())


TEXT_KEYS = ("text", "content", "page_content")
METADATA_TYPES = (str, int, float, bool, type(None))


def to_chunks(retrieved: Iterable[Any]) -> tuple[Chunk, ...]:
    """Convert a retriever's result to chunks: texts, mappings, LangChain or Haystack documents, LlamaIndex nodes.

    A chunk without an id gets one from its text. Raises UsageError for an item without text.

    >>> [(chunk.id, chunk.text) for chunk in to_chunks([{"id": "a", "text": "At ten."}])]
    [('a', 'At ten.')]
    """
    if isinstance(retrieved, (str, Mapping)):
        raise UsageError("a retriever returns several chunks, in a list; got one by itself.")
    return tuple(map(_to_chunk, retrieved))


def _to_chunk(item: Any) -> Chunk:
    if isinstance(item, Chunk):
        return item
    if isinstance(item, str):
        return Chunk(id=make_content_id(item), text=item)
    if isinstance(item, Mapping):
        text = next((item[name] for name in TEXT_KEYS if isinstance(item.get(name), str)), None)
        return _build_chunk(item.get("id"), text, item.get("score"), item.get("metadata"), item)
    node, score = getattr(item, "node", item), getattr(item, "score", None)
    text = getattr(node, "page_content", None)
    if text is None:
        text = node.get_content() if hasattr(node, "get_content") else getattr(node, "content", None)
    name = getattr(node, "node_id", None) or getattr(node, "id", None)
    metadata = getattr(node, "metadata", None) or getattr(node, "meta", None)
    return _build_chunk(name, text, score, metadata if isinstance(metadata, Mapping) else None, item)


def _build_chunk(name: Any, text: Any, score: Any, metadata: Any, item: Any) -> Chunk:
    """Build a chunk from its parts, with the metadata that JSON can represent."""
    if not isinstance(text, str):
        raise UsageError(f"a retriever returned {type(item).__name__}, which has no text under a known name.")
    plain_metadata = {str(key): value for key, value in (metadata or {}).items() if isinstance(value, METADATA_TYPES)}
    score = plain_metadata.get("score") if score is None else score
    return Chunk(
        id=str(name) if name else make_content_id(text),
        text=text,
        score=float(score) if isinstance(score, (int, float)) else None,
        metadata=plain_metadata,
    )


class ScoredTrace(Struct, frozen=True):
    """A trace with its verdicts and scores."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]

    @property
    def values(self) -> dict[str, float]:
        """Metric → value, without undefined ones."""
        return {score.metric: score.value for score in self.scores if score.value is not None}


class TraceScorer:
    """A judge and metrics, ready to score traces."""

    def __init__(
        self,
        judge: str | Judge = DEFAULT_JUDGE,
        profile: str = "general",
        metrics: str | Sequence[str] = "default",
        calibration: str | None = None,
    ) -> None:
        self.metrics: tuple[Metric, ...] = select_metrics(metrics)
        loaded = load_judge(judge) if isinstance(judge, str) else judge
        self.judge = wrap_judge(apply_profile(loaded, profile), calibration)

    def __call__(self, trace: Trace) -> ScoredTrace:
        """Score a trace; a failure of the judge gives `failed` scores."""
        [verdicts] = observe_traces(self.judge, [trace])
        return ScoredTrace(trace, verdicts, tuple(compute_scores(self.metrics, trace, verdicts)))


@lru_cache(maxsize=8)
def _load_scorer(judge: str, profile: str, metrics: str | tuple[str, ...]) -> TraceScorer:
    """Load the scorer of a combination, once: judges are slow to load."""
    return TraceScorer(judge, profile, metrics)


def score_response(
    query: str,
    chunks: Iterable[Any],
    answer: str | None = None,
    *,
    judge: str | Judge = DEFAULT_JUDGE,
    profile: str = "general",
    metrics: str | Sequence[str] = "default",
    **fields: Any,
) -> ScoredTrace:
    """Score one response at once.

    Chunks are texts, `Chunk`s, mappings with a text, documents of LangChain or nodes of LlamaIndex. `fields`
    are further fields of the trace (citations, reference, model, …). Raises UsageError for an item that is no
    chunk, UnknownName for an unknown judge, domain profile or metric.

    >>> chunks = ["The harbour office opens at 7:30 on weekdays."]
    >>> scored = score_response("When does the office open?", chunks, "It opens at 7:30 on weekdays.")
    >>> scored.values["groundedness"], scored.verdicts.claim[0].support
    (1.0, 'supported')
    """
    values = {"id": make_content_id(query + (answer or "")), **fields}
    trace = Trace(query=query, chunks=to_chunks(chunks), answer=answer, **values)
    if isinstance(judge, str):
        metric_names = metrics if isinstance(metrics, str) else tuple(metrics)
        return _load_scorer(judge, profile, metric_names)(trace)
    return TraceScorer(judge, profile, metrics)(trace)
