"""A forest plot: the differences of metrics with their intervals, the zero line, and the margins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragfault.findings import Change
from ragfault.report.markup import Markup, label, tag
from ragfault.report.pieces import sign
from ragfault.report.plain import figure
from ragfault.report.wording import GLYPHS, difference, layered, signed, state, titled

__all__ = ["KINDS", "forest", "picture"]

KINDS = {"worse": "bad", "better": "good", "steady": "so", "cannot tell": "warn"}
"""What became of a metric → the tint of its sign."""

HEIGHT, EDGE = 26, 4
"""How high a row's drawing is, and the share of its width, in percent, that is left at its ends."""

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


def forest(changes: Sequence[Change], title: str) -> Markup | None:
    """The changes as rows of a figure on one scale; None where no difference is known.

    Each row says in words what its drawing shows, so that nothing hangs on seeing it.
    """
    known = [each for _, part in layered(changes) for each in part if each.difference is not None]
    if not known:
        return None
    reach = _reach(known)
    items = [
        tag(
            "li",
            tag("span", label(titled(change), 80), class_="forest-name"),
            _row(change, reach),
            tag("span", label(difference(change)), class_="figure forest-figure"),
            sign(GLYPHS[change.verdict], label(state(change)), KINDS[change.verdict]),
        )
        for change in known
    ]
    axis = tag(
        "li", tag("span", class_="forest-name"), _axis(reach), class_="forest-axis", aria_hidden="true"
    )
    said = (
        "Each line is the 95 % interval of candidate less baseline, its dot the mean; the upright line is no "
        "difference, and the band around it the margin within which a change does not matter."
    )
    return tag(
        "figure",
        tag("figcaption", title),
        tag("p", said, class_="note"),
        tag("ul", items, axis, class_="forest"),
    )


def picture(change: Change) -> str:
    """What the drawing of a change shows: where its interval lies against the margin and zero.

    >>> from ragfault.stats import Difference
    >>> found = Difference(-0.2, -0.3, -0.1, 0.05, 99.0, -0.2, 100, 100, "t")
    >>> picture(Change(metric="m", layer="retrieval", better="higher", state="dropped", baseline=0.9,
    ...     candidate=0.7, difference=found, p=0.001, adjusted=0.001, steadiness=1.0, margin=0.02,
    ...     detectable=None, needed=None, n=100))
    'm: the whole interval, −0.300 to −0.100, lies below the margin of 0.020'
    """
    found, margin = change.difference, change.margin
    if found is None:
        return f"{label(change.metric, 80)}: not known"
    if found.high < -margin or found.low > margin:
        where = f"lies {'below' if found.high < -margin else 'above'} the margin of"
    elif found.low >= -margin and found.high <= margin:
        where = "lies within the margin of"
    else:
        where = f"{'leaves out' if found.low > 0 or found.high < 0 else 'takes in'} zero and reaches over the margin of"
    ends = f"{signed(found.low)} to {signed(found.high)}"
    return f"{label(change.metric, 80)}: the whole interval, {ends}, {where} {figure(margin)}"


def _reach(changes: Sequence[Change]) -> float:
    """How far the scale goes to either side: over every finite end and margin, rounded up."""
    ends = [
        abs(end)
        for change in changes
        if change.difference is not None
        for end in (change.difference.low, change.difference.mean, change.difference.high, change.margin)
        if math.isfinite(end)
    ]
    most = max(ends, default=1.0) * 1.05
    step = _step(most)
    return math.ceil(round(most / step, 9)) * step


def _step(most: float) -> float:
    """The distance of the ticks, so that there are at most four to a side."""
    size = 10.0 ** max(0, math.ceil(math.log10(most))) if most > 4 else 1.0
    return next((step * size for step in STEPS if 4 * step * size >= most), size)


def _at(value: float, reach: float) -> float:
    """Where a value stands in the drawing, in percent of its width."""
    share = (min(reach, max(-reach, value)) + reach) / (2 * reach)
    return round(EDGE + (100 - 2 * EDGE) * share, 3)


def _row(change: Change, reach: float) -> Markup:
    """The drawing of one change; it is as wide as there is room, so that places across are in percent."""
    found = change.difference
    assert found is not None
    middle, zero = HEIGHT / 2, f"{_at(0, reach)}%"
    left, right = _at(found.low, reach), _at(found.high, reach)
    start, end = _at(-change.margin, reach), _at(change.margin, reach)
    said, kind = picture(change), KINDS[change.verdict]
    return tag(
        "svg",
        tag("title", said),
        tag("rect", class_="margin", x=f"{start}%", y=0, width=f"{round(end - start, 3)}%", height=HEIGHT),
        tag("line", class_="zero", x1=zero, x2=zero, y1=0, y2=HEIGHT),
        tag("line", class_=f"reach {kind}", x1=f"{left}%", x2=f"{right}%", y1=middle, y2=middle),
        [_end(value, place, kind) for value, place in ((found.low, left), (found.high, right))],
        tag("circle", class_=f"mean {kind}", cx=f"{_at(found.mean, reach)}%", cy=middle, r=4),
        height=HEIGHT,
        role="img",
        aria_label=said,
    )


def _end(end: float, place: float, kind: str) -> Markup:
    """The end of an interval: a stroke, or an arrow where it goes on for ever."""
    middle = HEIGHT / 2
    if math.isfinite(end):
        x = f"{place}%"
        return tag("line", class_=f"reach {kind}", x1=x, x2=x, y1=middle - 4, y2=middle + 4)
    side = 6 if end > 0 else -6
    points = f"{side},{middle} 0,{middle - 5} 0,{middle + 5}"
    arrow = tag("polygon", class_=f"mean {kind}", points=points)
    return tag("svg", arrow, x=f"{place}%", overflow="visible", aria_hidden="true")


def _axis(reach: float) -> Markup:
    """The scale below the rows."""
    step = _step(reach)
    count = round(reach / step)
    marks = []
    for at in range(-count, count + 1):
        x, text = f"{_at(at * step, reach)}%", f"{at * step:+g}" if at else "0"
        marks.append(tag("line", class_="zero", x1=x, x2=x, y1=0, y2=4))
        marks.append(tag("text", text.replace("-", "−"), x=x, y=17, text_anchor="middle"))
    return tag("svg", marks, height=20, aria_hidden="true")
