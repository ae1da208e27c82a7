"""Parser of label values: yes or no, spans, claims and grades in the columns of labeled traces."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from ragfault.evaluation.agreement.measurement import LabelTask
from ragfault.io.field_values import InvalidRecord
from ragfault.records import Chunk

BAD_LABELS = frozenset(
    {
        *("hallucinated", "hallucination", "baseless", "bad", "fail", "failed", "fabricated"),
        *("not attributable", "not fully attributable", "partially attributable", "unattributable"),
        *("unsupported", "not supported", "partially supported", "not enough info", "neutral"),
        *("contradicted", "contradictory", "contradiction", "contradicts", "refuted", "refutes"),
        *("not entailed", "not entailment", "inconsistent", "unfaithful", "not faithful"),
        *("ungrounded", "not grounded", "extrapolatory"),
    }
)
GOOD_LABELS = frozenset(
    {
        *("not hallucinated", "no hallucination", "attributable", "fully attributable", "attributed"),
        *("supported", "fully supported", "supports", "entailed", "entailment", "consistent"),
        *("faithful", "grounded", "good", "pass", "passed", "factual"),
    }
)
RELEVANT_LABELS = frozenset(
    {"relevant", "highly relevant", "partially relevant", "perfectly relevant", "high", "medium"}
)
IRRELEVANT_LABELS = frozenset({"not relevant", "irrelevant", "non relevant", "nonrelevant", "low", "none"})
LEVEL_GRADES = {"none": 0, "low": 1, "medium": 2, "high": 3}
"""The levels of relevance in words, as grades."""
BOOLEAN_NUMBERS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
INVERTED_COLUMNS = frozenset(
    {
        *("supported", "support", "attributable", "attributed", "attribution", "attribution_label"),
        *("grounded", "faithful", "consistent"),
        *("is_supported", "is_attributable", "is_grounded", "is_faithful", "is_consistent", "entailed"),
    }
)
"""Columns in which 1 says that all is well."""

MAX_LABELS_SHOWN = 12
"""How many different labels a message names."""


def normalize_label(value: Any) -> str:
    """A label as a word that can be compared.

    >>> normalize_label("Not_Supported "), normalize_label(1.0), normalize_label(True)
    ('not supported', '1', 'true')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(re.sub(r"[_\-]+(?!\d)", " ", str(value)).casefold().split())


def is_absent(value: Any) -> bool:
    """Whether nothing is said."""
    return value is None or (isinstance(value, str) and not value.strip())


def _parse_number(value: Any) -> float | None:
    """The number that a label is, or says; None for what is no number or no finite one."""
    if not isinstance(value, (bool, int, float, str)):
        return None
    said = normalize_label(value) if isinstance(value, str) else value
    try:
        number = BOOLEAN_NUMBERS[said] if said in BOOLEAN_NUMBERS else float(said)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class LabelRule:
    """How a label is read: which values are positive, and which were met.

    Positive is what the judge is to find: a bad answer or claim, or a relevant chunk.

    >>> rule = LabelRule("answer", "label")
    >>> rule.is_positive(1), rule.is_positive("attributable"), rule.labels
    (True, False, {'1': True, 'attributable': False})
    """

    def __init__(self, task: LabelTask, column: str, positive_labels: tuple[str, ...] = ()) -> None:
        self.task, self.column, self.positive_labels = task, column, positive_labels
        self.inverted = (
            column.rpartition(".")[2].lower() in INVERTED_COLUMNS
            and task != "relevance"
            and not positive_labels
        )
        self.threshold = (
            _parse_number(positive_labels[0]) if task == "relevance" and len(positive_labels) == 1 else None
        )
        self.labels: dict[str, bool] = {}
        """The labels that were met, and whether they are positive."""

    def is_positive(self, value: Any) -> bool:
        """Whether a label is positive; raises `Wrong` where it cannot be told."""
        if isinstance(value, (list, tuple, dict)):
            raise InvalidRecord(
                f"the label is a list or an object, and should be one value - at `{self.column}`"
            )
        found = self._decide(value)
        if len(self.labels) < 1000:
            self.labels[normalize_label(value)] = found
        return found

    def _decide(self, value: Any) -> bool:
        word, number = normalize_label(value), _parse_number(value)
        if self.threshold is not None:
            if number is None:
                raise InvalidRecord(f'the grade "{word[:40]}" is not a number - at `{self.column}`')
            return number >= self.threshold
        if self.positive_labels:
            return any(self.matches(word, each) for each in self.positive_labels)
        if self.task == "relevance":
            if number is None and word not in RELEVANT_LABELS | IRRELEVANT_LABELS:
                raise InvalidRecord(self._unknown_message(word, "relevant"))
            return number >= 1 if number is not None else word in RELEVANT_LABELS
        if number is not None:
            if number not in (0, 1):
                raise InvalidRecord(self._unknown_message(word, "bad"))
            return bool(number) != self.inverted
        if word not in BAD_LABELS | GOOD_LABELS:
            raise InvalidRecord(self._unknown_message(word, "bad"))
        return word in BAD_LABELS

    @staticmethod
    def matches(label: str, positive_label: str) -> bool:
        """Whether a label is the one that was asked for, however it is written."""
        number = _parse_number(label)
        return label == normalize_label(positive_label) or (
            number is not None and number == _parse_number(positive_label)
        )

    def _unknown_message(self, label: str, kind: str) -> str:
        return (
            f'the label "{label[:40]}" is not known to be {kind} or not - at `{self.column}`. '
            f"Name the {kind} ones with --positive VALUE"
        )

    def describe(self) -> str:
        """What is counted as positive, in words."""
        if self.threshold is not None:
            return f"{self.column} ≥ {self.threshold:g}"
        if self.task == "relevance" and all(_parse_number(word) is not None for word in self.labels):
            return f"{self.column} ≥ 1"
        found = sorted(word for word, positive in self.labels.items() if positive)
        return f"{self.column} = {' or '.join(found[:MAX_LABELS_SHOWN]) or 'nothing that was met'}"


# --- more than one value ---------------------------------------------------------------------------


def _decode_cell(value: Any, column: str) -> Any:
    """What a cell of text holds as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidRecord(f"neither a list nor the JSON of one - at `{column}`") from None


def parse_spans(value: Any, answer: str, column: str) -> tuple[tuple[int, int], ...]:
    """The stretches of the answer that people marked: objects or pairs of start and end, or texts to be found.

    >>> parse_spans([{"start": 0, "end": 4}, "1050"], "Oslo, 1050", "spans")
    ((0, 4), (6, 10))
    """
    found = _decode_cell(value, column)
    if not isinstance(found, (list, tuple)):
        raise InvalidRecord(f"Expected `array` of spans - at `{column}`")
    return tuple(_parse_span(each, answer, f"{column}[{at}]") for at, each in enumerate(found))


def _parse_span(value: Any, answer: str, path: str) -> tuple[int, int]:
    ends = value
    if isinstance(value, dict):
        ends = (
            (value.get("start"), value.get("end")) if {"start", "end"} <= value.keys() else value.get("text")
        )
    if isinstance(ends, str) and ends and ends in answer:
        start = answer.find(ends)
        return start, start + len(ends)
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise InvalidRecord(f"neither start and end nor a text of the answer - at `{path}`")
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        raise InvalidRecord(f"start and end are not whole numbers - at `{path}`")
    start, end = ends
    if not 0 <= start < end <= len(answer):
        size = f"{len(answer):,} characters"
        raise InvalidRecord(f"the span {start}–{end} is not within the answer ({size}) - at `{path}`")
    return start, end


class LabeledClaim(NamedTuple):
    """A claim and what people said of it."""

    text: str
    start: int
    """Where it begins in the answer; -1 where it is not in it."""
    end: int
    positive: bool


def parse_claims(
    value: Any, answer: str, rule: LabelRule, column: str
) -> tuple[tuple[LabeledClaim, ...], int]:
    """The claims that have a label, and how many have none.

    Each is an object with `label`, and `start` and `end` in the answer or its text as `claim` or `text`.
    """
    found = _decode_cell(value, column)
    if not isinstance(found, (list, tuple)):
        raise InvalidRecord(f"Expected `array` of claims - at `{column}`")
    made: list[LabeledClaim] = []
    for at, each in enumerate(found):
        path = f"{column}[{at}]"
        if not isinstance(each, dict):
            raise InvalidRecord(f"Expected `object` with claim and label - at `{path}`")
        if is_absent(each.get("label")):
            continue
        text = next((each[key] for key in ("claim", "text") if isinstance(each.get(key), str)), None)
        if "start" in each and "end" in each:
            start, end = _parse_span(each, answer, path)
        elif text:
            start = answer.find(text)
            end = start + len(text)
        else:
            raise InvalidRecord(f"neither start and end nor a claim - at `{path}`")
        made.append(LabeledClaim(text or answer[start:end], start, end, rule.is_positive(each["label"])))
    return tuple(made), len(found) - len(made)


class ChunkGrade(NamedTuple):
    """What people said of the relevance of a chunk."""

    relevant: bool
    grade: int | None
    """From 0 on; None where what they said is no grade."""
    max_grade: int = 0
    """The highest grade that there is, as far as this one tells: 3 for words."""


def parse_grades(
    value: Any, chunks: tuple[Chunk, ...], rule: LabelRule, column: str
) -> dict[str, ChunkGrade]:
    """Chunk id → what people said of it, for the chunks that have a grade.

    A list runs parallel to the chunks, an object goes from id to grade; a single grade is that of the only chunk.
    """
    found = value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        found = _decode_cell(value, column)
    if isinstance(found, dict):
        grades = dict(found)
        strangers = sorted(grades.keys() - {chunk.id for chunk in chunks}, key=str)
        if strangers and len(strangers) == len(grades):
            raise InvalidRecord(f'no chunk has the id "{str(strangers[0])[:40]}" - at `{column}`')
    else:
        listed = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(listed) != len(chunks):
            raise InvalidRecord(
                f"{_format_count(listed, 'grade')} for {_format_count(chunks, 'chunk')} - at `{column}`"
            )
        grades = {chunk.id: grade for chunk, grade in zip(chunks, listed, strict=True)}
    known = {chunk.id for chunk in chunks}
    return {
        name: _build_grade(_unwrap_grade(grade), rule)
        for name, grade in grades.items()
        if name in known and not is_absent(_unwrap_grade(grade))
    }


def _build_grade(value: Any, rule: LabelRule) -> ChunkGrade:
    """What people said of one chunk: a grade is a whole number from 0 on, junk below 0 is 0, and a level a grade."""
    relevant, number = rule.is_positive(value), _parse_number(value)
    if number is None:
        step = LEVEL_GRADES.get(normalize_label(value))
        return ChunkGrade(relevant, step, max(LEVEL_GRADES.values()) if step is not None else 0)
    step = max(0, int(number)) if number.is_integer() else None
    return ChunkGrade(relevant, step, step or 0)


def _unwrap_grade(value: Any) -> Any:
    """A grade that may stand in an object."""
    if isinstance(value, dict):
        return next((value[key] for key in ("grade", "label", "relevance") if key in value), None)
    return value


def _format_count(values: Any, name: str) -> str:
    return f"{len(values):,} {name}{'' if len(values) == 1 else 's'}"
