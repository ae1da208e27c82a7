"""Answer the requests at the counting endpoint by their schema or their wording, about the current trace.

A reply has an item for each thing that is asked about: each claim of the answer, each chunk, each statement of the
reference. All explanations have one and the same length, whoever asks for them; all verdicts are favourable, and
explanations that are asked for only beside unfavourable ones (they may be null) are left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["Scene", "reply", "schema_of"]

REASON = "The passage says so in as many words; nothing speaks against it."
"""Every explanation that a tool asks for, in twelve words: as many as ragfault allows, others set no bound."""
EXPLAINS = ("reason", "explanation", "evidence", "criteria", "rationale", "thought", "feedback")
"""Parts of the names of fields that explain."""


LETTERS = {"chunks": "c", "statements": "t", "claims": "s", "used": "c", "citations": "k", "facts": "f", "truth": "s"}
"""Field of ragfault's replies → the first letter of the ids that it goes by."""
GOOD = ("supported", "yes")
"""Labels that are chosen wherever they may be; else the first."""
EMPTY = ("missing", "harm")
"""Lists that are empty where all is well."""


class Scene(NamedTuple):
    """What is being judged when a request comes in."""

    metric: str
    trace: dict[str, Any]


def schema_of(request: dict[str, Any], prompt: str) -> dict[str, Any] | None:
    """Return the JSON schema that a request carries: as a format, as a tool, or in its text."""
    form = (request.get("response_format") or {}).get("json_schema") or (request.get("text") or {}).get("format") or {}
    if form.get("schema"):
        return dict(form["schema"])
    for tool in request.get("tools") or ():
        function = tool.get("function") or tool
        if function.get("parameters"):
            return dict(function["parameters"])
    return _written(prompt)


def _written(prompt: str) -> dict[str, Any] | None:
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


def reply(schema: dict[str, Any] | None, prompt: str, scene: Scene) -> str:
    """Return the text of a reply."""
    if schema is None:
        return _unbound(prompt, scene)
    return json.dumps(_filled(schema, schema, "", 0, (prompt, scene)), ensure_ascii=False)


def _unbound(prompt: str, scene: Scene) -> str:
    """Return a reply in the form that the words of a prompt ask for."""
    if "python list" in prompt:
        return repr(scene.trace["said"])
    if "/SOURCE TEXT/" in prompt:
        points = enumerate(scene.trace["expected"], 1)
        return "\n".join(f"Key Point {number}: {text}" for number, text in points)
    if "/KEY POINT/" in prompt:
        return f"Score: 3\nKey Point: {scene.trace['expected'][0]}\nSupporting Evidence: {REASON}"
    return f"Score: 3\nSupporting Evidence: {REASON}"


def _filled(node: dict[str, Any], root: dict[str, Any], key: str, place: int, about: tuple[str, Scene]) -> Any:
    """Return a value that fits a schema; `place` is the number of the item that contains it."""
    if _explains(key) and any(option.get("type") == "null" for option in node.get("anyOf", ())):
        return None
    node = _resolved(node, root)
    if "const" in node or "enum" in node:
        return (
            node["const"]
            if "const" in node
            else next((option for option in node["enum"] if option in GOOD), node["enum"][0])
        )
    kind = node.get("type")
    if kind == "object":
        inner = node.get("properties", {})
        return {name: _filled(part, root, name, place, about) for name, part in inner.items()}
    if kind == "array":
        return _listed(_resolved(node.get("items", {}), root), root, key, about)
    if kind in ("integer", "number"):
        return 0 if key == "noncommittal" else 1
    return True if kind == "boolean" else _worded(key, place, about)


def _listed(item: dict[str, Any], root: dict[str, Any], key: str, about: tuple[str, Scene]) -> list[Any]:
    """Return the items of a list: one for each id, or one for each thing that the list is about."""
    if "id" in item.get("properties", {}):
        names = enumerate(_ids(key, about[0]))
        return [{**_filled(item, root, key, number, about), "id": name} for number, name in names]
    if key in EMPTY:
        return []
    count = 1 if key == "aspects" else len(_units(key, *about))
    return [_filled(item, root, key, number, about) for number in range(count)]


def _ids(field: str, prompt: str) -> list[str]:
    """Return the ids that a field of ragfault's schema asks for: those listed, or those of the texts in the prompt."""
    named = re.findall(rf"\b{field} \(of ([^)]*)\)", prompt)
    if named:
        return str(named[-1]).split(", ")
    letter = LETTERS[field]
    matches = re.findall(rf"^(?:<<[0-9a-f]{{16}} )?({letter}\d+)(?:>>$|: )", prompt, re.MULTILINE)
    return list(dict.fromkeys(matches))


def _resolved(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without references and alternatives: the first that is not null."""
    while True:
        if "$ref" in node:
            _, shelf, name = node["$ref"].split("/")
            node = root[shelf][name]
        elif node.get("anyOf") or node.get("oneOf") or node.get("allOf"):
            several = node.get("anyOf") or node.get("oneOf") or node["allOf"]
            node = next(option for option in several if option.get("type") != "null")
        elif isinstance(node.get("type"), list):
            node = {**node, "type": next(kind for kind in node["type"] if kind != "null")}
        else:
            return node


def _worded(key: str, place: int, about: tuple[str, Scene]) -> str:
    """Return the text of a field."""
    if _explains(key):
        return REASON
    if key == "verdict":
        return "yes"
    if key in ("question", "text"):
        return str(about[1].trace["query"])
    if key == "quote":
        return " ".join(about[1].trace["passages"][0][0].split()[:25])
    if key == "chunk":
        return "c1"
    units = _units(key, *about)
    return units[place % len(units)]


def _explains(key: str) -> bool:
    """Return whether a field is an explanation."""
    return any(part in key for part in EXPLAINS)


def _units(key: str, prompt: str, scene: Scene) -> list[str]:
    """Return what a list is about, item by item."""
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
