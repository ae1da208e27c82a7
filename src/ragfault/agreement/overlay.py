"""The verdicts of a run as people gave them: what nobody said cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.judges.assemble import level
from ragfault.metrics import Metric, parse, score
from ragfault.ports import PARTS
from ragfault.records import Trace, Verdicts
from ragfault.runs import Run
from ragfault.runs.labels import Key, Word

__all__ = ["ITEMS", "Reading", "Words", "metrics", "overlaid", "values"]

Words = Mapping[Key, Word]


class Reading(Struct, frozen=True):
    """One way in which to understand what was said of a trace."""

    words: Words
    looked: frozenset[str]
    """The parts that were looked at."""


class _Open:
    """A record of which only what was said can be read; whoever reads more fails."""

    def __init__(self, **said: Any) -> None:
        self.__dict__.update({name: value for name, value in said.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"nobody said {name}")


def metrics(run: Run) -> list[Metric]:
    """The metrics of a run that rest on verdicts, save those that are not defined here."""
    found = []
    for measure in run.manifest.metrics:
        try:
            metric = parse(measure.name)
        except UsageError:
            continue
        if metric.definition.verdicts:
            found.append(metric)
    return found


def values(
    wanted: Iterable[Metric], trace: Trace, verdicts: Verdicts, readings: Sequence[Reading]
) -> Iterator[tuple[str, float | None]]:
    """What people make of each metric on a trace, where they said all that it reads.

    Whether a metric has a value here depends on what was looked at, and never on what was seen there: else traces
    would be labelled by their outcome. None stands where the `readings` do not come to the same: what was said does
    not determine the metric, on this trace or on others.
    """
    seen: list[Any] = [overlaid(verdicts, each) for each in readings]
    looked = readings[0].looked
    for metric in wanted:
        if looked.isdisjoint(metric.definition.verdicts):
            continue
        rows = [score(metric, trace, each) for each in seen]
        if all(row.value is not None for row in rows):
            same = all(row.value == rows[0].value for row in rows)
            yield str(metric), rows[0].value if same else None


def overlaid(verdicts: Verdicts, reading: Reading) -> Any:
    """The verdicts with the words of people in the place of the judge's; a part can be read where all of it was said.

    So can one in which there is nothing to judge.

    >>> from ragfault.records import AnswerVerdict
    >>> words = {("answer", "refused"): True}
    >>> seen = overlaid(Verdicts(trace="1", answer=AnswerVerdict(relevance=0.4)), Reading(words, frozenset(["answer"])))
    >>> seen.answer.refused, hasattr(seen.answer, "relevance")
    (True, False)
    """
    lost = set(PARTS) if "*" in verdicts.failures else set(verdicts.failures)
    found = _Open(trace=verdicts.trace, judge=verdicts.judge, failures={})
    for part in PARTS:
        judged = getattr(verdicts, part)
        if part in lost:
            continue
        if judged is None or (part in ITEMS and not judged):
            setattr(found, part, judged)
        elif part in reading.looked and (said := _part(part, judged, reading.words)) is not None:
            setattr(found, part, said)
    return found


def _part(part: str, judged: Any, words: Words) -> Any:
    """A part as people gave it; None where not all of it was said."""
    if part == "missing":
        return words.get(("missing",))
    if part == "answer":
        return _answer(judged, words)
    items = [ITEMS[part](item, words) for item in judged]
    return None if None in items else tuple(items)


def _chunk(verdict: Any, words: Words) -> _Open | None:
    word, relevance = (words.get(("chunk", verdict.chunk, name)) for name in ("level", "relevance"))
    if word is None and relevance is None:
        return None
    return _Open(chunk=verdict.chunk, relevance=relevance, level=word or level(float(str(relevance))))


def _use(verdict: Any, words: Words) -> _Open | None:
    word = words.get(("use", verdict.chunk))
    return None if word is None else _Open(chunk=verdict.chunk, used=word)


def _claim(verdict: Any, words: Words) -> _Open | None:
    word = words.get(("claim", verdict.start, verdict.end))
    if word is None:
        return None
    return _Open(claim=verdict.claim, start=verdict.start, end=verdict.end, support=word)


def _citation(verdict: Any, words: Words) -> _Open | None:
    word = words.get(("citation", verdict.chunk, verdict.claim))
    return None if word is None else _Open(chunk=verdict.chunk, claim=verdict.claim, supports=word)


def _fact(verdict: Any, words: Words) -> _Open | None:
    word = words.get(("fact", verdict.fact))
    if word is None:
        return None
    return _Open(fact=verdict.fact, present=word is True, contradicted=word == "contradicted")


def _recall(verdict: Any, words: Words) -> _Open | None:
    word = words.get(("recall", verdict.statement))
    return None if word is None else _Open(statement=verdict.statement, covered=word)


def _answer(verdict: Any, words: Words) -> _Open:
    """The answer as a whole, field by field: these are said one by one."""
    aspects = [words.get(("aspect", aspect.text)) for aspect in verdict.aspects]
    said = [_Open(text=a.text, answered=word) for a, word in zip(verdict.aspects, aspects, strict=True)]
    return _Open(
        relevance=words.get(("answer", "relevance")),
        refused=words.get(("answer", "refused")),
        aspects=None if None in aspects else tuple(said),
    )


ITEMS: dict[str, Callable[[Any, Words], _Open | None]] = {
    "chunk": _chunk,
    "use": _use,
    "claim": _claim,
    "citation": _citation,
    "fact": _fact,
    "recall": _recall,
}
"""Part → how one item of it is laid over."""
