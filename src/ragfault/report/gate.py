"""What a gate decided: for the terminal, for CI as JUnit XML, and as Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragfault.findings import Decision, Gate
from ragfault.findings.records import Drop
from ragfault.report.markdown import code, escape, table
from ragfault.report.plain import clean, interval, percent, rectifier
from ragfault.report.terminal import paint
from ragfault.report.wording import difference, losers, moved, named, p_value

__all__ = ["junit", "markdown", "properties", "terminal"]

STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}
SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "cannot tell": "❔ cannot tell"}


def terminal(gate: Gate, *, width: int | None = None, colour: bool = False) -> str:
    """The decisions one after the other, each with its reason, and the whole at the end."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = []
    for result, rule, reason in _told(gate):
        parts.append(Text.assemble((f"{result:<12}", STYLES[result]), (clean(rule), "bold")))
        parts.append(Padding(Text(clean(reason)), (0, 0, 0, 12)))
    parts += [Text(f"\n{line}" if not at else line) for at, line in enumerate(map(clean, _facts(gate)))]
    whole = f"{clean(gate.run)}: {gate.result}, {_count(gate)}"
    parts.append(Text(f"\n{whole}", style=STYLES[gate.result]))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def properties(gate: Gate) -> list[tuple[str, str]]:
    """The gate as names and texts, for whoever keeps properties of a test: the whole, then every decision."""
    found = [("ragfault run", clean(gate.run)), ("ragfault result", gate.result)]
    if gate.guarded is not None:
        found.append(("ragfault baseline", clean(gate.guarded.baseline)))
    return [*found, *((f"ragfault {clean(rule)}", f"{r}: {clean(why)}") for r, rule, why in _told(gate))]


def _told(gate: Gate) -> list[tuple[str, str, str]]:
    """Result, rule and reason of every bar and metric, in order."""
    bars = [(found.result, str(found.bar), found.reason) for found in gate.decisions]
    return [*bars, *((found.result, found.rule, _why(found)) for found in gate.drops)]


def _why(found: Drop) -> str:
    """The reason, and where a metric fails the traces that got worse most."""
    (_, movers), _ = losers(found.change)
    return f"{found.reason}; most on {named(movers)}" if found.result == "fail" and movers else found.reason


def _facts(gate: Gate) -> list[str]:
    """How the baseline was held against, and what to beware of."""
    found = gate.guarded
    right = [] if gate.rectification is None else [f"rectified by {rectifier(gate.rectification)}"]
    if found is None:
        return right
    alone = [
        f"{count:,} only in {name}"
        for count, name in zip(found.alone, (found.baseline, gate.run), strict=True)
        if count
    ]
    paired = ", ".join([f"{found.pairs:,} pairs of traces by {found.how}", *alone])
    terms = f"alpha {found.alpha:g}, power {found.power:g}, p corrected by Holm"
    beware = [f"beware: {text}" for text in found.warnings]
    return [*right, f"baseline {found.baseline}: {paired}; {terms}", *beware]


def _count(gate: Gate) -> str:
    """How many bars and metrics were decided how."""
    results = [result for result, _, _ in _told(gate)]
    counts = [f"{results.count(kind)} {kind}" for kind in STYLES if kind in results]
    kinds = ((len(gate.decisions), "bar"), (len(gate.drops), "metric"))
    what = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in kinds if number]
    return f"{', '.join(counts)} of {' and '.join(what)}"


def junit(gate: Gate) -> str:
    """The gate as JUnit XML: a bar or metric is a test case, failed a failure, one that cannot be told an error."""
    results = [result for result, _, _ in _told(gate)]
    numbers = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("cannot tell")),
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {"name": f"ragfault gate {_xml(gate.run)}", **numbers})
    if gate.guarded is not None:
        kept = SubElement(suite, "properties")
        facts = {"baseline": gate.guarded.baseline, "comparison": "; ".join(_facts(gate))}
        for name, value in facts.items():
            SubElement(kept, "property", {"name": name, "value": _xml(value)})
    layers = [*(item.aggregate.layer for item in gate.decisions), *(item.change.layer for item in gate.drops)]
    for (result, rule, reason), layer in zip(_told(gate), layers, strict=True):
        case = {"classname": f"ragfault.{layer}", "name": _xml(rule), "time": "0"}
        _outcome(SubElement(suite, "testcase", case), result, _xml(reason))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _outcome(case: Element, result: str, reason: str) -> None:
    if result == "pass":
        SubElement(case, "system-out").text = reason
        return
    kind = "failure" if result == "fail" else "error"
    SubElement(case, kind, {"type": result, "message": reason}).text = reason


def _xml(text: str) -> str:
    """A text of which every character may stand in XML."""
    return "".join(sign for sign in clean(text) if sign not in "\ufffe\uffff")


def markdown(gate: Gate) -> str:
    """The gate as GitHub-flavoured tables: one of the bars, one of the metrics beside the baseline."""
    lines = [f"### {SIGNS[gate.result]}: {escape(gate.run)}, {gate.traces:,} traces, {_count(gate)}"]
    if gate.decisions:
        lines += ["", *_bars(gate.decisions)]
    if gate.drops:
        lines += ["", *_drops(gate.drops)]
    for fact in _facts(gate):
        lines += ["", escape(fact)]
    return "\n".join(lines) + "\n"


def _bars(found: Iterable[Decision]) -> list[str]:
    rows = [
        (
            SIGNS[each.result],
            code(str(each.bar)),
            interval(each.aggregate.decided),
            f"{each.aggregate.scored:,}/{each.aggregate.traces:,} ({percent(each.coverage)})",
            escape(each.reason),
        )
        for each in found
    ]
    return table(("Result", "Bar", "Mean", "Scored:", "Why"), rows)


def _drops(found: Iterable[Drop]) -> list[str]:
    rows = [
        (
            SIGNS[each.result],
            code(each.rule),
            moved(each.change),
            difference(each.change),
            p_value(each.change),
            f"{each.change.n:,}",
            f"≈ {each.needed:,}" if each.needed else "",
            escape(_why(each)),
        )
        for each in found
    ]
    heads = (
        "Result",
        "Metric",
        "Baseline → candidate",
        "Difference",
        "Corrected p:",
        "Pairs:",
        "Needed:",
        "Why",
    )
    return table(heads, rows)
