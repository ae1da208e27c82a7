"""Gate decisions for the terminal, as JUnit XML and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragfault.comparison.gate.records import GateResult, RegressionDecision, ThresholdDecision
from ragfault.comparison.records import describe_dependence
from ragfault.report.format import clean_text, describe_label_source
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown, format_code
from ragfault.report.terminal.layout import render_rich
from ragfault.report.terminal.scorecard import RESULT_STYLES
from ragfault.report.wording import format_change, format_means, format_movers, split_movers
from ragfault.text.number_format import format_interval, format_p_value, format_percent

RESULT_SIGNS = {"pass": "✅ pass", "fail": "❌ fail", "cannot tell": "❔ cannot tell"}


def render_gate_terminal(gate: GateResult, *, width: int | None = None, color: bool = False) -> str:
    """Render the decisions one after the other, each with its reason, below the result."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Text | Padding] = [Text(summarize_gate(gate), style=RESULT_STYLES[gate.result])]
    parts += [*(Text(f"beware: {clean_text(text)}") for text in gate.warnings), Text("")]
    for result, rule, reason in _list_decisions(gate):
        parts.append(Text.assemble((f"{result:<12}", RESULT_STYLES[result]), (clean_text(rule), "bold")))
        parts.append(Padding(Text(clean_text(reason)), (0, 0, 0, 12)))
    parts += [Text(f"\n{line}" if not i else line) for i, line in enumerate(map(clean_text, _describe_baseline(gate)))]
    return render_rich(parts, width=width, color=color)


def summarize_gate(gate: GateResult) -> str:
    """Summarize the decisions in a line: the result, and how many there are of each."""
    return f"{clean_text(gate.run)}: {gate.result}, {_count_results(gate)}"


def list_gate_properties(gate: GateResult) -> list[tuple[str, str]]:
    """List the gate as names and texts, as a test report keeps them: the result, then every decision."""
    properties = [("ragfault run", clean_text(gate.run)), ("ragfault result", gate.result)]
    if gate.regression is not None:
        properties.append(("ragfault baseline", clean_text(gate.regression.baseline)))
    return [
        *properties,
        *((f"ragfault {clean_text(rule)}", f"{r}: {clean_text(why)}") for r, rule, why in _list_decisions(gate)),
    ]


def _list_decisions(gate: GateResult) -> list[tuple[str, str, str]]:
    """List result, rule and reason of every threshold and metric, in order."""
    thresholds = [(row.result, str(row.threshold), row.reason) for row in gate.decisions]
    return [*thresholds, *((row.result, row.rule, _explain_drop(row)) for row in gate.regression_decisions)]


def _explain_drop(drop: RegressionDecision) -> str:
    """Explain the reason, and where a metric fails the traces that got worse most."""
    (_, movers), _ = split_movers(drop.change)
    return f"{drop.reason}; most on {format_movers(movers)}" if drop.result == "fail" and movers else drop.reason


def _describe_baseline(gate: GateResult) -> list[str]:
    """Describe the comparison with the baseline, and its warnings."""
    regression = gate.regression
    right = [] if gate.label_source is None else [f"corrected by {describe_label_source(gate.label_source)}"]
    if regression is None:
        return right
    alone = [
        f"{count:,} only in {name}"
        for count, name in zip(regression.unpaired, (regression.baseline, gate.run), strict=True)
        if count
    ]
    dependence = describe_dependence(
        regression.pairs, [item.change.judge_difference or item.change.difference for item in regression.decisions]
    )
    counts = [f"{regression.pairs:,} pairs of traces by {regression.paired_by}", *filter(None, [dependence]), *alone]
    paired = ", ".join(counts)
    terms = f"alpha {regression.alpha:g}, power {regression.power:g}, p corrected by Holm"
    beware = [f"not comparable: {m.sentence}" if m.blocks else f"beware: {m.sentence}" for m in regression.mismatches]
    beware += [f"beware: {text}" for text in regression.warnings if text not in gate.warnings]
    return [*right, f"baseline {regression.baseline}: {paired}; {terms}", *beware]


def _count_results(gate: GateResult) -> str:
    """Count how many thresholds and metrics were decided how."""
    results = [result for result, _, _ in _list_decisions(gate)]
    counts = [f"{results.count(kind)} {kind}" for kind in RESULT_STYLES if kind in results]
    kinds = ((len(gate.decisions), "threshold"), (len(gate.regression_decisions), "metric"))
    what = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in kinds if number]
    return f"{', '.join(counts)} of {' and '.join(what)}"


def render_gate_junit(gate: GateResult) -> str:
    """Render the gate as JUnit XML: thresholds and metrics are test cases; one that cannot be told is an error."""
    results = [result for result, _, _ in _list_decisions(gate)]
    numbers = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("cannot tell")),
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {"name": f"ragfault gate {_clean_xml(gate.run)}", **numbers})
    if gate.regression is not None:
        properties = SubElement(suite, "properties")
        facts = {"baseline": gate.regression.baseline, "comparison": "; ".join(_describe_baseline(gate))}
        for name, value in facts.items():
            SubElement(properties, "property", {"name": name, "value": _clean_xml(value)})
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
    """Remove the characters that XML does not allow."""
    return "".join(sign for sign in clean_text(text) if sign not in "\ufffe\uffff")


def render_gate_markdown(gate: GateResult) -> str:
    """Render the gate as GitHub-flavoured tables: one of the thresholds, one of the metrics beside the baseline."""
    lines = [
        f"### {RESULT_SIGNS[gate.result]}: {escape_markdown(gate.run)}, {gate.traces:,} traces, {_count_results(gate)}"
    ]
    for text in gate.warnings:
        lines += ["", f"> ⚠️ {escape_markdown(text)}"]
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
            RESULT_SIGNS[row.result],
            format_code(str(row.threshold)),
            format_interval(row.aggregate.decision_interval),
            f"{row.aggregate.scored:,}/{row.aggregate.traces:,} ({format_percent(row.coverage)})",
            escape_markdown(row.reason),
        )
        for row in decisions
    ]
    return build_markdown_table(("Result", "Threshold", "Mean", "Scored:", "Why"), rows)


def _build_drop_table(drops: Iterable[RegressionDecision]) -> list[str]:
    rows = [
        (
            RESULT_SIGNS[row.result],
            format_code(row.rule),
            format_means(row.change),
            format_change(row.change),
            format_p_value(row.change.adjusted),
            f"{row.change.n:,}",
            f"≈ {row.needed:,}" if row.needed else "",
            escape_markdown(_explain_drop(row)),
        )
        for row in drops
    ]
    heads = ("Result", "Metric", "Baseline → candidate", "Difference", "Corrected p:", "Pairs:", "Needed:", "Why")
    return build_markdown_table(heads, rows)
