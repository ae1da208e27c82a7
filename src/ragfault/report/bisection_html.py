"""A bisection as one self-contained page: the verdict, the faults, the tree, the differences, the traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragfault.findings import Bisection, Change, Comparison, Fault, Ruling, Telling
from ragfault.report.bisection import Parts
from ragfault.report.forest import KINDS, forest
from ragfault.report.markup import Markup, Node, label, tag
from ragfault.report.pieces import scroll, sign
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy
from ragfault.report.wording import (
    GLYPHS,
    OUTCOMES,
    aside,
    difference,
    evidence,
    facts,
    fell,
    joint,
    layered,
    lead,
    moved,
    p_value,
    reason,
    rectified,
    segment,
    state,
    summary,
    terms,
    titled,
    unmeasured,
)

__all__ = ["render_bisection", "write_bisection"]

TINTS = {"fault": "bad", "no fault": "good", "cannot tell": "warn"}
"""The verdict → its tint."""

SIGNS = {"fault": "✗", "no fault": "✓", "cannot tell": "?"}
DOTS = {
    "fault": "bad",
    "ruled out": "good",
    "cannot tell": "warn",
    "not reached": "none",
    "not measured": "none",
}


def write_bisection(found: Bisection | Parts, path: str | Path, *, by: str = "", force: bool = False) -> Path:
    """Write a bisection, or those of segments, as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.
    """
    return save(path, render_bisection(found, by=by), force=force)


def render_bisection(found: Bisection | Parts, *, by: str = "") -> str:
    """A bisection as one HTML page; of several segments (divided `by` a field) each has a part of its own."""
    whole = isinstance(found, Bisection)
    first = found if isinstance(found, Bisection) else found[0][1]
    made = first.comparison
    style, script = carried("page.css", "bisection.css"), carried("theme.js", "bisection.js")
    names = f"{label(made.baseline, 80)} → {label(made.candidate, 80)}"
    return fill(
        carried("bisection.html"),
        policy=policy(script, style),
        title=tag("title", f"{names} – ragfault bisection"),
        name=tag("bdi", names),
        style=style,
        script=script,
        head=_head(made),
        nav=_nav(found, by),
        body=_single(first) if whole else _several(found, by),  # type: ignore[arg-type]
    )


def _head(made: Comparison) -> Markup:
    """What was compared, when each was made, and by whom they were judged."""
    old, new = made.manifests
    sides = ((made.baseline, old), (made.candidate, new))
    rows: list[tuple[str, Node]] = [
        (what, f"{label(name, 60)}, {run.traces:,} traces, {_moment(run.created)}")
        for what, (name, run) in zip(("Baseline", "Candidate"), sides, strict=True)
    ]
    judges = [tag("code", label(name, 160) or "none") for name in dict.fromkeys((old.judge, new.judge))]
    rows += [("Judge", [judges[0], *([" → ", judges[1]] if judges[1:] else [])]), ("Terms", terms(made))]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", text)) for name, text in rows], class_="run")


def _moment(text: str) -> str:
    """A time to the minute, in UTC as runs write it."""
    return f"{label(text, 40)[:16].replace('T', ' ')} UTC"


def _nav(found: Bisection | Parts, by: str) -> Markup:
    if isinstance(found, Bisection):
        links = [
            ("verdict", "Verdict"),
            ("tree", "Tree"),
            ("differences", "Differences"),
            ("changes", "Table"),
        ]
        links[1:1] = [("faults", "Faults")] if found.faults else []
    else:
        links = [("verdict", "Verdict")]
        links += [
            (f"segment-{at}", f"{label(by, 40)} {label(segment(name), 40)}")
            for at, (name, _) in enumerate(found)
        ]
    return tag("nav", [tag("a", text, href=f"#{name}") for name, text in links], aria_label="Sections")


def _verdict(verdict: str, sentence: str, *more: Node) -> Markup:
    """The verdict on top, in one sentence."""
    box = tag(
        "div",
        tag("p", tag("span", SIGNS[verdict], aria_hidden="true"), f" {verdict}", class_="word"),
        tag("p", label(sentence, 1200), class_="sentence"),
        class_=f"verdict {TINTS[verdict]}",
    )
    return tag("section", tag("h2", "Verdict"), box, *more, id="verdict", tabindex=-1)


def _pairing(made: Comparison) -> list[Markup]:
    """How the runs were paired, and what keeps them from being fully comparable."""
    warned = [tag("li", sign("▲", "warning", "warn"), f" {label(text, 600)}") for text in made.warnings]
    paired = tag("p", label("; ".join(facts(made)), 600), ".", class_="paired")
    right = [tag("li", label(text, 600)) for text in rectified(made)]
    lists = [
        tag("ul", each, class_=name) for each, name in ((warned, "warnings"), (right, "evidence")) if each
    ]
    return [paired, *lists]


def _single(found: Bisection) -> Markup:
    """The sections of one bisection."""
    made = found.comparison
    parts = [_verdict(found.verdict, lead(found), *_pairing(made))]
    if found.faults:
        faults = [_fault(fault, 3) for fault in found.faults]
        parts.append(tag("section", tag("h2", "Faults"), faults, id="faults"))
    tree = tag(
        "section", tag("h2", "The tree as it was walked"), _tree(found.tree), _clues(found, 3), id="tree"
    )
    drawn = forest(made.changes, "Candidate less baseline") or tag(
        "p", "No difference is known.", class_="empty"
    )
    parts += [tree, tag("section", tag("h2", "Differences"), drawn, id="differences")]
    parts.append(tag("section", tag("h2", "The metrics of the tree"), _table(made), id="changes"))
    return Markup("\n".join(parts))


def _several(found: Parts, by: str) -> Markup:
    """A line for each segment, then each in full."""
    rows = [
        tag(
            "tr",
            tag("th", tag("a", label(segment(name), 60), href=f"#segment-{at}"), scope="row"),
            tag("td", sign(SIGNS[each.verdict], each.verdict, TINTS[each.verdict])),
            tag("td", label(lead(each), 1200)),
        )
        for at, (name, each) in enumerate(found)
    ]
    heads = tag("tr", [tag("th", text, scope="col") for text in (label(by, 40), "verdict", "in a sentence")])
    listed = scroll(
        tag("table", tag("thead", heads), tag("tbody", rows), class_="segments-table"), "of segments"
    )
    verdict = joint(each for _, each in found)
    parts = [_verdict(verdict, summary(found, by), listed)]
    for at, (name, each) in enumerate(found):
        parts.append(
            tag(
                "section",
                tag("h2", f"{label(by, 40)} {label(segment(name), 60)}"),
                tag(
                    "p",
                    sign(SIGNS[each.verdict], each.verdict, TINTS[each.verdict]),
                    f" {label(lead(each), 1200)}",
                ),
                _pairing(each.comparison),
                [_fault(fault, 3) for fault in each.faults],
                tag("h3", "The tree as it was walked"),
                _tree(each.tree),
                tag("h3", "Differences"),
                forest(each.comparison.changes, "Candidate less baseline"),
                id=f"segment-{at}",
            )
        )
    return Markup("\n".join(parts))


def _fault(fault: Fault, level: int) -> Markup:
    """A fault: its evidence, what to look at and why, what mends it, and the traces that show it."""
    shown = [
        tag(
            "li",
            sign(GLYPHS[each.verdict], each.verdict, KINDS[each.verdict]),
            f" {label(titled(each), 80)} {evidence(each)}",
        )
        for each in fault.evidence
    ]
    because = [tag("li", label(clue.text, 300)) for clue in fault.clues]
    cards: list[Node] = [
        _card(level, "Look at", tag("ol", [tag("li", label(each)) for each in fault.suspects])),
        _card(level, "Because", tag("ul", because)) if because else None,
        _card(level, "To mend it", tag("ul", [tag("li", label(each)) for each in fault.remedies])),
    ]
    return tag(
        "article",
        tag(f"h{level}", label(lead(fault), 300)),
        tag(
            "p",
            f"Branch {label(fault.branch, 80)} of the tree. The evidence, by gold first:",
            class_="note",
        ),
        tag("ul", shown, class_="evidence"),
        tag("div", cards, class_="cards"),
        [
            tag(f"h{level + 1}", "The traces that show it best, before and after"),
            [_telling(each) for each in fault.telling],
        ]
        if fault.telling
        else None,
        class_="fault",
    )


def _card(level: int, title: str, body: Markup) -> Markup:
    return tag("div", tag(f"h{level + 1}", title), body, class_="card")


def _telling(found: Telling) -> Markup:
    """A trace, with what stood there before and what stands there after."""
    values = f"{label(found.metric, 80)} {fell(found)}"
    sides = [
        tag(
            "div",
            tag("p", word, class_="note"),
            tag("p", _body(text), class_="text", dir="auto"),
            class_="side",
        )
        for word, text in (("before", found.before), ("after", found.after))
    ]
    return tag(
        "div",
        tag(
            "p",
            tag("strong", tag("bdi", label(found.trace, 120))),
            " ",
            tag("span", values, class_="note figure"),
        ),
        tag("p", label(found.query, 400), dir="auto"),
        tag("div", sides, class_="pair"),
        class_="telling",
    )


def _body(text: str | None) -> str:
    """A text of several lines, made visible line by line."""
    if not text:
        return "– nothing –"
    return "\n".join(label(part, 2000) for part in text.splitlines())


def _tree(rulings: Sequence[Ruling]) -> Markup:
    """The branches in order, each with what became of it and why."""
    items = [
        tag(
            "li",
            tag("span", OUTCOMES[each.outcome][0], class_="dot", aria_hidden="true"),
            tag("b", label(each.branch, 80)),
            sign(OUTCOMES[each.outcome][0], each.outcome, DOTS[each.outcome]),
            tag("span", f" {label(each.layer, 40)}", class_="note"),
            tag("p", label(reason(each), 600), class_="why"),
            class_=DOTS[each.outcome],
        )
        for each in rulings
    ]
    return tag("ol", items, class_="tree")


def _clues(found: Bisection, level: int) -> list[Markup]:
    """The circumstances in which the runs differ."""
    if not found.clues:
        return []
    rows = [
        tag("li", label(clue.text, 300), tag("span", f" → {', '.join(clue.suspects)}", class_="note"))
        for clue in found.clues
    ]
    return [
        tag(f"h{level}", "Circumstances in which the runs differ"),
        tag("ul", rows, class_="evidence"),
    ]


def _table(made: Comparison) -> Markup:
    """The changes in figures, by layer."""
    heads = (
        "metric",
        "baseline → candidate",
        "difference, 95 % interval",
        "margin",
        "p",
        "",
        "n",
        "needed",
        "one side only",
    )
    top = tag("tr", [tag("th", head or tag("span", "state", class_="hidden"), scope="col") for head in heads])
    changes = [change for _, part in layered(made.changes) for change in part]
    table = tag(
        "table", tag("thead", top), tag("tbody", [_cells(each) for each in changes]), class_="changes"
    )
    silent = unmeasured(made.changes)
    note = f"Not measured on both sides: {label(', '.join(silent), 600)}." if silent else None
    return tag(
        "div", scroll(table, "of the metrics of the tree"), tag("p", note, class_="note") if note else None
    )


def _cells(change: Change) -> Markup:
    figures = [
        moved(change),
        difference(change),
        f"{change.margin:g}",
        p_value(change),
    ]
    return tag(
        "tr",
        tag("th", label(titled(change), 80), scope="row"),
        [tag("td", text, class_="figure") for text in figures],
        tag("td", sign(GLYPHS[change.verdict], label(state(change).split(" (n")[0]), KINDS[change.verdict])),
        tag("td", f"{change.n:,}", class_="figure"),
        tag("td", f"{change.needed:,}" if change.needed else "", class_="figure"),
        tag("td", aside(change)),
    )
