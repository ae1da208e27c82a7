"""Answer the requests at the counting endpoint by their schema or their wording, about the current trace.

A reply has an item for each thing that is asked about: each claim of the answer, each chunk, each statement of the
reference. All explanations have one and the same length, whoever asks for them; all verdicts are favourable, and
explanations that are asked for only beside unfavourable ones (they may be null) are left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["CurrentWork", "find_schema", "write_reply"]

REASON = "The passage says so in as many words; nothing speaks against it."
"""Every explanation that a tool asks for, in twelve words: as many as ragfault allows, others set no bound."""
EXPLANATION_FIELDS = ("reason", "explanation", "evidence", "criteria", "rationale", "thought", "feedback")
"""Parts of the names of fields that explain."""


ID_LETTERS = {
    "chunks": "c",
    "statements": "t",
    "claims": "s",
    "used": "c",
    "citations": "k",
    "facts": "f",
    "truth": "s",
}
"""Field of ragfault's replies → the first letter of the ids that it goes by."""
FAVOURABLE_LABELS = ("supported", "yes")
"""Labels that a reply chooses where the schema allows them; else it chooses the first."""
EMPTY_LISTS = ("missing", "harm")
"""Lists of problems, which replies leave empty."""


class CurrentWork(NamedTuple):
    """Metric and trace that are judged when a request comes in."""

    metric: str
    trace: dict[str, Any]


def find_schema(request: dict[str, Any], prompt: str) -> dict[str, Any] | None:
    """Return the JSON schema that a request carries: as a format, as a tool, or in its text."""
    form = (request.get("response_format") or {}).get("json_schema") or (request.get("text") or {}).get("format") or {}
    if form.get("schema"):
        return dict(form["schema"])
    for tool in request.get("tools") or ():
        function = tool.get("function") or tool
        if function.get("parameters"):
            return dict(function["parameters"])
    return parse_schema(prompt)


def parse_schema(prompt: str) -> dict[str, Any] | None:
    """Return the first JSON schema in a text."""
    decoder, place = json.JSONDecoder(), prompt.find("{")
    while place >= 0:
        try:
            schema, end = decoder.raw_decode(prompt, place)
        except ValueError:
            end = place + 1
        else:
            if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
                return schema
        place = prompt.find("{", end)
    return None


def write_reply(schema: dict[str, Any] | None, prompt: str, scene: CurrentWork) -> str:
    """Write the text of a reply that fits a schema, or the wording of the prompt without one."""
    if schema is None:
        return write_unstructured_reply(prompt, scene)
    return json.dumps(fill_schema(schema, schema, "", 0, (prompt, scene)), ensure_ascii=False)


def write_unstructured_reply(prompt: str, scene: CurrentWork) -> str:
    """Write a reply in the form that the wording of a prompt asks for."""
    if "python list" in prompt:
        return repr(scene.trace["said"])
    if "/SOURCE TEXT/" in prompt:
        points = enumerate(scene.trace["expected"], 1)
        return "\n".join(f"Key Point {number}: {text}" for number, text in points)
    if "/KEY POINT/" in prompt:
        return f"Score: 3\nKey Point: {scene.trace['expected'][0]}\nSupporting Evidence: {REASON}"
    return f"Score: 3\nSupporting Evidence: {REASON}"


def fill_schema(
    node: dict[str, Any], root: dict[str, Any], key: str, number: int, context: tuple[str, CurrentWork]
) -> Any:
    """Return a value that fits a schema; `number` is that of the item that contains it."""
    if is_explanation(key) and any(option.get("type") == "null" for option in node.get("anyOf", ())):
        return None
    node = resolve_schema(node, root)
    if "const" in node or "enum" in node:
        return (
            node["const"]
            if "const" in node
            else next((option for option in node["enum"] if option in FAVOURABLE_LABELS), node["enum"][0])
        )
    kind = node.get("type")
    if kind == "object":
        inner = node.get("properties", {})
        return {name: fill_schema(part, root, name, number, context) for name, part in inner.items()}
    if kind == "array":
        return fill_list(resolve_schema(node.get("items", {}), root), root, key, context)
    if kind in ("integer", "number"):
        return 0 if key == "noncommittal" else 1
    return True if kind == "boolean" else write_field(key, number, context)


def fill_list(item: dict[str, Any], root: dict[str, Any], key: str, context: tuple[str, CurrentWork]) -> list[Any]:
    """Return the items of a list: one for each id, or one for each unit of the list."""
    if "id" in item.get("properties", {}):
        names = enumerate(list_ids(key, context[0]))
        return [{**fill_schema(item, root, key, number, context), "id": name} for number, name in names]
    if key in EMPTY_LISTS:
        return []
    count = 1 if key == "aspects" else len(list_units(key, *context))
    return [fill_schema(item, root, key, number, context) for number in range(count)]


def list_ids(field: str, prompt: str) -> list[str]:
    """Return the ids that a field of ragfault's schema asks for: those listed, or those of the texts in the prompt."""
    named = re.findall(rf"\b{field} \(of ([^)]*)\)", prompt)
    if named:
        return str(named[-1]).split(", ")
    letter = ID_LETTERS[field]
    matches = re.findall(rf"^(?:<<[0-9a-f]{{16}} )?({letter}\d+)(?:>>$|: )", prompt, re.MULTILINE)
    return list(dict.fromkeys(matches))


def resolve_schema(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without references and alternatives: the first that is not null."""
    while True:
        if "$ref" in node:
            _, section, name = node["$ref"].split("/")
            node = root[section][name]
        elif node.get("anyOf") or node.get("oneOf") or node.get("allOf"):
            options = node.get("anyOf") or node.get("oneOf") or node["allOf"]
            node = next(option for option in options if option.get("type") != "null")
        elif isinstance(node.get("type"), list):
            node = {**node, "type": next(kind for kind in node["type"] if kind != "null")}
        else:
            return node


def write_field(key: str, number: int, context: tuple[str, CurrentWork]) -> str:
    """Write the text of a field."""
    if is_explanation(key):
        return REASON
    if key == "verdict":
        return "yes"
    if key in ("question", "text"):
        return str(context[1].trace["query"])
    if key == "quote":
        return " ".join(context[1].trace["passages"][0][0].split()[:25])
    if key == "chunk":
        return "c1"
    units = list_units(key, *context)
    return units[number % len(units)]


def is_explanation(key: str) -> bool:
    """Return whether a field is an explanation."""
    return any(part in key for part in EXPLANATION_FIELDS)


def list_units(key: str, prompt: str, scene: CurrentWork) -> list[str]:
    """Return the texts that the items of a list are about: claims, passages, or statements of the reference."""
    trace = scene.trace
    if key == "truths":
        return [text for passage in trace["passages"] for text in passage]
    if scene.metric == "context_relevance":
        pairs = zip(trace["chunks"], trace["passages"], strict=True)
        return [text for chunk, passage in pairs if chunk in prompt for text in passage] or [REASON]
    if scene.metric in ("context_precision", "utilisation"):
        return [passage[0] for passage in trace["passages"]]
    if scene.metric in ("context_recall", "completeness") and trace["reference"] in prompt:
        return list(trace["expected"])
    return list(trace["said"])
