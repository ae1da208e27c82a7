"""What a gate decided: for the terminal, for CI as JUnit XML, and as Markdown."""

from __future__ import annotations

import shutil
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragfault.findings import Decision, Gate
from ragfault.report.markdown import code, escape, table
from ragfault.report.plain import clean, interval, percent
from ragfault.report.terminal import paint

__all__ = ["junit", "markdown", "terminal"]

STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}
SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "cannot tell": "❔ cannot tell"}


def terminal(gate: Gate, *, width: int | None = None, colour: bool = False) -> str:
    """The decisions one after the other, each with its reason, and the whole at the end."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = []
    for found in gate.decisions:
        parts.append(
            Text.assemble((f"{found.result:<12}", STYLES[found.result]), (clean(str(found.bar)), "bold"))
        )
        parts.append(Padding(Text(clean(found.reason)), (0, 0, 0, 12)))
    whole = f"{clean(gate.run)}: {gate.result}, {_count(gate)}"
    parts.append(Text(f"\n{whole}", style=STYLES[gate.result]))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def _count(gate: Gate) -> str:
    """How many bars were decided how."""
    results = [found.result for found in gate.decisions]
    counts = [f"{results.count(kind)} {kind}" for kind in STYLES if kind in results]
    return f"{', '.join(counts)} of {len(results)} bars"


def junit(gate: Gate) -> str:
    """The gate as JUnit XML: a bar is a test case, a failed bar a failure, one that cannot be told an error."""
    results = [found.result for found in gate.decisions]
    numbers = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("cannot tell")),
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {"name": f"ragfault gate {_xml(gate.run)}", **numbers})
    for found in gate.decisions:
        case = {"classname": f"ragfault.{found.aggregate.layer}", "name": _xml(str(found.bar)), "time": "0"}
        _outcome(SubElement(suite, "testcase", case), found)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _outcome(case: Element, found: Decision) -> None:
    reason = _xml(found.reason)
    if found.result == "pass":
        SubElement(case, "system-out").text = reason
        return
    kind = "failure" if found.result == "fail" else "error"
    SubElement(case, kind, {"type": found.result, "message": reason}).text = reason


def _xml(text: str) -> str:
    """A text of which every character may stand in XML."""
    return "".join(sign for sign in clean(text) if sign not in "\ufffe\uffff")


def markdown(gate: Gate) -> str:
    """The gate as a GitHub-flavoured table."""
    rows = [
        (
            SIGNS[found.result],
            code(str(found.bar)),
            interval(found.aggregate.interval),
            f"{found.aggregate.scored:,}/{found.aggregate.traces:,} ({percent(found.coverage)})",
            escape(found.reason),
        )
        for found in gate.decisions
    ]
    lines = [
        f"### {SIGNS[gate.result]}: {escape(gate.run)}, {gate.traces:,} traces, {_count(gate)}",
        "",
        *table(("Result", "Bar", "Mean", "Scored:", "Why"), rows),
    ]
    return "\n".join(lines) + "\n"
