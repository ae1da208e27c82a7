"""Items to annotate with their choices, and the agreement between annotators."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct

from ragfault.evaluation.agreement.human_labels import (
    ANSWER_INDEPENDENT,
    AnswerLabel,
    ChunkLabel,
    ClaimLabel,
    HumanLabel,
    HumanVerdicts,
    VerdictKey,
    VerdictValue,
    fingerprint_answer,
    list_values,
)
from ragfault.records import CitationVerdict, ClaimSupport, FactVerdict, RelevanceLevel, Trace, Verdicts
from ragfault.stats import BootstrapEstimate, bootstrap_estimates
from ragfault.stats.agreement import MultiRaterRatings, TwoRaterRatings
from ragfault.stats.clusters import FloatArray

ItemKind = Literal["chunk", "claim", "citation", "fact", "refusal"]

ITEM_KINDS: tuple[ItemKind, ...] = ("chunk", "claim", "citation", "fact", "refusal")
"""What can be labelled, in the order in which it is asked: chunks first, while the answer is not yet shown."""


class AnnotationChoice(NamedTuple):
    """A word that can be said of an item."""

    letter: str
    name: str
    value: VerdictValue


class AnnotationItem(NamedTuple):
    """One thing of a trace to be judged."""

    kind: ItemKind
    key: VerdictKey
    """What it is on, as in `ragfault.evaluation.agreement.human_labels`."""
    trace: Trace
    verdicts: Verdicts
    """What the judge made of the trace; its claims are the ones that are asked about."""
    position: int
    """Which of its kind it is, from 0."""


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
    """The words for a kind of item, each with its letter.

    >>> [choice.letter for choice in list_choices("claim")]
    ['s', 'i', 'u', 'c']
    """
    return ITEM_CHOICES[kind]


def list_items(
    trace: Trace, verdicts: Verdicts, only: Collection[str] = ITEM_KINDS
) -> Iterator[AnnotationItem]:
    """The items of a trace, in the order of KINDS.

    Chunks, citations and expected facts are those of the trace, claims those that the judge found in its answer.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", facts=("It was 1040.",))
    >>> [item.kind for item in list_items(trace, Verdicts(trace="1"))]
    ['fact', 'refusal']
    """
    for kind in ITEM_KINDS:
        if kind in only:
            for place, key in enumerate(_item_keys(kind, trace, verdicts)):
                yield AnnotationItem(kind, key, trace, verdicts, place)


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
    """What the judge says of an item, in words; None where it says nothing.

    >>> trace, seen = Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")
    >>> describe_verdict(next(list_items(trace, seen))) is None
    True
    """
    seen, key = item.verdicts, item.key
    found: Any = None
    if item.kind == "chunk":
        found = next((each.level for each in seen.chunk or () if each.chunk == key[1]), None)
    elif item.kind == "claim":
        found = next((each.support for each in seen.claim or () if (each.start, each.end) == key[1:]), None)
    elif item.kind == "citation":
        found = next(
            (each.supports for each in seen.citation or () if (each.chunk, each.claim) == key[1:]), None
        )
    elif item.kind == "fact":
        found = next((each.present for each in seen.fact or () if each.fact == key[1]), None)
    elif seen.answer is not None:
        found = seen.answer.refused
    return str(found) if isinstance(found, str) else {True: "yes", False: "no"}.get(found)


def create_label(
    item: AnnotationItem, value: VerdictValue, by: str, chance: float | None = None
) -> HumanLabel:
    """The label that a word on an item becomes; `chance` is that with which its trace was drawn, where it was.

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
    """An item on which people differ."""

    trace: str
    key: VerdictKey
    values: dict[str, VerdictValue]
    """Who said what."""


class AnnotatorAgreement(Struct, frozen=True, kw_only=True):
    """How far people agree on items of one kind."""

    kind: ItemKind
    annotators: tuple[str, ...]
    items: int
    """Items with a word at all."""
    shared: int
    """Items with the words of at least two people."""
    accuracy: BootstrapEstimate | None = None
    """The share of the shared items on which all say the same."""
    kappa: BootstrapEstimate | None = None
    """Cohen's, where there are two people; weighted by distance for the relevance of chunks."""
    alpha: BootstrapEstimate | None = None
    """Krippendorff's, for any number of people; ordinal for the relevance of chunks."""
    reason: str | None = None
    """Why there are no figures."""
    disputes: tuple[AnnotatorDispute, ...] = ()


ItemVotes = dict[tuple[str, VerdictKey], dict[str, VerdictValue]]


def measure_annotators(
    labels: Iterable[HumanLabel], *, resamples: int = 1000, seed: int = 0
) -> tuple[AnnotatorAgreement, ...]:
    """How far the authors of labels agree, for each kind of item, with intervals over traces.

    The last word of each author on an item counts. Words on different answers are words on different items.

    >>> from ragfault.evaluation.agreement.human_labels import AnswerLabel, HumanVerdicts
    >>> said = [HumanVerdicts(answer=AnswerLabel(refused=refused)) for refused in (True, True)]
    >>> found = measure_annotators([HumanLabel(trace="1", verdicts=each, by=name) for each, name in zip(said, "ab")])
    >>> found[0].kind, found[0].shared, found[0].accuracy.value, found[0].kappa.value
    ('refusal', 1, 1.0, None)
    """
    every: dict[ItemKind, ItemVotes] = {}
    for label in labels:
        for key, word in list_values(label.verdicts).items():
            kind = _item_kind(key)
            if kind is not None:
                place = (label.trace, key if key[0] in ANSWER_INDEPENDENT else (*key, label.answer or ""))
                every.setdefault(kind, {}).setdefault(place, {})[label.by] = word
    return tuple(_measure_kind(kind, every[kind], resamples, seed) for kind in ITEM_KINDS if kind in every)


def _item_kind(key: VerdictKey) -> ItemKind | None:
    """The kind of item that a word is on; None for what nobody is asked for one by one."""
    if key == ("answer", "refused"):
        return "refusal"
    if key[0] == "chunk" and key[2] != "level":
        return None
    return next((kind for kind in ITEM_KINDS if kind == key[0]), None)


def _measure_kind(kind: ItemKind, votes: ItemVotes, resamples: int, seed: int) -> AnnotatorAgreement:
    people = tuple(sorted({name for each in votes.values() for name in each}))
    shared = {place: each for place, each in votes.items() if len(each) > 1}
    if not shared:
        reason = "no item has the words of two people"
        return AnnotatorAgreement(kind=kind, annotators=people, items=len(votes), shared=0, reason=reason)
    accuracy, alpha, *kappa = _estimate_agreement(kind, people, shared, resamples, seed)
    disputes = tuple(
        AnnotatorDispute(trace=trace, key=key, values=each)
        for (trace, key), each in shared.items()
        if len(set(each.values())) > 1
    )
    return AnnotatorAgreement(
        kind=kind,
        annotators=people,
        items=len(votes),
        shared=len(shared),
        accuracy=accuracy,
        alpha=alpha,
        kappa=kappa[0] if kappa else None,
        disputes=disputes,
    )


def _estimate_agreement(
    kind: ItemKind, annotators: Sequence[str], shared: ItemVotes, resamples: int, seed: int
) -> list[BootstrapEstimate]:
    """Accuracy, alpha and, of two people, kappa, with their intervals."""
    said = {word for each in shared.values() for word in each.values()}
    order = dict.fromkeys([choice.value for choice in reversed(list_choices(kind))] + sorted(said, key=str))
    graded = kind == "chunk"
    table = [[each.get(name) for name in annotators] for each in shared.values()]
    same = np.array([float(len(set(each.values())) == 1) for each in shared.values()])
    rated = MultiRaterRatings(table, list(order))
    crossed = None
    if len(annotators) == 2:
        crossed = TwoRaterRatings([row[0] for row in table], [row[1] for row in table], list(order))

    def statistic(weights: FloatArray) -> FloatArray:
        columns = [
            weights @ same / weights.sum(axis=1),
            rated.alpha(rated.coincidences(weights), "ordinal" if graded else "nominal"),
        ]
        if crossed is not None:
            columns.append(crossed.kappa(crossed.confusion_matrices(weights), "linear" if graded else "none"))
        return np.stack(columns, axis=1)

    return bootstrap_estimates(statistic, [trace for trace, _ in shared], resamples=resamples, seed=seed)
