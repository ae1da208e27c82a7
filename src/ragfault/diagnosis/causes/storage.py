"""The causes of a run: found for each trace when it is evaluated, stored with it, and read by every analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ragfault.diagnosis.causes.endings import AnswerEndings
from ragfault.diagnosis.causes.records import AnswerCause, AnswerRating
from ragfault.diagnosis.causes.table import CAUSES, SURE, find_cause
from ragfault.diagnosis.diagnosis import diagnose_trace
from ragfault.io.runs.run import Run
from ragfault.labels.correction import BY_LABEL, LabeledItems, apply_labels
from ragfault.labels.label import SubjectValue
from ragfault.model.causes import CauseName
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import GoldMode, Trace, Verdicts

if TYPE_CHECKING:
    import pyarrow as pa

NO_ITEMS: Mapping[str, LabeledItems] = {}
CAUSE_SUBJECT = ("cause",)
"""Subject of the label that names the cause of an answer."""


def rate_trace(trace: Trace, verdicts: Verdicts, items: LabeledItems, *, closed: bool = False) -> AnswerCause:
    """Rate the answer of a trace and name the cause of a bad one; labels of people replace verdicts.

    `closed` says that the answers of the run end with a stop.

    >>> trace = Trace(id="1", query="When?", error="time-out")
    >>> rate_trace(trace, Verdicts(trace="1"), {}).cause
    'failed'
    """
    seen = apply_labels(verdicts, items)
    diagnosis, labeled = diagnose_trace(trace, seen), judges_answer(items)
    computed = find_cause(trace, seen, diagnosis, labeled=labeled, closed=closed)
    return correct_cause(computed, items[CAUSE_SUBJECT][0]) if CAUSE_SUBJECT in items else computed


def correct_cause(computed: AnswerCause, label: SubjectValue) -> AnswerCause:
    """Return the cause that a person names, or a right answer; the evidence stays if it shows the same cause.

    >>> trace = Trace(id="1", query="When?", error="time-out")
    >>> corrected = correct_cause(rate_trace(trace, Verdicts(trace="1"), {}), "right")
    >>> corrected.rating.outcome, corrected.rating.source, corrected.cause
    ('right', 'labels', None)
    """
    if label == "right":
        rating = AnswerRating(outcome="right", probability=0.0, source="labels")
        return AnswerCause(trace=computed.trace, query=computed.query, rating=rating, costs=computed.costs)
    rating = AnswerRating(outcome="bad", probability=1.0, source="labels")
    if computed.cause == label:
        return replace(computed, rating=rating)
    cause = cast(CauseName, label)
    return AnswerCause(
        trace=computed.trace,
        query=computed.query,
        rating=rating,
        stage=CAUSES[cause].stage,
        cause=cause,
        probability=SURE,
        reason=BY_LABEL,
    )


def judges_answer(items: LabeledItems) -> bool:
    """Return whether people labelled the answer of a trace: its claims, what it answers, or that it refuses.

    >>> judges_answer({("claim", 0, 12): ("supported",)}), judges_answer({("chunk", "a", "level"): ("high",)})
    (True, False)
    """
    return any(key[0] in ("claim", "aspect") or key == ("answer", "refused") for key in items)


def count_endings(run: Run) -> AnswerEndings:
    """Count how the answers of a run end."""
    return AnswerEndings(trace.answer for trace in run.traces(fields=["answer"]))


def tabulate_causes(
    traces: Sequence[Trace], verdicts: Sequence[Verdicts], gold: GoldMode, *, closed: bool = False
) -> pa.Table:
    """Rate the answers of traces by their verdicts and name the causes, as the table that a run stores.

    `closed` says that the answers of the run end with a stop.

    >>> tabulate_causes([Trace(id="1", query="When?", answer="")], [Verdicts(trace="1")], "apply")["cause"].to_pylist()
    ['blank']
    """
    from ragfault.io.formats.arrow import make_schema, records_to_table

    causes = []
    for trace, seen in zip(traces, verdicts, strict=True):
        # Gold says nothing of an answer that is not there, and a TREC run holds many chunks to compare it with.
        by_gold = gold == "apply" and trace.answer is not None
        causes.append(rate_trace(trace, apply_gold(trace, seen) if by_gold else seen, {}, closed=closed))
    return records_to_table(causes, make_schema(AnswerCause))


def read_causes(
    run: Run, ids: Sequence[str] | None = None, items: Mapping[str, LabeledItems] = NO_ITEMS
) -> Iterator[AnswerCause]:
    """Yield the rating and the cause of each answer (of `ids`), in the order of the run.

    They are those stored with the run; only for traces with labelled `items`, and for a run without stored causes, they
    are found anew.
    """
    if not run.has_table("causes"):
        closed = count_endings(run).closed
        for trace, verdicts in run.evidence(ids):
            yield rate_trace(trace, verdicts, items.get(trace.id, {}), closed=closed)
        return
    stored = list(run.read_records("causes", AnswerCause, ids))
    labeled = [cause.trace for cause in stored if items.get(cause.trace)]
    pairs, closed = run.evidence(labeled) if labeled else (), bool(labeled) and count_endings(run).closed
    anew = {trace.id: rate_trace(trace, seen, items[trace.id], closed=closed) for trace, seen in pairs}
    yield from (anew.get(cause.trace, cause) for cause in stored)
