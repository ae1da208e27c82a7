"""The record of everything people say: one label is one value for one subject of one trace, by one person."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ragfault.io.field_values import make_content_id
from ragfault.model.records import Trace

Subject = tuple[str | int, ...]
"""Subject of a label: the kind, then what names it within the trace, such as `("claim", 0, 27)`.

| subject | value |
|---|---|
| `("claim", start, end)` | support of a claim of the answer |
| `("chunk", id, "level")`, `("chunk", id, "relevance")` | relevance of a chunk: a word, or a number in [0, 1] |
| `("use", chunk)`, `("citation", chunk, claim)`, `("recall", statement)`, `("aspect", text)` | yes or no |
| `("fact", text)` | yes, no, or `contradicted` |
| `("answer", "refused")`, `("answer", "relevance")` | yes or no; a number in [0, 1] |
| `("answer", "label")`, `("claim", text)`, `("span", start, end)`, `("chunk", id, "grade")` | as a column has it |
| `("cause",)` | why the answer is bad, as `CauseLabel` has it, or `right` |
| `("missing",)` | the information that no chunk contains |
| `("claim",)`, `("chunk",)` … with the value `()` | the part was reviewed, and there is nothing of its kind |
| `("rubric", name)` | level of the answer by a rubric |
| `("metric", name)`, `("metric", name, generator)` | value of a metric |
| `("preference", first, second)` | 1: the answer shown first is better; 0: the second; 0.5: neither |
| `("item",)` | decision on an item of an evaluation set |
"""
SubjectValue = str | float | bool | tuple[str, ...]
"""Value of a label."""

QuestionName = tuple[str, Subject, str]
"""Trace, subject, and what was shown if it matters to the label."""

ANSWER_INDEPENDENT = ("chunk", "missing", "recall")
"""Kinds of subjects that are judged without the answer: their labels hold with any answer."""


class Label(Struct, frozen=True, kw_only=True):
    """What one person said of one subject."""

    trace: str
    """Id of the trace, the query, or the item of an evaluation set."""
    subject: Subject
    value: SubjectValue
    annotator: str = ""
    """Name of the person; empty if it was not recorded."""
    time: datetime | None = None
    note: str = ""
    """Remark of the person."""
    shown: str | None = None
    """Fingerprint of the answer or item that was shown: the label does not hold for another one."""
    chance: float | None = None
    """Probability with which the trace was sampled, in (0, 1]; None: uniform."""
    edited: Trace | None = None
    """The item as the person left it; None if nothing was changed."""

    @property
    def part(self) -> str:
        """Part of the verdicts that the label belongs to."""
        kind = str(self.subject[0])
        return "answer" if kind == "aspect" else kind

    @property
    def person(self) -> str:
        """The annotator, however the name is spelled."""
        return normalize_name(self.annotator)

    @property
    def question(self) -> QuestionName:
        """What two labels share if they answer the same question."""
        return self.trace, self.subject, "" if self.part in ANSWER_INDEPENDENT else self.shown or ""

    @property
    def is_empty_review(self) -> bool:
        """Whether the label only says that a part was reviewed and holds nothing."""
        return self.value == () and len(self.subject) == 1 and self.subject != ("missing",)


def normalize_name(name: str) -> str:
    """Return the name of a person without case, and with single spaces.

    >>> normalize_name("Ann ")
    'ann'
    """
    return " ".join(name.split()).casefold()


def fingerprint_answer(trace: Trace) -> str:
    """Return the fingerprint of a trace's answer, which ties a label to it.

    >>> fingerprint_answer(Trace(id="1", query="When?", answer="In 1040."))
    'a-b7624af79cc7'
    """
    return make_content_id(trace.answer or "", "a-")
