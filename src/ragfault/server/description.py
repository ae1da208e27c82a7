"""The description of the interface, as OpenAPI 3.1: what may be asked, what may be sent, and what is answered.

Parameters are read off the routes; the shapes of bodies and answers are those of the records themselves.
"""

from __future__ import annotations

import re
from copy import deepcopy
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ragfault import __version__
from ragfault.records import Trace
from ragfault.server import dashboard_views as seen
from ragfault.server import views
from ragfault.server.dashboard_drift import Drifted
from ragfault.server.dashboard_insights import Together
from ragfault.server.native import NAME
from ragfault.store import Mark, Page, Whole

__all__ = ["describe"]

JSON, LINES, PROBLEM = "application/json", "application/x-ndjson", "application/problem+json"
PROTOBUF, TEXT, ZIP = "application/x-protobuf", "text/plain", "application/zip"
PLACE = "#/components/schemas/"
WORD = 2**63


class Health(msgspec.Struct):
    """That the server is up."""

    status: str


class Fault(msgspec.Struct):
    """One thing of a body that was not taken."""

    place: int
    """Its place in the body, from 1."""
    problem: str


class Marked(msgspec.Struct):
    """What became of marks."""

    taken: int
    repeated: int


class Taken(msgspec.Struct):
    """What became of traces."""

    taken: int
    repeated: int
    """Those whose id was there already."""
    rejected: int
    refused: tuple[Fault, ...]
    """The first hundred of the rejected."""


class Rejected(msgspec.Struct, omit_defaults=True, rename="camel"):
    """How much of an export request was rejected, and why."""

    rejected_spans: str = ""
    rejected_log_records: str = ""
    error_message: str = ""


class Exported(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The answer of OTLP to an export request: empty where everything was taken."""

    partial_success: Rejected | None = None


class Problem(msgspec.Struct, omit_defaults=True):
    """A fault (RFC 9457): what was asked, what there is, what to do."""

    type: str
    title: str
    status: int
    detail: str


class Told(NamedTuple):
    """What an operation answers."""

    shape: Any = None
    """The record; None: no JSON."""
    kinds: tuple[str, ...] = (JSON,)
    faults: tuple[int, ...] = ()
    """The statuses that it has beside those that all have."""


LOOKING, SENDING = (401, 403, 429, 503), (400, 401, 403, 408, 413, 415, 429, 503)
"""The statuses that whoever looks, and whoever sends, must reckon with."""

OPERATIONS: dict[str, Told] = {
    "/healthz": Told(Health, faults=(403,)),
    "/openapi.json": Told(dict[str, Any], faults=LOOKING),
    "/metrics": Told(kinds=(TEXT,), faults=LOOKING),
    "/overview.json": Told(views.Overview, faults=LOOKING),
    "/metrics/{name}.json": Told(views.MetricView, faults=(*LOOKING, 404, 422)),
    "/compare.json": Told(seen.Compared, faults=(*LOOKING, 422)),
    "/traces.json": Told(Page, faults=(*LOOKING, 422)),
    "/traces/{id}.json": Told(Whole, faults=(*LOOKING, 404, 422)),
    "/insights.json": Told(Together, faults=(*LOOKING, 422)),
    "/drift.json": Told(Drifted, faults=(*LOOKING, 404, 422)),
    "/alerts.json": Told(views.Alerts, faults=LOOKING),
    "/clusters.json": Told(seen.Grouped, faults=LOOKING),
    "/judge.json": Told(seen.Judged, faults=LOOKING),
    "/settings.json": Told(seen.Kept, faults=LOOKING),
    "/runs.json": Told(tuple[views.RunLine, ...], faults=LOOKING),
    "/export.zip": Told(kinds=(ZIP,), faults=(*LOOKING, 422)),
    "/v1/ragfault/traces": Told(Taken, faults=SENDING),
    "/v1/ragfault/marks": Told(Marked, faults=SENDING),
    "/v1/traces": Told(Exported, (JSON, PROTOBUF), (*SENDING, 501)),
    "/v1/logs": Told(Exported, (JSON, PROTOBUF), (*SENDING, 501)),
}
"""Every path that is no page for people."""

OTHER = Told(faults=(*LOOKING, 404, 422))
"""What a path answers of which nothing more is known here."""

HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer."}},
    429: {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait."}},
}

PACKING = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "How the body is packed.",
    "schema": {"type": "string", "enum": ["gzip", "deflate", "identity"]},
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of a server's interface: every route that is no page for people, and nothing else."""
    made = get_openapi(title="ragfault", version=__version__, routes=app.routes, description=__doc__)
    shapes = [told.shape for told in OPERATIONS.values() if told.shape is not None]
    found, schemas = msgspec.json.schema_components(
        [*shapes, Problem, Trace, Mark], ref_template=PLACE + "{name}"
    )
    of = dict(zip([path for path, told in OPERATIONS.items() if told.shape is not None], found, strict=False))
    paths = {path: _path(path, item, of.get(path, {})) for path, item in made["paths"].items()}
    for schema in schemas.values():
        _short(schema)
    return {
        **{name: made[name] for name in ("openapi", "info")},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": {**schemas, **_sent(schemas)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path(path: str, item: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """One path: what FastAPI knows of its parameters, with bodies and answers."""
    told, found = OPERATIONS.get(path, OTHER), {}
    for method, operation in item.items():
        parameters = [_bare(each) for each in operation.get("parameters", ())]
        made: dict[str, Any] = {
            "operationId": f"{method}{re.sub(r'[^a-z0-9]+', '_', path.removesuffix('.json'))}".rstrip("_"),
            "summary": operation["description"].partition("\n")[0],
            "responses": _answers(told, shape),
        }
        if path in BODIES:
            parameters.append(PACKING)
            made["requestBody"] = {"required": True, "content": BODIES[path]}
        if path == "/healthz":
            made["security"] = []
        found[method] = {**made, "parameters": parameters} if parameters else made
    return found


def _bare(parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter without null, which no address can hold, and without titles that repeat names."""
    made = deepcopy(parameter)
    schema = made["schema"]
    kinds = [each for each in schema.pop("anyOf", []) if each.get("type") != "null"]
    if len(kinds) == 1:
        schema |= kinds[0]
    schema.pop("title", None)
    if parameter["in"] == "path":
        schema["minLength"] = 1
    return made


def _answers(told: Told, shape: dict[str, Any]) -> dict[str, Any]:
    """The answers of an operation, by status."""
    binary = any(kind == PROTOBUF for kind in told.kinds)
    good = {kind: {"schema": shape} if kind == JSON else {} for kind in told.kinds}
    found: dict[str, Any] = {"200": {"description": "It went well.", "content": good}}
    for status in sorted(told.faults):
        content: dict[str, Any] = {PROBLEM: {"schema": {"$ref": f"{PLACE}Problem"}}}
        if binary:
            content[PROTOBUF] = {}
        found[str(status)] = {"description": f"{HTTPStatus(status).phrase}.", "content": content}
        if status in HEADERS:
            found[str(status)]["headers"] = HEADERS[status]
    return found


# --- what is sent ----------------------------------------------------------------------------------


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": PLACE + name}


def _or_many(name: str) -> dict[str, Any]:
    return {"anyOf": [_ref(name), {"type": "array", "items": _ref(name), "minItems": 1}]}


def _export(sent: str, scopes: str, items: str) -> dict[str, Any]:
    """An export request of OTLP in JSON, as deep as what is wrong there fails the request and not one item."""
    part = {"type": "object", "properties": {items: {"type": ["array", "null"]}}}
    inner = {"type": ["array", "null"], "items": part}
    whole = {"type": "object", "properties": {scopes: inner}}
    return {"type": "object", "properties": {sent: {"type": ["array", "null"], "items": whole}}}


def _otlp(*names: str) -> dict[str, Any]:
    return {JSON: {"schema": _export(*names)}, PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}


BODIES: dict[str, dict[str, Any]] = {
    "/v1/ragfault/traces": {
        JSON: {"schema": _or_many("SentTrace")},
        LINES: {"schema": {"type": "string"}},
    },
    "/v1/ragfault/marks": {JSON: {"schema": _or_many("SentMark")}},
    "/v1/traces": _otlp("resourceSpans", "scopeSpans", "spans"),
    "/v1/logs": _otlp("resourceLogs", "scopeLogs", "logRecords"),
}
"""What each path takes, by the type of its content."""

TIME = {
    "type": "string",
    "pattern": r"^(19[7-9][0-9]|20[0-9]{2}|21[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T"
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "description": "Between 1970 and 2200; any ISO form is taken.",
}
ID = {"type": "string", "minLength": 1, "maxLength": NAME}
WHOLE = {"type": "integer", "minimum": -WORD, "maximum": WORD - 1}
METADATA = {"type": "object", "additionalProperties": {"type": ["string", "boolean", "null", "number"]}}


def _sent(schemas: dict[str, Any]) -> dict[str, Any]:
    """Traces and marks as they are sent: the records, with the bounds within which they are taken."""
    names = {"Trace": "SentTrace", "Mark": "SentMark", "Chunk": "SentChunk"}
    found = {}
    for name, new in names.items():
        made = deepcopy(schemas[name])
        fields = made["properties"]
        fields["metadata"] = {**METADATA, "description": "Any JSON; what is nested is kept as it is."}
        if "time" in fields:
            fields["time"] = {"anyOf": [TIME, {"type": "null"}]}
        if name == "Trace":
            fields["id"] = ID
        found[new] = made
    chunks = {"type": "array", "items": _ref("SentChunk")}
    found["SentTrace"]["properties"]["chunks"] = {"anyOf": [chunks, {"type": "null"}]}
    return found


def _short(schema: dict[str, Any]) -> None:
    """Leave the first sentence of a record's docstring: examples are for those who read the code."""
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n")[0]
