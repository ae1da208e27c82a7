"""Plain words and figures for reports: texts of traces made harmless, numbers made short."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ragfault.findings import KINDS, Aggregate, Correction, Diagnosis, Rectification, Result, Scorecard
from ragfault.stats import Corrected, Interval, Rectified

__all__ = [
    "CORRECTED",
    "LAYERS",
    "RESULTS",
    "beside",
    "by_layer",
    "clean",
    "clip",
    "corrections",
    "errors",
    "figure",
    "interval",
    "kinds",
    "lost",
    "named",
    "notes",
    "percent",
    "plural",
    "rectifier",
    "righted",
    "silent",
    "told",
    "why",
    "width",
]

LAYERS = {
    "retrieval": "Retrieval",
    "generation": "Generation",
    "crosscut": "Across the layers",
    "operation": "Operation",
}
"""The layers in the order of reports, in words."""

RESULTS: dict[Result, str] = {"pass": "met", "fail": "missed", "cannot tell": "cannot tell"}
"""How a target stands, in words."""

PICKED = 0.001
"""The p below which labelled traces are said not to be drawn at random."""

CORRECTED = "corrected for the judge's error"
RECTIFIED = "rectified by labels"
"""The headings of figures that are."""

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, strings
    r"|\x1b[ -/]*[0-~]?"
)
_HIDDEN = {"Cc", "Cf", "Cs"}
_JOINERS = "\u200c\u200d"


def clean(text: str) -> str:
    """A text without terminal sequences, control and invisible characters, on one line.

    >>> clean("\\x1b[31mred\\x1b[0m\\nand \\u202etricky")
    'red and tricky'
    """
    text = " ".join(_ESCAPE.sub("", text).split())
    shown = [sign for sign in text if sign in _JOINERS or unicodedata.category(sign) not in _HIDDEN]
    return " ".join("".join(shown).split())


def clip(text: str, size: int) -> str:
    """A clean text of at most `size` characters.

    >>> clip("The last ferry leaves at 22:40.", 12)
    'The last fe…'
    """
    text = clean(text)
    return text if len(text) <= size else text[: size - 1].rstrip() + "…"


def figure(value: float) -> str:
    """A number as short as it can be and still be read.

    >>> [figure(value) for value in (0.8125, 12.345, 2300.4, math.inf)]
    ['0.812', '12.3', '2,300', '∞']
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    text = f"{value:.3f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"
    return text.replace("-", "−")


def percent(value: float) -> str:
    """A share in percent; what is not all is never called 100 %, nor what is something 0 %.

    >>> percent(0.9999), percent(0.25)
    ('99.9 %', '25 %')
    """
    if 0 < value <= 0.005 or 0.995 <= value < 1:
        return f"{min(max(100 * value, 0.1), 99.9):.1f} %"
    return f"{100 * value:.0f} %"


def plural(traces: int) -> str:
    """A number of traces in words.

    >>> plural(1), plural(2500)
    ('1 trace', '2,500 traces')
    """
    return f"{traces:,} trace{'' if traces == 1 else 's'}"


def interval(found: Interval | None) -> str:
    """A mean with its interval: `0.812 [0.701, 0.923]`."""
    if found is None:
        return "–"
    return f"{figure(found.mean)} [{figure(found.low)}, {figure(found.high)}]"


def beside(card: Scorecard) -> str | None:
    """What the figures that stand beside those as judged are; None where there are none."""
    return CORRECTED if card.correction else RECTIFIED if card.rectification else None


def corrections(card: Scorecard) -> list[tuple[Aggregate, str]]:
    """The metrics that are corrected, or rectified, each with its figures, or why it has none."""
    found: list[tuple[Aggregate, Corrected | Rectified | None]] = [
        (item, item.corrected or item.rectified) for item in card.aggregates
    ]
    return [
        (item, f"{interval(each.interval)}{righted(each)}" if each.interval else f"– ({each.reason})")
        for item, each in found
        if each is not None
    ]


def righted(found: Corrected | Rectified) -> str:
    """By how many labels a figure was rectified, and what that does to its interval."""
    if isinstance(found, Corrected):
        return ""
    return f" ({found.labelled:,} labels{width(found.gain)})"


def width(gain: float | None) -> str:
    """The width of a rectified interval beside that of the labels alone."""
    return "" if gain is None else f", {gain:.2f} × the width by labels alone"


def rectifier(found: Rectification, run: str = "") -> str:
    """By whom figures were rectified: `ann, 60 traces`."""
    of = f" of {clip(run, 60)}" if run else ""
    return f"{clip(found.by, 120)}, {plural(found.traces)}{of}"


def notes(card: Scorecard) -> list[str]:
    """What the figures beside those as judged rest on, in sentences."""
    if card.correction is not None:
        return errors(card.correction)
    if card.rectification is None:
        return []
    return [
        f"By {rectifier(card.rectification)}. The judge's mean over all traces, put right by how it differs from the "
        "labels (PPI++): this assumes that the labelled traces are a random draw of all. Targets are decided on "
        "the rectified figures; metrics without labels stand as judged.",
        *_picked(card),
    ]


def _picked(card: Scorecard) -> list[str]:
    """A warning where the labelled traces are not like the others."""
    each = [(item.metric, item.rectified.drawn) for item in card.aggregates if item.rectified]
    found = [metric for metric, p in each if p is not None and p < PICKED]
    if not found:
        return []
    return [
        f"Beware: by {named(found)} the judge has the labelled traces otherwise than all (p < {PICKED:g}). They do not "
        "look like a random draw, and then the rectified figures can be wrong."
    ]


def errors(found: Correction) -> list[str]:
    """What figures were corrected by, and what that assumes, in sentences."""
    lines = [
        f"By the card of {clean(found.judge)}, {each.corrects} verdicts: sensitivity {interval(each.sensitivity)} "
        f"on {each.sensitivity.n:,}, specificity {interval(each.specificity)} on {each.specificity.n:,}, "
        f"measured on {clean(each.set)} ({each.shape}; {clean(each.split)}); positive is what is bad."
        for each in found.figures
        if each.sensitivity and each.specificity
    ]
    return [
        *lines,
        "The correction assumes that the judge errs here as it did on those labelled data; on answers of another shape "
        "the corrected figures can be further off than those as judged. Targets are decided on the figures as judged; "
        "metrics that are not a rate of one kind of verdict stand as judged.",
    ]


def silent(card: Scorecard) -> list[tuple[str, list[str]]]:
    """The metrics that have no value on any trace, gathered by the commonest reason."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for found in card.aggregates:
        if found.interval is None:
            groups[why(found) or "no trace"].append(found.metric)
    return list(groups.items())


def lost(card: Scorecard) -> list[tuple[str, list[str]]]:
    """The failures of metrics that have a value on other traces, gathered by reason, the commonest first."""
    groups: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for found in card.aggregates:
        for reason in found.why_failed if found.interval is not None else ():
            groups[clip(reason.text, 200)][found.metric] = reason.count
    ordered = sorted(groups.items(), key=lambda group: -sum(group[1].values()))
    return [
        (reason, [f"{metric} ×{count:,}" for metric, count in counts.items()]) for reason, counts in ordered
    ]


def why(found: Aggregate) -> str:
    """The commonest reason for scores without a value; a failure goes before what is merely undefined."""
    reasons = found.why_failed or found.why_undefined
    lost = "failed: " if found.why_failed else ""
    return f"{lost}{clip(reasons[0].text, 200)}" if reasons else ""


def kinds(found: Diagnosis) -> list[tuple[str, int, str]]:
    """The problems of a trace by kind: the kind in words, how many, and the first with its reason."""
    counts = Counter(problem.kind for problem in found.problems)
    lines = []
    for kind, count in counts.items():
        first = next(problem for problem in found.problems if problem.kind == kind)
        text = clip(first.text, 160)
        lines.append(
            (KINDS[kind].title, count, f"{text} ({clip(first.reason, 120)})" if first.reason else text)
        )
    return lines


def named(items: Iterable[str]) -> str:
    """Names in a row, each clean.

    >>> named(["t1", "t2"])
    't1, t2'
    """
    return ", ".join(clip(item, 60) for item in items)


def by_layer(card: Scorecard) -> list[tuple[str, Sequence[Aggregate]]]:
    """The metrics that have a value, by layer in the order of reports."""
    return [
        (layer, found)
        for layer in LAYERS
        if (found := [item for item in card.aggregates if item.layer == layer and item.interval])
    ]


def told(card: Scorecard) -> set[str]:
    """The metrics shown for each segment: those with a target, and the triad's parts."""
    return {
        item.metric
        for item in card.aggregates
        if item.interval
        and (item.target or item.metric in ("context_relevance", "groundedness", "answer_relevance"))
    }
