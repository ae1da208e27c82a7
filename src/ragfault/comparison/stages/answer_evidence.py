"""Evidence on the answers: length, refusals, wording, figures and units, citations, and what reached the prompt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean

from ragfault.comparison.pairing import normalize_space
from ragfault.comparison.stages.paired_traces import LEAST_SHARE, Evidence, PairedTraces, TracePair, give, ramp
from ragfault.comparison.stages.text_evidence import DAMAGE, share_common_words
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
# fewer words that came in show no habit
LEAST_STRAY = 20
# of the time before: an answer in less was not written
FAST_SHARE = 0.1
WORD = re.compile(r"[^\W\d_]{2,}")
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
    for stage, part in (("answer cache", 1.0), ("prompt assembly", 0.5)):
        yield from give("answer of another query", part * ramp(share, LEAST_SHARE, 0.15), text, stage)
    own = traces._replace(pairs=[pair for pair, foreign in zip(traces.pairs, other, strict=True) if not foreign])
    for rule in ANSWER_RULES:
        yield from rule(own)


def _answered(traces: PairedTraces) -> list[TracePair]:
    """Return the pairs with an answer on both sides that refuses on neither."""
    return [
        pair
        for pair in traces.pairs
        if pair.old.answer and pair.new.answer and not _refused(pair.old_verdicts) and not _refused(pair.new_verdicts)
    ]


def _refused(verdicts: Verdicts) -> bool:
    return verdicts.answer is not None and verdicts.answer.refused


def _rise(pairs: Sequence[TracePair], test: Callable[[Trace, Verdicts], float]) -> tuple[float, float]:
    """Return the mean of a property of the traces on both sides."""
    if not pairs:
        return 0.0, 0.0
    return (
        fmean(test(pair.old, pair.old_verdicts) for pair in pairs),
        fmean(test(pair.new, pair.new_verdicts) for pair in pairs),
    )


def _length_rules(traces: PairedTraces) -> Evidence:
    """Observe answers that are cut, shorter, longer, or as long but less complete."""
    pairs = _answered(traces)
    if not pairs:
        return
    before, after = _rise(pairs, lambda trace, _: float(not SENTENCE_END.search(trace.answer or "")))
    text = f"{format_percent(after)} of the answers end in the middle of a sentence, {format_percent(before)} before"
    yield from give("cut", ramp(after - before, LEAST_SHARE, 0.15), text, "max tokens")
    lengths = [[len(((pair.old, pair.new)[side].answer or "").split()) for pair in pairs] for side in (0, 1)]
    mean = fmean(lengths[0]), fmean(lengths[1])
    ratio = mean[1] / max(1.0, mean[0])
    text = f"words per answer: {mean[0]:.3g} → {mean[1]:.3g}"
    yield from give("shorter", ramp(1 / max(ratio, 1e-9), 1.1, 1.6), text, "max tokens", "prompt", "model")
    yield from give("longer", ramp(ratio, 1.1, 1.5), text, "prompt", "model")
    missing = [
        _present(pair.old_verdicts) - _present(pair.new_verdicts)
        for pair in pairs
        if pair.old.chunks == pair.new.chunks
        and not _draws_on_nothing(pair.new_verdicts)
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


def _in_place_rules(traces: PairedTraces) -> Evidence:
    """Observe answers in which words were replaced: by many words, by one, or by damaged characters."""
    pairs = _answered(traces)
    if not pairs:
        return
    changed = [pair for pair in pairs if _is_changed_in_place(pair)]
    stray = Counter(word for pair in changed for word in _stray_words(pair))
    share = sum(bool(_stray_words(pair)) for pair in changed) / len(pairs)
    if stray.total() >= LEAST_STRAY:
        (word, count), *_ = stray.most_common(1)
        top_share = count / stray.total()
        text = f"in {format_percent(share)} of the answers, words that neither query nor chunks hold replace others"
        scattered = ramp(share, LEAST_SHARE, 0.2) * ramp(0.5 - top_share, 0.0, 0.3)
        yield from give("stray words", scattered, text, "decoding")
        yield from give("stray words", scattered / 2, text, "model")
        text = f"{text}, and {format_percent(top_share)} of them are “{word}”"
        yield from give("one stray word", ramp(share, LEAST_SHARE, 0.2) * ramp(top_share, 0.4, 0.8), text, "prompt")
    before, after = _rise(pairs, _is_damaged)
    text = (
        f"{format_percent(after)} of the answers hold damaged characters that their chunks do not, "
        f"{format_percent(before)} before"
    )
    yield from give("damaged answers", ramp(after - before, LEAST_SHARE, 0.2), text, "output schema")


def _stray_words(pair: TracePair) -> set[str]:
    """Return the words of the new answer that neither its query, its chunks nor the old answer hold."""
    text = " ".join([pair.new.query, pair.old.answer or "", *(chunk.text for chunk in pair.new.chunks or ())])
    return set(WORD.findall((pair.new.answer or "").casefold())) - set(WORD.findall(text.casefold()))


def _is_damaged(trace: Trace, _: Verdicts) -> float:
    return float(
        bool(DAMAGE.search(trace.answer or "")) and not any(DAMAGE.search(chunk.text) for chunk in trace.chunks or ())
    )


def _time_rules(traces: PairedTraces) -> Evidence:
    """Observe answers that came in next to no time, and differ."""
    times = [
        (pair.old.latency.generation, pair.new.latency.generation, pair)
        for pair in traces.pairs
        if pair.old.latency and pair.new.latency
    ]
    known = [(old, new, pair) for old, new, pair in times if old and new is not None]
    if len(known) < 0.5 * len(traces.pairs) or not known:
        return
    share = sum(new < FAST_SHARE * old for old, new, _ in known) / len(known)
    differ = [pair.old.answer != pair.new.answer for old, new, pair in known if new < FAST_SHARE * old]
    text = f"{format_percent(share)} of the answers came in less than a tenth of the time before"
    part = fmean(differ) if differ else 0.0
    yield from give("in no time", ramp(share, LEAST_SHARE, 0.15) * ramp(part, 0.05, 0.3), text, "answer cache")


def _draws_on_nothing(verdicts: Verdicts) -> bool:
    return bool(verdicts.use) and not any(use.used for use in verdicts.use or ())


def _present(verdicts: Verdicts) -> int:
    return sum(fact.present for fact in verdicts.fact or ())


def _refusal_rules(traces: PairedTraces) -> Evidence:
    """Observe more refusals."""
    before, after = _rise(traces.pairs, lambda _, verdicts: float(_refused(verdicts)))
    text = f"{format_percent(after)} of the answers refuse, {format_percent(before)} before"
    yield from give("refusals", ramp(after - before, LEAST_SHARE, 0.1), text, "refusal wording")


def _prompt_rules(traces: PairedTraces) -> Evidence:
    """Observe what of the same chunks reached the prompt."""
    pairs = [pair for pair in traces.pairs if pair.old.chunks and pair.old.chunks == pair.new.chunks]
    if not pairs:
        return
    tokens = [
        (old.prompt, new.prompt)
        for pair in pairs
        if (old := pair.old.tokens) and (new := pair.new.tokens) and old.prompt and new.prompt
    ]
    if tokens:
        fewer = fmean(new < 0.97 * old for old, new in tokens)
        text = f"on {format_percent(fewer)} of the pairs with the same chunks, the prompt has fewer tokens"
        yield from give("prompt tokens fewer", ramp(fewer, 0.05, 0.3), text, "prompt assembly")


def _wording_rules(traces: PairedTraces) -> Evidence:
    """Observe what was put before, after or into the answers."""
    pairs = [pair for pair in _answered(traces) if pair.old.answer != pair.new.answer]
    if not pairs:
        return
    before = 0
    for pair in pairs:
        old, new = (SENTENCE.split((trace.answer or "").strip()) for trace in (pair.old, pair.new))
        before += _stands_after(old, new) - _stands_after(new, old)
    every = len(_answered(traces))
    text = f"{format_percent(before / every)} of the answers say something before the answer of the baseline"
    yield from give("said before", ramp(before / every, 0.05, 0.3), text, "prompt")
    units = _rise(_answered(traces), lambda trace, _: float(states_other_unit(trace)))
    text = (
        f"{format_percent(units[1])} of the answers give a figure in a unit that their chunks do "
        f"not, {format_percent(units[0])} before"
    )
    yield from give("units", ramp(units[1] - units[0], LEAST_SHARE, 0.1), text, "model", "prompt")
    again = _rise(_answered(traces), _repeated)
    text = (
        f"{format_percent(again[1])} of the sentences repeat an earlier one of the same answer, "
        f"{format_percent(again[0])} before"
    )
    yield from give("repeated", ramp(again[1] - again[0], LEAST_SHARE, 0.15), text, "decoding")
    yield from give("repeated", ramp(again[1] - again[0], LEAST_SHARE, 0.15) / 2, text, "model")


def _stands_after(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Return whether the first sentence of one answer comes later in the other."""
    return inner[0] != outer[0] and inner[0][-25:] in " ".join(outer[1:])


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
    return _repeated(trace) >= REPEATED_SHARE


def _repeated(trace: Trace, _: Verdicts | None = None) -> float:
    parts = [part for part in SENTENCE.split(trace.answer or "") if len(part) > 20]
    return 1 - len(set(parts)) / len(parts) if parts else 0.0


def _citation_rules(traces: PairedTraces) -> Evidence:
    """Observe citations of unknown chunks, changed quotes, shifted and missing citations."""
    cited = [(pair.old, pair.new) for pair in traces.pairs if pair.old.citations and pair.new.citations is not None]
    if not cited:
        return
    sides = [[(pair[at], citation) for pair in cited for citation in pair[at].citations or ()] for at in (0, 1)]
    count = [len(side) / len(cited) for side in sides]
    text = f"citations per answer: {count[0]:.3g} → {count[1]:.3g}"
    yield from give("fewer citations", ramp(count[0] / max(count[1], 1e-9), 1.2, 2.0), text, "output schema", "prompt")
    unknown = [
        _share(side, lambda trace, citation: citation.chunk not in {chunk.id for chunk in trace.chunks or ()})
        for side in sides
    ]
    text = (
        f"{format_percent(unknown[1])} of the citations name a chunk that was not retrieved, "
        f"{format_percent(unknown[0])} before"
    )
    yield from give("unknown citations", ramp(unknown[1] - unknown[0], LEAST_SHARE, 0.1), text, "output schema")
    false = [_share(side, _misquotes) for side in sides]
    text = (
        f"{format_percent(false[1])} of the quotes do not stand in the cited chunk, {format_percent(false[0])} before"
    )
    yield from give("false quotes", ramp(false[1] - false[0], LEAST_SHARE, 0.1), text, "output schema", "model")


def _share(side: Sequence[tuple[Trace, Citation]], test: Callable[[Trace, Citation], bool]) -> float:
    return fmean(test(trace, citation) for trace, citation in side) if side else 0.0


def _misquotes(trace: Trace, citation: Citation) -> bool:
    text = next((chunk.text for chunk in trace.chunks or () if chunk.id == citation.chunk), "")
    return citation.quote is not None and not quote_matches(citation.quote, text)


ANSWER_RULES = (
    _length_rules,
    _refusal_rules,
    _prompt_rules,
    _in_place_rules,
    _wording_rules,
    _time_rules,
    _citation_rules,
)
