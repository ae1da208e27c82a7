"""What a pipeline made of a question, by gold that does not depend on how the corpus is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.metrics import parse, score
from ragfault.metrics.definition import Metric
from ragfault.records import Chunk, Gold, Span, Trace, Verdicts
from ragfault.retrieval.compressing import GAP
from ragfault.tuning.records import Outcome, Question

__all__ = ["Grader", "grades", "pieces", "tuned_metric"]

HELD = 0.5
"""A chunk that was compressed counts as what it was while it holds this share of the gold that it held."""
LETTERS = 4
"""Characters to a token."""


def tuned_metric(text: str) -> Metric:
    """A metric that can be tuned: of chunks and gold alone, higher is better.

    Raises UnknownName for one that does not exist, UsageError for one that needs an answer or a judge.

    >>> str(tuned_metric("ndcg@10"))
    'ndcg@10'
    """
    metric = parse(text)
    made = metric.definition
    if made.verdicts or made.better != "higher" or not {*made.fields} <= {"chunks", "gold"}:
        raise UsageError(
            f"{text} cannot be tuned: retrieval is tuned by a metric of chunks and gold, such as ndcg@10, recall@5, "
            "reciprocal_rank, span_recall or span_iou."
        )
    return metric


def grades(spans: Iterable[Span], chunks: Iterable[Chunk]) -> dict[str, float]:
    """The grade of each chunk that holds gold: for each span its grade times the share of it that the chunk holds.

    >>> spans = [Span(document="d", start=0, end=10), Span(document="d", start=20, end=30)]
    >>> cut = [Chunk(id="a", document="d", start=0, end=25), Chunk(id="b", document="d", start=25, end=50)]
    >>> grades(spans, cut)
    {'a': 1.5, 'b': 0.5}
    """
    found: dict[str, float] = {}
    held = list(spans)
    for chunk in chunks:
        grade = sum(span.grade * _shared(chunk, span) / (span.end - span.start) for span in held)
        if grade > 0:
            found[chunk.id] = grade
    return found


def _shared(chunk: Chunk, span: Span) -> int:
    """Characters that a chunk and a span share."""
    if chunk.document != span.document or chunk.start is None or chunk.end is None:
        return 0
    return max(0, min(chunk.end, span.end) - max(chunk.start, span.start))


def pieces(left: Chunk, whole: Chunk) -> tuple[Chunk, ...]:
    """The stretches of a chunk that compression left, each at its place in the document.

    >>> whole = Chunk(id="a", text="One. Two. Three.", document="d", start=100, end=116)
    >>> [(part.start, part.end) for part in pieces(replace(whole, text="One. … Three."), whole)]
    [(100, 104), (110, 116)]
    """
    if left.text == whole.text or whole.start is None:
        return (whole,)
    found, at = [], 0
    for text in left.text.split(GAP):
        place = whole.text.find(text, at)
        if place < 0:
            return (left,)
        at = place + len(text)
        found.append(replace(whole, text=text, start=whole.start + place, end=whole.start + at))
    return tuple(found)


class Grader:
    """Computes the outcome of traces: the metric that is tuned, and recall, precision and overlap beside it."""

    def __init__(self, metric: Metric, chunks: Sequence[Chunk]) -> None:
        self._metric = metric
        self.places = {chunk.id: place for place, chunk in enumerate(chunks)}
        self._chunks = {chunk.id: chunk for chunk in chunks}
        self._of: dict[str, list[Chunk]] = {}
        for chunk in chunks:
            self._of.setdefault(chunk.document or chunk.id, []).append(chunk)
        self._gold: dict[str, Gold] = {}

    def outcome(self, question: Question, hits: Sequence[Chunk], ms: float) -> Outcome:
        """What hits are worth for a question. A metric that is undefined on a question with gold is at its least."""
        tokens = sum(len(hit.text) for hit in hits) / LETTERS
        if not question.gold.spans:
            return self._by_document(question, hits, ms, tokens)
        gold = self.gold(question)
        parts = [pieces(hit, self._chunks.get(hit.id, hit)) for hit in hits]
        ranked = tuple(self._named(hit, left, question) for hit, left in zip(hits, parts, strict=True))
        spread = Trace(id="", query="", gold=gold, chunks=tuple(part for each in parts for part in each))
        found = {name: _value(parse(f"span_{name}"), spread) for name in ("recall", "precision", "iou")}
        by_span = self._metric.name.startswith("span_")
        value = _value(self._metric, spread if by_span else Trace(id="", query="", gold=gold, chunks=ranked))
        return Outcome(value=value, ms=ms, tokens=tokens, **found)

    def gold(self, question: Question) -> Gold:
        """The gold of a question, with the grades of these chunks."""
        if question.id not in self._gold:
            near = [
                chunk
                for name in dict.fromkeys(span.document for span in question.gold.spans)
                for chunk in self._of.get(name, ())
            ]
            made = grades(question.gold.spans, near)
            self._gold[question.id] = Gold(chunks=made, spans=question.gold.spans)
        return self._gold[question.id]

    def _named(self, hit: Chunk, left: Sequence[Chunk], question: Question) -> Chunk:
        """The hit, under another name where compression cut its gold away."""
        before = self.gold(question).chunks.get(hit.id, 0.0)
        if not before or (len(left) == 1 and left[0] is self._chunks.get(hit.id)):
            return hit
        after = sum(grades(question.gold.spans, [part]).get(hit.id, 0.0) for part in left)
        return hit if after >= HELD * before else replace(hit, id=f"{hit.id} (cut)")

    def _by_document(self, question: Question, hits: Sequence[Chunk], ms: float, tokens: float) -> Outcome:
        """Where gold is documents: each document counts at its first chunk."""
        names = dict.fromkeys(hit.document or hit.id for hit in hits)
        trace = Trace(id="", query="", gold=question.gold, chunks=tuple(Chunk(id=name) for name in names))
        recall, precision = (_value(parse(name), trace) for name in ("recall", "precision"))
        both = recall + precision - recall * precision
        iou = recall * precision / both if both else 0.0
        return Outcome(_value(self._metric, trace), recall, precision, iou, ms, tokens)


def _value(metric: Metric, trace: Trace) -> float:
    """The metric on a trace; where it is undefined, its least."""
    row = score(metric, trace, Verdicts(trace=trace.id))
    if row.value is not None:
        return row.value
    if row.status == "failed":
        raise UsageError(f"{metric} cannot be computed: {row.reason}.")
    low: float = metric.range[0]
    return low
