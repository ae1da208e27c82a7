"""Annotation items with their choices and labels, and inter-annotator agreement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple

from msgspec import Struct

from ragfault.labels.agreement import estimate_agreement
from ragfault.labels.annotation.session import Question
from ragfault.labels.label import Label, QuestionName, Subject, SubjectValue, fingerprint_answer
from ragfault.labels.reading.lines import iterate_values
from ragfault.model.causes import CauseLabel
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.estimates import BootstrapEstimate

ItemKind = Literal["chunk", "claim", "citation", "fact", "refusal", "cause"]

JUDGED_ITEMS: tuple[ItemKind, ...] = ("chunk", "claim", "citation", "fact", "refusal")
"""Kinds of items that a judge gives a verdict on, in the order of annotation: chunks first, while the answer is not
shown."""
ITEM_KINDS: tuple[ItemKind, ...] = (*JUDGED_ITEMS, "cause")
"""All kinds; the cause comes last, when all of a trace was shown."""


class AnnotationChoice(NamedTuple):
    """Value that an annotator can choose for an item."""

    letter: str
    name: str
    value: SubjectValue


class AnnotationItem(NamedTuple):
    """Item of a trace to label."""

    kind: ItemKind
    key: Subject
    """Subject of its label."""
    trace: Trace
    verdicts: Verdicts
    """Verdicts of the judge on the trace; their claims are the ones to label."""
    position: int
    """Position among the items of its kind, from 0."""
    computed: str | None = None
    """What ragfault says of the item, if it is not a verdict."""


YES_NO = (AnnotationChoice("y", "yes", True), AnnotationChoice("n", "no", False))

CAUSE_KEYS: dict[CauseLabel, str] = {
    "right": "r",
    "failed": "f",
    "blank": "k",
    "not_an_answer": "a",
    "other_language": "l",
    "query_changed": "e",
    "history_ignored": "h",
    "stale_source": "s",
    "wrong_source": "w",
    "not_shown": "d",
    "not_retrieved": "n",
    "wrong_entity": "y",
    "not_covered": "m",
    "cut_off": "t",
    "answered_unanswerable": "u",
    "refused": "x",
    "contradicted": "c",
    "invented": "i",
    "left_out": "o",
    "off_topic": "g",
    "undecided": "p",
}
"""What a person says of an answer → its key, in the order of the pipeline."""

ITEM_CHOICES: dict[ItemKind, tuple[AnnotationChoice, ...]] = {
    "chunk": tuple(AnnotationChoice(level[0], level, level) for level in ("high", "medium", "low", "none")),
    "claim": tuple(
        AnnotationChoice(support[0], support, support)
        for support in ("supported", "inferred", "unsupported", "contradicted")
    ),
    "citation": YES_NO,
    "fact": YES_NO,
    "refusal": YES_NO,
    "cause": tuple(AnnotationChoice(key, value.replace("_", " "), value) for value, key in CAUSE_KEYS.items()),
}


def list_choices(kind: ItemKind) -> tuple[AnnotationChoice, ...]:
    """List the choices for a kind of item, each with its letter.

    >>> [choice.letter for choice in list_choices("claim")]
    ['s', 'i', 'u', 'c']
    """
    return ITEM_CHOICES[kind]


def list_items(trace: Trace, verdicts: Verdicts, only: Collection[str] = JUDGED_ITEMS) -> Iterator[AnnotationItem]:
    """Yield the items of a trace, in the order of ITEM_KINDS; by default those that have a verdict of the judge.

    Chunks, citations and expected facts are those of the trace, claims those that the judge extracted.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", facts=("It was 1040.",))
    >>> [item.kind for item in list_items(trace, Verdicts(trace="1"))]
    ['fact', 'refusal']
    """
    for kind in ITEM_KINDS:
        if kind in only:
            for position, key in enumerate(_item_keys(kind, trace, verdicts)):
                yield AnnotationItem(kind, key, trace, verdicts, position)


def _item_keys(kind: ItemKind, trace: Trace, verdicts: Verdicts) -> Iterator[Subject]:
    if kind == "chunk":
        yield from (("chunk", chunk.id, "level") for chunk in trace.chunks or ())
    elif kind == "cause":
        yield ("cause",)
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
    if item.computed is not None:
        return item.computed
    value = dict(iterate_values(item.verdicts)).get(item.key)
    return {"True": "yes", "False": "no"}.get(str(value), str(value)) if value is not None else None


def ask_item(item: AnnotationItem, by: str, chance: float | None = None) -> Question[AnnotationItem]:
    """Return the question about an item; `chance` is the probability with which its trace was sampled.

    >>> item = next(list_items(Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")))
    >>> ask_item(item, "ann").answers["y"]().value
    True
    """
    label = create_label(item, "", by)
    answers = {
        choice.letter: partial(create_label, item, choice.value, by, chance) for choice in list_choices(item.kind)
    }
    return Question(item, label.question, answers)


def create_label(item: AnnotationItem, value: SubjectValue, by: str, chance: float | None = None) -> Label:
    """Create the label of an item; `chance` is the probability with which its trace was sampled.

    >>> item = next(list_items(Trace(id="1", query="When?", answer="No."), Verdicts(trace="1")))
    >>> create_label(item, True, "ann").subject
    ('answer', 'refused')
    """
    return Label(
        trace=item.trace.id,
        subject=item.key,
        value=value,
        annotator=by,
        time=datetime.now(UTC).replace(microsecond=0),
        shown=fingerprint_answer(item.trace),
        chance=chance,
    )


class AnnotatorDispute(Struct, frozen=True, kw_only=True):
    """Item on which annotators differ."""

    trace: str
    key: Subject
    # annotator → value
    values: dict[str, SubjectValue]


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


ItemVotes = dict[QuestionName, dict[str, SubjectValue]]


def measure_annotators(labels: Iterable[Label]) -> tuple[AnnotatorAgreement, ...]:
    """Measure the agreement of annotators for each kind of item, with intervals over traces.

    The last label of each annotator counts. Labels of different answers are labels of different items.

    >>> labels = [Label(trace="1", subject=("answer", "refused"), value=True, annotator=name) for name in "ab"]
    >>> agreement = measure_annotators(labels)[0]
    >>> agreement.kind, agreement.shared, agreement.accuracy.value, agreement.kappa.value
    ('refusal', 1, 1.0, None)
    """
    votes: dict[ItemKind, ItemVotes] = {}
    names: dict[str, str] = {}
    for label in labels:
        names.setdefault(label.person, label.annotator)
        kind = _item_kind(label.subject)
        if kind is not None:
            votes.setdefault(kind, {}).setdefault(label.question, {})[names[label.person]] = label.value
    return tuple(_measure_kind(kind, votes[kind]) for kind in ITEM_KINDS if kind in votes)


def _item_kind(key: Subject) -> ItemKind | None:
    """Return the kind of an item; None for values that are not annotated one by one."""
    if key == ("answer", "refused"):
        return "refusal"
    if key == ("cause",):
        return "cause"
    if len(key) == 1 or (key[0] == "chunk" and key[2] != "level"):
        return None
    return next((kind for kind in ITEM_KINDS if kind == key[0]), None)


def _measure_kind(kind: ItemKind, votes: ItemVotes) -> AnnotatorAgreement:
    annotators = tuple(sorted({name for item_votes in votes.values() for name in item_votes}))
    shared_votes = {item: item_votes for item, item_votes in votes.items() if len(item_votes) > 1}
    if not shared_votes:
        reason = "no item has labels of two annotators"
        return AnnotatorAgreement(kind=kind, annotators=annotators, items=len(votes), shared=0, reason=reason)
    values = {value for item_votes in shared_votes.values() for value in item_votes.values()}
    order = dict.fromkeys([choice.value for choice in reversed(list_choices(kind))] + sorted(values, key=str))
    table = [[item_votes.get(name) for name in annotators] for item_votes in shared_votes.values()]
    agreement = estimate_agreement(table, list(order), [trace for trace, *_ in shared_votes], ranked=kind == "chunk")
    disputes = tuple(
        AnnotatorDispute(trace=trace, key=key, values=item_votes)
        for (trace, key, _), item_votes in shared_votes.items()
        if len(set(item_votes.values())) > 1
    )
    return AnnotatorAgreement(
        kind=kind,
        annotators=annotators,
        items=len(votes),
        shared=len(shared_votes),
        accuracy=agreement.equal,
        alpha=agreement.alpha,
        kappa=agreement.kappa,
        disputes=disputes,
    )
