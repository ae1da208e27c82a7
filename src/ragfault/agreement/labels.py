"""What people said of a trace, brought into one form: yes or no, stretches, claims, grades."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from ragfault.agreement.records import Task
from ragfault.records import Chunk
from ragfault.sources.values import Wrong

__all__ = ["Claimed", "Grade", "Rule", "absent", "claimed", "graded", "plain", "spans"]

BAD = frozenset(
    {
        *("hallucinated", "hallucination", "baseless", "bad", "fail", "failed", "fabricated"),
        *("not attributable", "not fully attributable", "partially attributable", "unattributable"),
        *("unsupported", "not supported", "partially supported", "not enough info", "neutral"),
        *("contradicted", "contradictory", "contradiction", "contradicts", "refuted", "refutes"),
        *("not entailed", "not entailment", "inconsistent", "unfaithful", "not faithful"),
        *("ungrounded", "not grounded", "extrapolatory"),
    }
)
GOOD = frozenset(
    {
        *("not hallucinated", "no hallucination", "attributable", "fully attributable", "attributed"),
        *("supported", "fully supported", "supports", "entailed", "entailment", "consistent"),
        *("faithful", "grounded", "good", "pass", "passed", "factual"),
    }
)
RELEVANT = frozenset(
    {"relevant", "highly relevant", "partially relevant", "perfectly relevant", "high", "medium"}
)
BESIDE = frozenset({"not relevant", "irrelevant", "non relevant", "nonrelevant", "low", "none"})
LEVELS = {"none": 0, "low": 1, "medium": 2, "high": 3}
"""The levels of relevance in words, as grades."""
TRUTHS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
TURNED = frozenset(
    {
        *("supported", "support", "attributable", "attributed", "attribution", "attribution_label"),
        *("grounded", "faithful", "consistent"),
        *("is_supported", "is_attributable", "is_grounded", "is_faithful", "is_consistent", "entailed"),
    }
)
"""Columns in which 1 says that all is well."""

SHOWN = 12
"""How many different labels a message names."""


def plain(value: Any) -> str:
    """A label as a word that can be compared.

    >>> plain("Not_Supported "), plain(1.0), plain(True)
    ('not supported', '1', 'true')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(re.sub(r"[_\-]+(?!\d)", " ", str(value)).casefold().split())


def absent(value: Any) -> bool:
    """Whether nothing is said."""
    return value is None or (isinstance(value, str) and not value.strip())


def _number(value: Any) -> float | None:
    """The number that a label is, or says; None for what is no number or no finite one."""
    if not isinstance(value, (bool, int, float, str)):
        return None
    said = plain(value) if isinstance(value, str) else value
    try:
        number = TRUTHS[said] if said in TRUTHS else float(said)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class Rule:
    """How a label is read: which values are positive, and which were met.

    Positive is what the judge is to find: a bad answer or claim, or a relevant chunk.

    >>> rule = Rule("answer", "label")
    >>> rule.positive(1), rule.positive("attributable"), rule.met
    (True, False, {'1': True, 'attributable': False})
    """

    def __init__(self, task: Task, column: str, wanted: tuple[str, ...] = ()) -> None:
        self.task, self.column, self.wanted = task, column, wanted
        self.turned = column.rpartition(".")[2].lower() in TURNED and task != "relevance" and not wanted
        self.bar = _number(wanted[0]) if task == "relevance" and len(wanted) == 1 else None
        self.met: dict[str, bool] = {}
        """The labels that were met, and whether they are positive."""

    def positive(self, value: Any) -> bool:
        """Whether a label is positive; raises `Wrong` where it cannot be told."""
        if isinstance(value, (list, tuple, dict)):
            raise Wrong(f"the label is a list or an object, and should be one value - at `{self.column}`")
        found = self._positive(value)
        if len(self.met) < 1000:
            self.met[plain(value)] = found
        return found

    def _positive(self, value: Any) -> bool:
        word, number = plain(value), _number(value)
        if self.bar is not None:
            if number is None:
                raise Wrong(f'the grade "{word[:40]}" is not a number - at `{self.column}`')
            return number >= self.bar
        if self.wanted:
            return any(self.same(word, each) for each in self.wanted)
        if self.task == "relevance":
            if number is None and word not in RELEVANT | BESIDE:
                raise Wrong(self._unknown(word, "relevant"))
            return number >= 1 if number is not None else word in RELEVANT
        if number is not None:
            if number not in (0, 1):
                raise Wrong(self._unknown(word, "bad"))
            return bool(number) != self.turned
        if word not in BAD | GOOD:
            raise Wrong(self._unknown(word, "bad"))
        return word in BAD

    @staticmethod
    def same(word: str, wanted: str) -> bool:
        """Whether a label is the one that was asked for, however it is written."""
        number = _number(word)
        return word == plain(wanted) or (number is not None and number == _number(wanted))

    def _unknown(self, word: str, kind: str) -> str:
        return (
            f'the label "{word[:40]}" is not known to be {kind} or not - at `{self.column}`. '
            f"Name the {kind} ones with --positive VALUE"
        )

    def words(self) -> str:
        """What is counted as positive, in words."""
        if self.bar is not None:
            return f"{self.column} ≥ {self.bar:g}"
        if self.task == "relevance" and all(_number(word) is not None for word in self.met):
            return f"{self.column} ≥ 1"
        found = sorted(word for word, positive in self.met.items() if positive)
        return f"{self.column} = {' or '.join(found[:SHOWN]) or 'nothing that was met'}"


# --- more than one value ---------------------------------------------------------------------------


def _opened(value: Any, column: str) -> Any:
    """What a cell of text holds as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Wrong(f"neither a list nor the JSON of one - at `{column}`") from None


def spans(value: Any, answer: str, column: str) -> tuple[tuple[int, int], ...]:
    """The stretches of the answer that people marked: objects or pairs of start and end, or texts to be found.

    >>> spans([{"start": 0, "end": 4}, "1050"], "Oslo, 1050", "spans")
    ((0, 4), (6, 10))
    """
    found = _opened(value, column)
    if not isinstance(found, (list, tuple)):
        raise Wrong(f"Expected `array` of spans - at `{column}`")
    return tuple(_span(each, answer, f"{column}[{at}]") for at, each in enumerate(found))


def _span(value: Any, answer: str, path: str) -> tuple[int, int]:
    ends = value
    if isinstance(value, dict):
        ends = (
            (value.get("start"), value.get("end")) if {"start", "end"} <= value.keys() else value.get("text")
        )
    if isinstance(ends, str) and ends and ends in answer:
        start = answer.find(ends)
        return start, start + len(ends)
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise Wrong(f"neither start and end nor a text of the answer - at `{path}`")
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        raise Wrong(f"start and end are not whole numbers - at `{path}`")
    start, end = ends
    if not 0 <= start < end <= len(answer):
        size = f"{len(answer):,} characters"
        raise Wrong(f"the span {start}–{end} is not within the answer ({size}) - at `{path}`")
    return start, end


class Claimed(NamedTuple):
    """A claim and what people said of it."""

    text: str
    start: int
    """Where it begins in the answer; -1 where it is not in it."""
    end: int
    positive: bool


def claimed(value: Any, answer: str, rule: Rule, column: str) -> tuple[tuple[Claimed, ...], int]:
    """The claims that have a label, and how many have none.

    Each is an object with `label`, and `start` and `end` in the answer or its text as `claim` or `text`.
    """
    found = _opened(value, column)
    if not isinstance(found, (list, tuple)):
        raise Wrong(f"Expected `array` of claims - at `{column}`")
    made: list[Claimed] = []
    for at, each in enumerate(found):
        path = f"{column}[{at}]"
        if not isinstance(each, dict):
            raise Wrong(f"Expected `object` with claim and label - at `{path}`")
        if absent(each.get("label")):
            continue
        text = next((each[key] for key in ("claim", "text") if isinstance(each.get(key), str)), None)
        if "start" in each and "end" in each:
            start, end = _span(each, answer, path)
        elif text:
            start = answer.find(text)
            end = start + len(text)
        else:
            raise Wrong(f"neither start and end nor a claim - at `{path}`")
        made.append(Claimed(text or answer[start:end], start, end, rule.positive(each["label"])))
    return tuple(made), len(found) - len(made)


class Grade(NamedTuple):
    """What people said of the relevance of a chunk."""

    relevant: bool
    grade: int | None
    """From 0 on; None where what they said is no grade."""
    top: int = 0
    """The highest grade that there is, as far as this one tells: 3 for words."""


def graded(value: Any, chunks: tuple[Chunk, ...], rule: Rule, column: str) -> dict[str, Grade]:
    """Chunk id → what people said of it, for the chunks that have a grade.

    A list runs parallel to the chunks, an object goes from id to grade; a single grade is that of the only chunk.
    """
    found = value
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        found = _opened(value, column)
    if isinstance(found, dict):
        grades = dict(found)
        strangers = sorted(grades.keys() - {chunk.id for chunk in chunks}, key=str)
        if strangers and len(strangers) == len(grades):
            raise Wrong(f'no chunk has the id "{str(strangers[0])[:40]}" - at `{column}`')
    else:
        listed = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(listed) != len(chunks):
            raise Wrong(f"{_count(listed, 'grade')} for {_count(chunks, 'chunk')} - at `{column}`")
        grades = {chunk.id: grade for chunk, grade in zip(chunks, listed, strict=True)}
    known = {chunk.id for chunk in chunks}
    return {
        name: _told(_grade(grade), rule)
        for name, grade in grades.items()
        if name in known and not absent(_grade(grade))
    }


def _told(value: Any, rule: Rule) -> Grade:
    """What people said of one chunk: a grade is a whole number from 0 on, junk below 0 is 0, and a level a grade."""
    relevant, number = rule.positive(value), _number(value)
    if number is None:
        step = LEVELS.get(plain(value))
        return Grade(relevant, step, max(LEVELS.values()) if step is not None else 0)
    step = max(0, int(number)) if number.is_integer() else None
    return Grade(relevant, step, step or 0)


def _grade(value: Any) -> Any:
    """A grade that may stand in an object."""
    if isinstance(value, dict):
        return next((value[key] for key in ("grade", "label", "relevance") if key in value), None)
    return value


def _count(things: Any, name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"
