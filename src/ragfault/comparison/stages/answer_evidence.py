"""Evidence on the answers: length, refusals, wording, figures and units, citations, and what reached the prompt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from ragfault.comparison.pairing import normalize_space
from ragfault.comparison.stages.paired_traces import (
    LEAST_SHARE,
    Evidence,
    PairedTraces,
    TracePair,
    give,
    give_rise,
    ramp,
)
from ragfault.comparison.stages.text_evidence import share_common_words
from ragfault.model.records import Citation, Trace, Verdicts
from ragfault.model.rules import quote_matches
from ragfault.text.number_format import format_percent
from ragfault.text.quantities import EntityMatch, extract_quantities

# of the sentences of an answer
REPEATED_SHARE = 0.3
# an answer that more queries share is a phrase
MAX_EQUAL = 2
# a shorter answer may fit several queries
LEAST_WORDS = 3
# of its words, an answer keeps where others took the place of the rest
IN_PLACE_SHARE = 0.6
SENTENCE_END = re.compile(r"[.!?…:;)\]}\"'”’»|*`。！？]\s*(?:\[[^\]]*\]\s*)*$")
SENTENCE = re.compile(r"(?<=[.!?]) +|\n+")


def answer_rules(traces: PairedTraces) -> Evidence:
    """Observe the answers; those that the baseline gave to another query say nothing of how they were written."""
    answers = [[normalize_space(side.answer or "") for side in pair[:2]] for pair in traces.pairs]
    counts = Counter(old for old, _ in answers)
    rare = {answer for answer, count in counts.items() if count <= MAX_EQUAL and len(answer.split()) >= LEAST_WORDS}
    other = [
        new in rare and new != old and not _refused(pair.new_verdicts)
        for (old, new), pair in zip(answers, traces.pairs, strict=True)
    ]
    share = fmean(other) if other else 0.0
    text = f"{format_percent(share)} of the answers are those that the baseline gave to another query"
    strength = ramp(share, LEAST_SHARE, 0.15)
    yield from give("answer of another query", strength, text, "answer cache", half=["prompt assembly"])
    own = [pair for pair, foreign in zip(traces.pairs, other, strict=True) if not foreign]
    refused = [[float(_refused(verdicts)) for verdicts in side] for side in _split_sides(own)[1]]
    yield from give_rise("refusals", _average(refused), "answers refuse", 0.1, "refusal wording")
    yield from _prompt_rules(own)
    answered = [
        pair
        for pair in own
        if pair.old.answer and pair.new.answer and not _refused(pair.old_verdicts) and not _refused(pair.new_verdicts)
    ]
    for form in ANSWER_FORMS:
        shares = _average([[float(form.shows(trace)) for trace in side] for side in _split_sides(answered)[0]])
        yield from give_rise(form.name, shares, form.what, form.most, *form.stages, half=form.half)
    if answered:
        yield from _length_rules(answered)
        yield from _wording_rules(answered)
    yield from _citation_rules(own)


def _split_sides(pairs: Sequence[TracePair]) -> tuple[list[list[Trace]], list[list[Verdicts]]]:
    """Return the traces and the verdicts of the baseline, and those of the candidate."""
    return (
        [[pair.old for pair in pairs], [pair.new for pair in pairs]],
        [[pair.old_verdicts for pair in pairs], [pair.new_verdicts for pair in pairs]],
    )


def _average(sides: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(values) if values else 0.0 for values in sides]


def _refused(verdicts: Verdicts) -> bool:
    return verdicts.answer is not None and verdicts.answer.refused


def _length_rules(pairs: Sequence[TracePair]) -> Evidence:
    """Observe answers that are shorter, longer, or as long but less complete."""
    mean = _average([[len((trace.answer or "").split()) for trace in side] for side in _split_sides(pairs)[0]])
    ratio = mean[1] / max(1.0, mean[0])
    text = f"words per answer: {mean[0]:.3g} → {mean[1]:.3g}"
    yield from give("shorter", ramp(1 / max(ratio, 1e-9), 1.1, 1.6), text, "max tokens", "prompt", "model")
    yield from give("longer", ramp(ratio, 1.1, 1.5), text, "prompt", "model")
    missing = [
        _present(pair.old_verdicts) - _present(pair.new_verdicts)
        for pair in pairs
        if pair.old.chunks == pair.new.chunks
        and (not pair.new_verdicts.use or any(use.used for use in pair.new_verdicts.use))
        and len(pair.new.answer or "") >= 0.8 * len(pair.old.answer or "")
        and not _is_changed_in_place(pair)
    ]
    share = (sum(lost > 0 for lost in missing) - sum(lost < 0 for lost in missing)) / len(pairs)
    text = (
        f"{format_percent(share)} more answers lost facts than gained some, from the same chunks and at no less length"
    )
    yield from give("misses facts", ramp(share, 0.03, 0.15), text, "prompt assembly")


def _is_changed_in_place(pair: TracePair) -> bool:
    """Return whether an answer keeps most of its words, and others took the place of the rest."""
    old, new = pair.old.answer or "", pair.new.answer or ""
    length = len(new.split()) / max(1, len(old.split()))
    return old != new and 0.8 <= length <= 1.25 and share_common_words(old, new) >= IN_PLACE_SHARE


def _wording_rules(pairs: Sequence[TracePair]) -> Evidence:
    """Observe what was put before the answers."""
    before = 0
    for pair in pairs:
        old, new = (SENTENCE.split((trace.answer or "").strip()) for trace in pair[:2])
        before += _stands_after(old, new) - _stands_after(new, old)
    share = before / len(pairs)
    text = f"{format_percent(share)} of the answers say something before the answer of the baseline"
    yield from give("said before", ramp(share, 0.05, 0.3), text, "prompt")


def _stands_after(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Return whether the first sentence of one answer comes later in the other."""
    return inner[0] != outer[0] and inner[0][-25:] in " ".join(outer[1:])


def _present(verdicts: Verdicts) -> int:
    return sum(fact.present for fact in verdicts.fact or ())


def _prompt_rules(pairs: Sequence[TracePair]) -> Evidence:
    """Observe prompts with fewer tokens for the same chunks."""
    tokens = [
        (old.prompt, new.prompt)
        for pair in pairs
        if pair.old.chunks and pair.old.chunks == pair.new.chunks
        if (old := pair.old.tokens) and (new := pair.new.tokens) and old.prompt and new.prompt
    ]
    fewer = fmean(new < 0.97 * old for old, new in tokens) if tokens else 0.0
    text = f"on {format_percent(fewer)} of the pairs with the same chunks, the prompt has fewer tokens"
    yield from give("prompt tokens fewer", ramp(fewer, 0.05, 0.3), text, "prompt assembly")


def states_other_unit(trace: Trace) -> bool:
    """Return whether the answer gives a figure that its chunks hold in other units or currencies only.

    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="A cabin costs £9.")
    >>> states_other_unit(Trace(id="1", query="?", chunks=(chunk,), answer="It costs $9."))
    True
    """
    stated = _units_by_figure(trace.answer or "")
    known: dict[str, set[str]] = {}
    for chunk in trace.chunks or () if stated else ():
        for figure, units in _units_by_figure(chunk.text).items():
            known.setdefault(figure, set()).update(units)
    return any(figure in known and not units & known[figure] for figure, units in stated.items())


@lru_cache(maxsize=8192)
def _units_by_figure(text: str) -> dict[str, set[str]]:
    """Return the units that stand beside each figure of a text, both of "pounds"; bare figures are left out."""
    units_by_figure: dict[str, set[str]] = {}
    matches: list[EntityMatch] = []
    extract_quantities(text, matches)
    for form in (form for match in matches for form in match.forms):
        figure, _, unit = form.partition(" ")
        if unit:
            units_by_figure.setdefault(figure, set()).add(unit)
    return units_by_figure


def repeats_itself(trace: Trace) -> bool:
    """Return whether three sentences of ten of an answer repeat an earlier one.

    >>> repeats_itself(Trace(id="1", query="?", answer="The cabin is on the upper deck. " * 2))
    True
    """
    return measure_repetition(trace) >= REPEATED_SHARE


def measure_repetition(trace: Trace) -> float:
    """Return the share of the sentences of an answer that repeat an earlier one."""
    parts = [part for part in SENTENCE.split(trace.answer or "") if len(part) > 20]
    return 1 - len(set(parts)) / len(parts) if parts else 0.0


def _citation_rules(pairs: Sequence[TracePair]) -> Evidence:
    """Observe citations of unknown chunks, and changed quotes."""
    cited = [(pair.old, pair.new) for pair in pairs if pair.old.citations and pair.new.citations is not None]
    if not cited:
        return
    sides = [[(pair[at], citation) for pair in cited for citation in pair[at].citations or ()] for at in (0, 1)]
    unknown = _average([[float(_find_cited(*item) is None) for item in side] for side in sides])
    yield from give_rise(
        "unknown citations", unknown, "citations name a chunk that was not retrieved", 0.1, "output schema"
    )
    false = _average([[float(_misquotes(*item)) for item in side] for side in sides])
    yield from give_rise("false quotes", false, "quotes do not stand in the cited chunk", 0.1, "output schema", "model")


def _find_cited(trace: Trace, citation: Citation) -> str | None:
    """Return the text of the chunk that a citation names; None if it was not retrieved."""
    return next((chunk.text for chunk in trace.chunks or () if chunk.id == citation.chunk), None)


def _misquotes(trace: Trace, citation: Citation) -> bool:
    return citation.quote is not None and not quote_matches(citation.quote, _find_cited(trace, citation) or "")


class AnswerForm(NamedTuple):
    """A property of single answers, or its share of one, that points to stages if it becomes more frequent."""

    name: str
    shows: Callable[[Trace], float]
    what: str
    """What is so of the answers, in words."""
    most: float
    """Rise from which on the observation is full."""
    stages: tuple[str, ...]
    half: tuple[str, ...] = ()


ANSWER_FORMS = (
    AnswerForm(
        "cut",
        lambda trace: not SENTENCE_END.search(trace.answer or ""),
        "answers end in the middle of a sentence",
        0.15,
        ("max tokens",),
    ),
    AnswerForm(
        "units", states_other_unit, "answers give a figure in a unit that their chunks do not", 0.1, ("model", "prompt")
    ),
    AnswerForm(
        "repeated",
        measure_repetition,
        "sentences repeat an earlier one of the same answer",
        0.15,
        ("decoding",),
        ("model",),
    ),
)
