"""Comparisons and bisections in words and figures, for every report alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragfault.findings import Bisection, Change, Comparison, Fault, Mover, Ruling, Telling
from ragfault.report.plain import LAYERS, clean, clip, figure, percent, plural, rectifier, width
from ragfault.stats import Difference

__all__ = [
    "GLYPHS",
    "OUTCOMES",
    "STATES",
    "aside",
    "difference",
    "evidence",
    "facts",
    "fell",
    "joint",
    "layered",
    "lead",
    "losers",
    "moved",
    "moves",
    "named",
    "p_value",
    "reason",
    "rectified",
    "segment",
    "signed",
    "state",
    "summary",
    "terms",
    "titled",
    "unmeasured",
    "whole",
    "worse",
]

STATES = {"worse": "red", "better": "green", "steady": "", "cannot tell": "yellow"}
"""What became of a metric → its colour in a terminal."""

GLYPHS = {"worse": "▼", "better": "▲", "steady": "=", "cannot tell": "?"}
"""The same as signs, so that colour is never the only one."""

OUTCOMES = {
    "fault": ("✗", "red"),
    "ruled out": ("✓", "green"),
    "cannot tell": ("?", "yellow"),
    "not reached": ("·", "dim"),
    "not measured": ("–", "dim"),
}
"""What became of a branch of the tree → its sign, and its colour in a terminal."""

NAMED = 3
"""How many winners and losers of a metric are named."""


def segment(name: str | None) -> str:
    """A segment's name, short and clean."""
    return "(none)" if name is None else clip(name, 60)


def titled(change: Change) -> str:
    """A metric, with a sign where lower is better."""
    return clean(change.metric) + (" ↓" if change.better == "lower" else "")


def moved(change: Change) -> str:
    """The means of a metric: `0.812 → 0.644`."""
    if change.baseline is None or change.candidate is None:
        return "–"
    return f"{figure(change.baseline)} → {figure(change.candidate)}"


def difference(change: Change) -> str:
    """Candidate less baseline with its interval: `−0.168 [−0.240, −0.096]`."""
    return _ends(change.difference)


def _ends(found: Difference | None) -> str:
    return "–" if found is None else f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]"


def rectified(found: Comparison) -> list[str]:
    """By whose labels differences were rectified, each with what it rests on, or why it stands as judged."""
    names = found.baseline, found.candidate
    made = zip(found.rectification, names, strict=True)
    by = [rectifier(each, name) for each, name in made if each is not None]
    return [f"rectified by {'; '.join(by)}", *map(_rectified, found.changes)] if by else []


def _rectified(change: Change) -> str:
    put = change.rectified
    name = clean(change.metric)
    if change.judged is None or put is None:
        return f"{name} stands as judged: {'it was not labelled' if put is None else put.reason}"
    labels, what = change.weighed
    return (
        f"{name} {difference(change)} by {labels:,} {what}{width(put.gain)}; as judged {_ends(change.judged)}"
    )


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(0.25), signed(-0.25), signed(0.0)
    ('+0.250', '−0.250', '0.000')
    """
    return f"{'+' if value > 0 else ''}{figure(value)}"


def p_value(change: Change) -> str:
    """The corrected p of a change."""
    if change.adjusted is None:
        return "–"
    return "<0.001" if change.adjusted < 0.001 else f"{change.adjusted:.3f}"


def state(change: Change) -> str:
    """What became of a metric, in words: worse, better, steady, or how many pairs would tell."""
    if change.same:
        return "steady (same chunks)"
    if change.verdict != "cannot tell":
        return change.verdict
    if not change.n:
        return "not measured on both sides"
    return f"cannot tell (n ≈ {change.needed:,})" if change.needed else "cannot tell"


def aside(change: Change) -> str:
    """Pairs that have a value on one side only, and those lost to failures."""
    parts = [
        f"{count:,} {words}"
        for count, words in (
            (change.lost[0], "only before"),
            (change.lost[1], "only after"),
            (sum(change.failed), "failed"),
        )
        if count
    ]
    return ", ".join(parts)


def evidence(change: Change) -> str:
    """By how much a change shows a fault: `−0.168 [−0.240, −0.096] on 103 pairs, p 0.004`."""
    return f"{difference(change)} on {change.n:,} pairs, p {p_value(change)}"


def fell(found: Telling) -> str:
    """The values of a telling trace: `1.000 → 0.300`."""
    return f"{figure(found.baseline)} → {figure(found.candidate)}"


def reason(ruling: Ruling) -> str:
    """Why a branch was taken or not."""
    return re.sub(r"(?<= )-(?=\d)", "−", clean(ruling.why))


def layered(changes: Sequence[Change]) -> list[tuple[str, list[Change]]]:
    """The changes that are measured on some pair, by layer in the order of reports."""
    found = [(layer, [each for each in changes if each.layer == layer and each.n]) for layer in LAYERS]
    return [(layer, part) for layer, part in found if part]


def unmeasured(changes: Iterable[Change]) -> list[str]:
    """The metrics without a pair that is scored on both sides."""
    return [clean(change.metric) for change in changes if not change.n]


def worse(changes: Iterable[Change]) -> list[Change]:
    """The changes for the worse, the surest first."""
    found = [change for change in changes if change.verdict == "worse"]
    return sorted(found, key=lambda change: 1.0 if change.p is None else change.p)


def losers(change: Change) -> tuple[tuple[int, tuple[Mover, ...]], tuple[int, tuple[Mover, ...]]]:
    """The traces that got worse and those that got better, each with their number."""
    sides = (change.fell, change.drops), (change.rose, change.gains)
    return sides if change.better == "higher" else (sides[1], sides[0])


def named(movers: Sequence[Mover]) -> str:
    """Traces that moved, each with its values."""
    return ", ".join(
        f"{clip(each.trace, 60)} ({figure(each.baseline)} → {figure(each.candidate)})"
        for each in movers[:NAMED]
    )


def moves(change: Change) -> str:
    """Losers and winners of a metric in a line."""
    (lost, losing), (won, winning) = losers(change)
    parts = [
        f"{plural(count)} {word}: {named(some)}{' …' if count > NAMED else ''}"
        for count, word, some in ((lost, "worse", losing), (won, "better", winning))
        if count
    ]
    return "; ".join(parts)


def facts(found: Comparison) -> list[str]:
    """How the runs were paired, and what is the same in both."""
    names = clip(found.baseline, 60), clip(found.candidate, 60)
    total = found.manifests[0].traces
    whole = found.pairs + found.alone[0] == total
    share = f" ({percent(found.pairs / total)})" if total else ""
    paired = f"{found.pairs:,} of {total:,} traces of {names[0]} paired by {found.how}{share}"
    if not whole:
        paired = f"{found.pairs:,} pairs by {found.how}"
    alone = [f"{count:,} only in {name}" for count, name in zip(found.alone, names, strict=True) if count]
    same = [
        f"the very same {what} on {'every pair' if count == found.pairs else f'{count:,}'}"
        for count, what in ((found.same_chunks, "chunks"), (found.same_answers, "answers"))
        if count
    ]
    return [paired, *(alone if whole else []), *same]


def terms(found: Comparison) -> str:
    """On what terms the changes were told."""
    return f"alpha {found.alpha:.3g}, power {found.power:.3g}, p corrected by Holm"


def whole(found: Comparison) -> str:
    """The comparison in a sentence: how many metrics got worse, better, stayed, or cannot be told."""
    measured = [change for change in found.changes if change.n]
    parts = []
    for verdict in STATES:
        these = [clean(change.metric) for change in measured if change.verdict == verdict]
        if these:
            listed = (
                f" ({', '.join(these[:4])}{', …' if len(these) > 4 else ''})" if verdict == "worse" else ""
            )
            parts.append(f"{len(these)} {verdict}{listed}")
    count = f"{len(measured)} metric{'' if len(measured) == 1 else 's'}"
    return f"{count} on {found.pairs:,} paired traces: {', '.join(parts) or 'nothing measured'}"


def lead(found: Bisection | Fault) -> str:
    """The verdict in a sentence, or a fault in a title."""
    if isinstance(found, Bisection):
        return clean(found.sentence)
    sure = "" if found.certain else " (on the traces whose retrieval did not get worse)"
    return f"{found.layer.capitalize()}: {clean(found.title)}{sure}"


def summary(parts: Sequence[tuple[str, Bisection]], by: str) -> str:
    """The verdicts of all segments in a sentence."""
    kinds = [found.verdict for _, found in parts]
    words = (("fault", "at fault"), ("cannot tell", "cannot be told"), ("no fault", "without fault"))
    told = [f"{kinds.count(kind)} {word}" for kind, word in words if kind in kinds]
    count = f"{len(kinds)} segment{'' if len(kinds) == 1 else 's'}"
    return f"Of {count} by {clean(by)}: {', '.join(told)}."


def joint(parts: Iterable[Bisection]) -> str:
    """The verdict over several bisections: a fault where any has one, else "cannot tell" where any cannot."""
    kinds = {found.verdict for found in parts}
    return next((kind for kind in ("fault", "cannot tell") if kind in kinds), "no fault")
