"""Gate decisions for test reports: as JUnit XML, and as properties of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragfault.report.builders.gate import describe_gate_terms, list_decisions, list_gate_warnings
from ragfault.report.safe_text import clean_text

if TYPE_CHECKING:
    from ragfault.comparison.gate.records import GateResult


def list_gate_properties(gate: GateResult) -> list[tuple[str, str]]:
    """List the gate as names and texts, as a test report keeps them: the result, then every decision."""
    properties = [("ragfault run", clean_text(gate.run)), ("ragfault result", gate.result)]
    if gate.regression is not None:
        properties.append(("ragfault baseline", clean_text(gate.regression.baseline)))
    return [
        *properties,
        *((f"ragfault {clean_text(rule)}", f"{r}: {clean_text(why)}") for r, rule, why in list_decisions(gate)),
    ]


def render_gate_junit(gate: GateResult) -> str:
    """Render the gate as JUnit XML: thresholds and metrics are test cases; one that cannot be told is an error."""
    results = [result for result, _, _ in list_decisions(gate)]
    numbers = {
        "tests": str(len(results)),
        "failures": str(results.count("fail")),
        "errors": str(results.count("cannot tell")),
    }
    root = Element("testsuites", numbers)
    suite = SubElement(root, "testsuite", {"name": f"ragfault gate {_clean_xml(gate.run)}", **numbers})
    if gate.regression is not None:
        comparison = [*describe_gate_terms(gate), *(f"warning: {text}" for text in list_gate_warnings(gate))]
        properties = SubElement(suite, "properties")
        facts = {"baseline": gate.regression.baseline, "comparison": "; ".join(comparison)}
        for name, value in facts.items():
            SubElement(properties, "property", {"name": name, "value": _clean_xml(value)})
    layers = [
        *(item.aggregate.layer for item in gate.decisions),
        *(item.change.layer for item in gate.regression_decisions),
    ]
    for (result, rule, reason), layer in zip(list_decisions(gate), layers, strict=True):
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
