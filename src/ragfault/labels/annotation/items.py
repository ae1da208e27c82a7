"""Annotation items with their choices and labels, and inter-annotator agreement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct

from ragfault.labels.correction import VerdictKey, VerdictValue
from ragfault.labels.reading.human_labels import (
    ANSWER_INDEPENDENT,
    AnswerLabel,
    ChunkLabel,
    ClaimLabel,
    HumanLabel,
    HumanVerdicts,
    fingerprint_answer,
    list_values,
)
from ragfault.model.records import CitationVerdict, ClaimSupport, FactVerdict, RelevanceLevel, Trace, Verdicts
from ragfault.stats.agreement import MultiRaterRatings, TwoRaterRatings
from ragfault.stats.bootstrap import FloatArray, bootstrap_estimates
from ragfault.stats.estimates import BootstrapEstimate

ItemKind = Literal["chunk", "claim", "citation", "fact", "refusal"]

ITEM_KINDS: tuple[ItemKind, ...] = ("chunk", "claim", "citation", "fact", "refusal")
"""Kinds of items in the order of annotation: chunks first, while the answer is not shown."""


class AnnotationChoice(NamedTuple):
    """Value that an annotator can choose for an item."""

    letter: str
    name: str
    value: VerdictValue


class AnnotationItem(NamedTuple):
    """Item of a trace to label."""

    kind: ItemKind
    key: VerdictKey
    """Key of the verdict on the item, as in `human_labels`."""
    trace: Trace
    verdicts: Verdicts
    """Verdicts of the judge on the trace; their claims are the ones to label."""
    position: int
    """Position among the items of its kind, from 0."""


YES_NO = (AnnotationChoice("y", "yes", True), AnnotationChoice("n", "no", False))

ITEM_CHOICES: dict[ItemKind, tuple[AnnotationChoice, ...]] = {
    "chunk": tuple(AnnotationChoice(level[0], level, level) for level in ("high", "medium", "low", "none")),
    "claim": tuple(
        AnnotationChoice(support[0], support, support)
        for support in ("supported", "inferred", "unsupported", "contradicted")
    ),
    "citation": YES_NO,
    "fact": YES_NO,
    "refusal": YES_NO,
}


def list_choices(kind: ItemKind) -> tuple[AnnotationChoice, ...]:
    """List the choices for a kind of item, each with its letter.

    >>> [choice.letter for choice in list_choices("claim")]
    ['s', 'i', 'u', 'c']
    """
    return ITEM_CHOICES[kind]


def list_items(trace: Trace, verdicts: Verdicts, only: Collection[str] = ITEM_KINDS) -> Iterator[AnnotationItem]:
    """Yield the items of a trace, in the order of ITEM_KINDS.

    Chunks, citations and expected facts are those of the trace, claims those that the judge extracted.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", facts=("It was 1040.",))
    >>> [item.kind for item in list_items(trace, Verdicts(trace="1"))]
    ['fact', 'refusal']
    """
    for kind in ITEM_KINDS:
        if kind in only:
            for position, key in enumerate(_item_keys(kind, trace, verdicts)):
                yield AnnotationItem(kind, key, trace, verdicts, position)


def _item_keys(kind: ItemKind, trace: Trace, verdicts: Verdicts) -> Iterator[VerdictKey]:
    if kind == "chunk":
        yield from (("chunk", chunk.id, "level") for chunk in trace.chunks or ())
    elif trace.answer is None:
        return
    elif kind == "claim":
        yield from (("claim", claim.start, claim.end) for claim in verdicts.claim or ())
    elif kind == "citation":
        yield from dict.fromkeys(("citation", cited.chunk, cited.claim) for cited in verdicts.citation or ())
    elif kind == "fact":
        yield from dict.fromkeys(("fact", fact) for fact in trace.facts or ())
    else:
        yield "answer", "refused"


def describe_verdict(item: AnnotationItem) -> str | None:
    """Describe the judge's verdict on an item; None where it has none.

    >>> trace, seen = Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")
    >>> describe_verdict(next(list_items(trace, seen))) is None
    True
    """
    verdicts, key = item.verdicts, item.key
    value: Any = None
    if item.kind == "chunk":
        value = next((verdict.level for verdict in verdicts.chunk or () if verdict.chunk == key[1]), None)
    elif item.kind == "claim":
        value = next(
            (verdict.support for verdict in verdicts.claim or () if (verdict.start, verdict.end) == key[1:]), None
        )
    elif item.kind == "citation":
        value = next(
            (verdict.supports for verdict in verdicts.citation or () if (verdict.chunk, verdict.claim) == key[1:]), None
        )
    elif item.kind == "fact":
        value = next((verdict.present for verdict in verdicts.fact or () if verdict.fact == key[1]), None)
    elif verdicts.answer is not None:
        value = verdicts.answer.refused
    return str(value) if isinstance(value, str) else {True: "yes", False: "no"}.get(value)


def create_label(item: AnnotationItem, value: VerdictValue, by: str, chance: float | None = None) -> HumanLabel:
    """Create the label of an item; `chance` is the probability with which its trace was sampled.

    >>> item = next(list_items(Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")))
    >>> create_label(item, True, "ann").verdicts.answer.refused
    True
    """
    return HumanLabel(
        trace=item.trace.id,
        by=by,
        time=datetime.now(UTC).replace(microsecond=0),
        answer=fingerprint_answer(item.trace),
        chance=chance,
        verdicts=_build_verdicts(item, value),
    )


def _build_verdicts(item: AnnotationItem, value: VerdictValue) -> HumanVerdicts:
    key: tuple[Any, ...] = item.key
    if item.kind == "chunk":
        return HumanVerdicts(chunk=(ChunkLabel(chunk=key[1], level=cast(RelevanceLevel, value)),))
    if item.kind == "claim":
        return HumanVerdicts(claim=(ClaimLabel(start=key[1], end=key[2], support=cast(ClaimSupport, value)),))
    if item.kind == "citation":
        return HumanVerdicts(citation=(CitationVerdict(chunk=key[1], claim=key[2], supports=bool(value)),))
    if item.kind == "fact":
        return HumanVerdicts(fact=(FactVerdict(fact=key[1], present=bool(value)),))
    return HumanVerdicts(answer=AnswerLabel(refused=bool(value)))


class AnnotatorDispute(Struct, frozen=True, kw_only=True):
    """Item on which annotators differ."""

    trace: str
    key: VerdictKey
    values: dict[str, VerdictValue]  # annotator → value


class AnnotatorAgreement(Struct, frozen=True, kw_only=True):
    """Agreement of annotators on items of one kind."""

    kind: ItemKind
    annotators: tuple[str, ...]
    items: int
    """Labeled items."""
    shared: int
    """Items with labels of at least two annotators."""
    accuracy: BootstrapEstimate | None = None
    """Share of the shared items on which all agree."""
    kappa: BootstrapEstimate | None = None
    """Cohen's, for two annotators; weighted by distance for relevance levels."""
    alpha: BootstrapEstimate | None = None
    """Krippendorff's, for any number of annotators; ordinal for relevance levels."""
    reason: str | None = None
    """Reason of missing estimates."""
    disputes: tuple[AnnotatorDispute, ...] = ()


ItemVotes = dict[tuple[str, VerdictKey], dict[str, VerdictValue]]


def measure_annotators(labels: Iterable[HumanLabel]) -> tuple[AnnotatorAgreement, ...]:
    """Measure the agreement of annotators for each kind of item, with intervals over traces.

    The last label of each annotator counts. Labels of different answers are labels of different items.

    >>> from ragfault.labels.reading.human_labels import AnswerLabel, HumanVerdicts
    >>> verdicts = HumanVerdicts(answer=AnswerLabel(refused=True))
    >>> labels = [HumanLabel(trace="1", verdicts=verdicts, by=name) for name in "ab"]
    >>> agreement = measure_annotators(labels)[0]
    >>> agreement.kind, agreement.shared, agreement.accuracy.value, agreement.kappa.value
    ('refusal', 1, 1.0, None)
    """
    votes: dict[ItemKind, ItemVotes] = {}
    for label in labels:
        for key, value in list_values(label.verdicts).items():
            kind = _item_kind(key)
            if kind is not None:
                item = (label.trace, key if key[0] in ANSWER_INDEPENDENT else (*key, label.answer or ""))
                votes.setdefault(kind, {}).setdefault(item, {})[label.by] = value
    return tuple(_measure_kind(kind, votes[kind]) for kind in ITEM_KINDS if kind in votes)


def _item_kind(key: VerdictKey) -> ItemKind | None:
    """Return the kind of an item; None for values that are not annotated one by one."""
    if key == ("answer", "refused"):
        return "refusal"
    if key[0] == "chunk" and key[2] != "level":
        return None
    return next((kind for kind in ITEM_KINDS if kind == key[0]), None)


def _measure_kind(kind: ItemKind, votes: ItemVotes) -> AnnotatorAgreement:
    annotators = tuple(sorted({name for item_votes in votes.values() for name in item_votes}))
    shared_votes = {item: item_votes for item, item_votes in votes.items() if len(item_votes) > 1}
    if not shared_votes:
        reason = "no item has labels of two annotators"
        return AnnotatorAgreement(kind=kind, annotators=annotators, items=len(votes), shared=0, reason=reason)
    accuracy, alpha, *kappa = _estimate_agreement(kind, annotators, shared_votes)
    disputes = tuple(
        AnnotatorDispute(trace=trace, key=key, values=item_votes)
        for (trace, key), item_votes in shared_votes.items()
        if len(set(item_votes.values())) > 1
    )
    return AnnotatorAgreement(
        kind=kind,
        annotators=annotators,
        items=len(votes),
        shared=len(shared_votes),
        accuracy=accuracy,
        alpha=alpha,
        kappa=kappa[0] if kappa else None,
        disputes=disputes,
    )


def _estimate_agreement(kind: ItemKind, annotators: Sequence[str], shared_votes: ItemVotes) -> list[BootstrapEstimate]:
    """Estimate accuracy, alpha and, for two annotators, kappa, with their intervals."""
    values = {value for item_votes in shared_votes.values() for value in item_votes.values()}
    order = dict.fromkeys([choice.value for choice in reversed(list_choices(kind))] + sorted(values, key=str))
    ordinal = kind == "chunk"
    table = [[item_votes.get(name) for name in annotators] for item_votes in shared_votes.values()]
    agreed = np.array([float(len(set(item_votes.values())) == 1) for item_votes in shared_votes.values()])
    ratings = MultiRaterRatings(table, list(order))
    pair_ratings = None
    if len(annotators) == 2:
        pair_ratings = TwoRaterRatings([row[0] for row in table], [row[1] for row in table], list(order))

    def statistic(weights: FloatArray) -> FloatArray:
        columns = [
            weights @ agreed / weights.sum(axis=1),
            ratings.alpha(ratings.coincidences(weights), "ordinal" if ordinal else "nominal"),
        ]
        if pair_ratings is not None:
            columns.append(
                pair_ratings.kappa(pair_ratings.confusion_matrices(weights), "linear" if ordinal else "none")
            )
        return np.stack(columns, axis=1)

    return bootstrap_estimates(statistic, [trace for trace, _ in shared_votes])
