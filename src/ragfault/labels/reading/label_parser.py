"""Labels in the columns of traces: their parser, and the rule by which they mean good or bad."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.field_words import split_words
from ragfault.labels.judges.measurement import LabelTask
from ragfault.labels.label import Subject
from ragfault.model.records import Chunk
from ragfault.text.number_format import format_count

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
        *("supported", "fully supported", "supports", "inferred", "entailed", "entailment", "consistent"),
        *("faithful", "grounded", "good", "pass", "passed", "factual"),
    }
)
RELEVANT_LABELS = frozenset(
    {"relevant", "highly relevant", "partially relevant", "perfectly relevant", "high", "medium"}
)
IRRELEVANT_LABELS = frozenset({"not relevant", "irrelevant", "non relevant", "nonrelevant", "low", "none"})
# relevance levels as grades
LEVEL_GRADES = {"none": 0, "low": 1, "medium": 2, "high": 3}
BOOLEAN_NUMBERS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
GOOD_STEMS = ("support", "attribut", "ground", "faithful", "consisten", "entail", "factual", "correct", "accura")
"""Beginnings of words in names of columns in which 1 is the good value."""


def names_good(column: str) -> bool:
    """Tell whether 1 is the good value of a column, by its name.

    >>> names_good("is_grounded"), names_good("faithfulness_label"), names_good("not_supported"), names_good("label")
    (True, True, False, False)
    """
    words = split_words(column.rpartition(".")[2])
    return any(word.startswith(GOOD_STEMS) for word in words) and not {"not", "no", "non"} & set(words)


PERCENTAGE = re.compile(r"[-+]?[\d.,]+ ?%")
# distinct labels named in a message
MAX_LABELS_SHOWN = 12


def normalize_label(value: Any) -> str:
    """Normalize a label for comparison.

    >>> normalize_label("Not_Supported "), normalize_label(1.0), normalize_label(True)
    ('not supported', '1', 'true')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(re.sub(r"[_\-]+(?!\d)", " ", str(value)).casefold().split())


def is_absent(value: Any) -> bool:
    """Check for a missing value."""
    return value is None or (isinstance(value, str) and not value.strip())


def _parse_number(value: Any) -> float | None:
    """Parse a number or a yes/no word; None for anything else and for infinite numbers."""
    if not isinstance(value, (bool, int, float, str)):
        return None
    word = normalize_label(value) if isinstance(value, str) else value
    try:
        number = BOOLEAN_NUMBERS[word] if word in BOOLEAN_NUMBERS else float(word)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class ChunkGrade(NamedTuple):
    """Human label of the relevance of a chunk."""

    relevant: bool
    # from 0 on; None where the label is no grade
    grade: int | None
    # highest grade, as far as this label tells: 3 for words
    max_grade: int = 0


class LabelRule:
    """Rule that decides which labels are positive.

    Positive is what the judge should detect: a bad answer or claim, or a relevant chunk.

    >>> rule = LabelRule("answer", "label")
    >>> rule.is_positive(1), rule.is_positive("attributable"), rule.labels
    (True, False, {'1': True, 'attributable': False})
    """

    def __init__(self, task: LabelTask, column: str, positive_labels: tuple[str, ...] = ()) -> None:
        self.task, self.column, self.positive_labels = task, column, positive_labels
        self.inverted = names_good(column) and task != "relevance" and not positive_labels
        self.threshold = (
            _parse_number(positive_labels[0]) if task == "relevance" and len(positive_labels) == 1 else None
        )
        # the labels that were met, and whether they are positive
        self.labels: dict[str, bool] = {}

    def is_positive(self, value: Any) -> bool:
        """Decide whether a label is positive; raises InvalidRecord for an unknown one."""
        if isinstance(value, (list, tuple, dict)):
            raise InvalidRecord(f"the label is a list or an object, and should be one value - at `{self.column}`")
        positive = self._decide(value)
        if len(self.labels) < 1000:
            self.labels[normalize_label(value)] = positive
        return positive

    def grade(self, value: Any) -> ChunkGrade:
        """Return the grade of a chunk: a whole number (negative grades of junk are 0), or a level.

        Raises InvalidRecord for an unknown label.
        """
        relevant, number = self.is_positive(value), _parse_number(value)
        if number is None:
            grade = LEVEL_GRADES.get(normalize_label(value))
            return ChunkGrade(relevant, grade, max(LEVEL_GRADES.values()) if grade is not None else 0)
        grade = max(0, int(number)) if number.is_integer() else None
        return ChunkGrade(relevant, grade, grade or 0)

    def _decide(self, value: Any) -> bool:
        word, number = normalize_label(value), _parse_number(value)
        if self.threshold is not None:
            if number is None:
                raise InvalidRecord(f'the grade "{word[:40]}" is not a number - at `{self.column}`')
            return number >= self.threshold
        if self.positive_labels:
            return any(self.matches(word, positive_label) for positive_label in self.positive_labels)
        if self.task == "relevance":
            if number is None and word not in RELEVANT_LABELS | IRRELEVANT_LABELS:
                raise InvalidRecord(self._unknown_message(word, "relevant"))
            return number >= 1 if number is not None else word in RELEVANT_LABELS
        if PERCENTAGE.fullmatch(word) or (number is not None and not float(number).is_integer()):
            raise InvalidRecord(
                f'"{word[:40]}" is a score, and the labels of people are classes - at `{self.column}`. '
                "Make it 0 and 1, or name the column of the classes with --map label=COLUMN"
            )
        if number is not None:
            if number not in (0, 1):
                raise InvalidRecord(self._unknown_message(word, "bad"))
            return bool(number) != self.inverted
        if word not in BAD_LABELS | GOOD_LABELS:
            raise InvalidRecord(self._unknown_message(word, "bad"))
        return word in BAD_LABELS

    @staticmethod
    def matches(label: str, positive_label: str) -> bool:
        """Compare a label with a requested one, however it is written."""
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
        """Describe the positive labels."""
        if self.threshold is not None:
            return f"{self.column} ≥ {self.threshold:g}"
        if self.task == "relevance" and all(_parse_number(word) is not None for word in self.labels):
            return f"{self.column} ≥ 1"
        positive_words = sorted(word for word, positive in self.labels.items() if positive)
        if not positive_words:
            return f"no value of {self.column}"
        return f"{self.column} = {' or '.join(positive_words[:MAX_LABELS_SHOWN])}"


def _decode_cell(value: Any, column: str) -> Any:
    """Decode the JSON of a text cell."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidRecord(f"neither a list nor the JSON of one - at `{column}`") from None


def parse_spans(value: Any, answer: str, column: str) -> tuple[tuple[int, int], ...]:
    """Parse the labeled spans of an answer: objects or pairs of start and end, or texts to locate.

    >>> parse_spans([{"start": 0, "end": 4}, "1050"], "Oslo, 1050", "spans")
    ((0, 4), (6, 10))
    """
    items = _decode_cell(value, column)
    if not isinstance(items, (list, tuple)):
        raise InvalidRecord(f"Expected `array` of spans - at `{column}`")
    return tuple(_parse_span(item, answer, f"{column}[{index}]") for index, item in enumerate(items))


def _parse_span(value: Any, answer: str, path: str) -> tuple[int, int]:
    bounds = value
    if isinstance(value, dict):
        bounds = (value.get("start"), value.get("end")) if {"start", "end"} <= value.keys() else value.get("text")
    if isinstance(bounds, str) and bounds and bounds in answer:
        start = answer.find(bounds)
        return start, start + len(bounds)
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        raise InvalidRecord(f"neither start and end nor a text of the answer - at `{path}`")
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in bounds):
        raise InvalidRecord(f"start and end are not whole numbers - at `{path}`")
    start, end = bounds
    if not 0 <= start < end <= len(answer):
        size = f"{len(answer):,} characters"
        raise InvalidRecord(f"the span {start}–{end} is not within the answer ({size}) - at `{path}`")
    return start, end


CLAIM_LABEL_KEYS = ("label", "verdict", "supported", "is_supported", "grounded", "entailed", "attributable")
"""Keys of the label of a claim."""


def _get_claim_label(item: dict[str, Any]) -> Any:
    """Return the label of a claim; 1 and 0 under a name of what is good as words."""
    key = next((key for key in CLAIM_LABEL_KEYS if key in item), "label")
    label = item.get(key)
    number = _parse_number(label)
    return ("not supported", "supported")[int(number)] if names_good(key) and number in (0, 1) else label


def has_claim_label(item: Any) -> bool:
    """Tell whether an object is a claim with a label."""
    return isinstance(item, dict) and any(key in item for key in CLAIM_LABEL_KEYS)


def list_votes(value: Any) -> list[Any]:
    """List the labels that several people gave, as single labels or as objects with one; empty where there are none.

    >>> list_votes(["bad", "good"]), list_votes([{"annotator": "a", "label": 1}]), list_votes([{"start": 0, "end": 4}])
    (['bad', 'good'], [1], [])
    """
    items = value if isinstance(value, (list, tuple)) else []
    others = {"start", "end", "text", "claim"}
    votes = [i["label"] if isinstance(i, dict) and "label" in i and not i.keys() & others else i for i in items]
    are_known = [_parse_number(vote) in (0, 1) or normalize_label(vote) in BAD_LABELS | GOOD_LABELS for vote in votes]
    return votes if are_known and all(are_known) else []


def parse_claims(value: Any, answer: str, column: str) -> tuple[list[tuple[Subject, Any]], int]:
    """Return subject and label of the claims with a label, and the number of those without.

    Each claim is an object with `label`, and `start` and `end` in the answer or its text as `claim` or `text`. The
    subject of a claim that the answer does not contain is its text.

    >>> parse_claims([{"claim": "1050", "label": "bad"}, {"claim": "Rome", "label": 1}], "Oslo, 1050", "claims")
    ([(('claim', 6, 10), 'bad'), (('claim', 'Rome'), 1)], 0)
    """
    items = _decode_cell(value, column)
    if not isinstance(items, (list, tuple)):
        raise InvalidRecord(f"Expected `array` of claims - at `{column}`")
    claims: list[tuple[Subject, Any]] = []
    for index, item in enumerate(items):
        path = f"{column}[{index}]"
        if not isinstance(item, dict):
            raise InvalidRecord(f"Expected `object` with claim and label - at `{path}`")
        label = _get_claim_label(item)
        if is_absent(label):
            continue
        text = next((item[key] for key in ("claim", "text") if isinstance(item.get(key), str)), None)
        if "start" in item and "end" in item:
            claims.append((("claim", *_parse_span(item, answer, path)), label))
        elif text:
            start = answer.find(text)
            claims.append((("claim", text) if start < 0 else ("claim", start, start + len(text)), label))
        else:
            raise InvalidRecord(f"neither start and end nor a claim - at `{path}`")
    return claims, len(items) - len(claims)


def parse_grades(value: Any, chunks: tuple[Chunk, ...], column: str) -> dict[str, Any]:
    """Map chunk id to grade, for the chunks that have one.

    A list is parallel to the chunks, an object maps id to grade; a single grade is that of the only chunk.
    """
    data = value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        data = _decode_cell(value, column)
    chunk_ids = [chunk.id for chunk in chunks]
    if isinstance(data, dict):
        grades = dict(data)
        unknown = sorted(grades.keys() - set(chunk_ids), key=str)
        if unknown and len(unknown) == len(grades):
            raise InvalidRecord(f'no chunk has the id "{str(unknown[0])[:40]}" - at `{column}`')
    else:
        rows = list(data) if isinstance(data, (list, tuple)) else [data]
        if len(rows) != len(chunks):
            counts = f"{format_count(len(rows), 'grade')} for {format_count(len(chunks), 'chunk')}"
            raise InvalidRecord(f"{counts} - at `{column}`")
        grades = dict(zip(chunk_ids, rows, strict=True))
    unwrapped = {name: _unwrap_grade(grade) for name, grade in grades.items() if name in set(chunk_ids)}
    return {name: grade for name, grade in unwrapped.items() if not is_absent(grade)}


def _unwrap_grade(value: Any) -> Any:
    """Return a grade that may be in an object."""
    if isinstance(value, dict):
        return next((value[key] for key in ("grade", "label", "relevance") if key in value), None)
    return value
