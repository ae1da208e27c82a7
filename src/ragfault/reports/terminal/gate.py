"""Gate decisions for the terminal, as JUnit XML and as Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragfault.analysis import GateResult, ThresholdDecision
from ragfault.analysis.records import RegressionDecision
from ragfault.reports.comparison_text import format_change, format_means, format_movers, split_movers
from ragfault.reports.format import clean_text, describe_label_source
from ragfault.reports.markdown.scorecard import build_markdown_table, escape_markdown, format_code
from ragfault.reports.terminal.scorecard import render_rich
from ragfault.text.number_format import format_interval, format_p_value, format_percent

RESULT_STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}
RESULT_SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "cannot tell": "❔ cannot tell"}


def render_gate_terminal(gate: GateResult, *, width: int | None = None, color: bool = False) -> str:
    """The decisions one after the other, each with its reason, and the whole at the end."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = []
    for result, rule, reason in _list_decisions(gate):
        parts.append(Text.assemble((f"{result:<12}", RESULT_STYLES[result]), (clean_text(rule), "bold")))
        parts.append(Padding(Text(clean_text(reason)), (0, 0, 0, 12)))
    parts += [
        Text(f"\n{line}" if not at else line)
        for at, line in enumerate(map(clean_text, _describe_baseline(gate)))
    ]
    whole = f"{clean_text(gate.run)}: {gate.result}, {_count_results(gate)}"
    parts.append(Text(f"\n{whole}", style=RESULT_STYLES[gate.result]))
    return render_rich(parts, width=width or shutil.get_terminal_size((100, 24)).columns, color=color)


def list_gate_properties(gate: GateResult) -> list[tuple[str, str]]:
    """The gate as names and texts, for whoever keeps properties of a test: the whole, then every decision."""
    found = [("ragfault run", clean_text(gate.run)), ("ragfault result", gate.result)]
    if gate.regression is not None:
        found.append(("ragfault baseline", clean_text(gate.regression.baseline)))
    return [
        *found,
        *(
            (f"ragfault {clean_text(rule)}", f"{r}: {clean_text(why)}")
            for r, rule, why in _list_decisions(gate)
        ),
    ]


def _list_decisions(gate: GateResult) -> list[tuple[str, str, str]]:
    """Result, rule and reason of every bar and metric, in order."""
    bars = [(found.result, str(found.threshold), found.reason) for found in gate.decisions]
    return [*bars, *((found.result, found.rule, _explain_drop(found)) for found in gate.regression_decisions)]


def _explain_drop(drop: RegressionDecision) -> str:
    """The reason, and where a metric fails the traces that got worse most."""
    (_, movers), _ = split_movers(drop.change)
    return (
        f"{drop.reason}; most on {format_movers(movers)}" if drop.result == "fail" and movers else drop.reason
    )


def _describe_baseline(gate: GateResult) -> list[str]:
    """How the baseline was held against, and what to beware of."""
    found = gate.regression
    right = [] if gate.label_source is None else [f"rectified by {describe_label_source(gate.label_source)}"]
    if found is None:
        return right
    alone = [
        f"{count:,} only in {name}"
        for count, name in zip(found.unpaired, (found.baseline, gate.run), strict=True)
        if count
    ]
    paired = ", ".join([f"{found.pairs:,} pairs of traces by {found.paired_by}", *alone])
    terms = f"alpha {found.alpha:g}, power {found.power:g}, p corrected by Holm"
    beware = [f"beware: {text}" for text in found.warnings]
    return [*right, f"baseline {found.baseline}: {paired}; {terms}", *beware]


def _count_results(gate: GateResult) -> str:
    """How many bars and metrics were decided how."""
    results = [result for result, _, _ in _list_decisions(gate)]
    counts = [f"{results.count(kind)} {kind}" for kind in RESULT_STYLES if kind in results]
    kinds = ((len(gate.decisions), "bar"), (len(gate.regression_decisions), "metric"))
    what = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in kinds if number]
    return f"{', '.join(counts)} of {' and '.join(what)}"


def render_gate_junit(gate: GateResult) -> str:
    """The gate as JUnit XML: a bar or metric is a test case, failed a failure, one that cannot be told an error."""
    results = [result for result, _, _ in _list_decisions(gate)]
    numbers = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("cannot tell")),
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {"name": f"ragfault gate {_clean_xml(gate.run)}", **numbers})
    if gate.regression is not None:
        kept = SubElement(suite, "properties")
        facts = {"baseline": gate.regression.baseline, "comparison": "; ".join(_describe_baseline(gate))}
        for name, value in facts.items():
            SubElement(kept, "property", {"name": name, "value": _clean_xml(value)})
    layers = [
        *(item.aggregate.layer for item in gate.decisions),
        *(item.change.layer for item in gate.regression_decisions),
    ]
    for (result, rule, reason), layer in zip(_list_decisions(gate), layers, strict=True):
        case = {"classname": f"ragfault.{layer}", "name": _clean_xml(rule), "time": "0"}
        _add_outcome(SubElement(suite, "testcase", case), result, _clean_xml(reason))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_outcome(case: Element, result: str, reason: str) -> None:
    if result == "pass":
        SubElement(case, "system-out").text = reason
        return
    kind = "failure" if result == "fail" else "error"
    SubElement(case, kind, {"type": result, "message": reason}).text = reason


def _clean_xml(text: str) -> str:
    """A text of which every character may stand in XML."""
    return "".join(sign for sign in clean_text(text) if sign not in "\ufffe\uffff")


def render_gate_markdown(gate: GateResult) -> str:
    """The gate as GitHub-flavoured tables: one of the bars, one of the metrics beside the baseline."""
    lines = [
        f"### {RESULT_SIGNS[gate.result]}: {escape_markdown(gate.run)}, {gate.traces:,} traces, {_count_results(gate)}"
    ]
    if gate.decisions:
        lines += ["", *_build_threshold_table(gate.decisions)]
    if gate.regression_decisions:
        lines += ["", *_build_drop_table(gate.regression_decisions)]
    for fact in _describe_baseline(gate):
        lines += ["", escape_markdown(fact)]
    return "\n".join(lines) + "\n"


def _build_threshold_table(decisions: Iterable[ThresholdDecision]) -> list[str]:
    rows = [
        (
            RESULT_SIGNS[each.result],
            format_code(str(each.threshold)),
            format_interval(each.aggregate.decision_interval),
            f"{each.aggregate.scored:,}/{each.aggregate.traces:,} ({format_percent(each.coverage)})",
            escape_markdown(each.reason),
        )
        for each in decisions
    ]
    return build_markdown_table(("Result", "Bar", "Mean", "Scored:", "Why"), rows)


def _build_drop_table(drops: Iterable[RegressionDecision]) -> list[str]:
    rows = [
        (
            RESULT_SIGNS[each.result],
            format_code(each.rule),
            format_means(each.change),
            format_change(each.change),
            format_p_value(each.change.adjusted),
            f"{each.change.n:,}",
            f"≈ {each.needed:,}" if each.needed else "",
            escape_markdown(_explain_drop(each)),
        )
        for each in drops
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
    return build_markdown_table(heads, rows)
