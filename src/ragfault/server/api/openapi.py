"""OpenAPI 3.1 document of the JSON API: parameters from the routes, bodies and answers from the records."""

from __future__ import annotations

import re
from copy import deepcopy
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ragfault.records import Trace
from ragfault.server.api import detail_views as seen
from ragfault.server.api import traffic_views
from ragfault.server.api.insight_views import DriftView, InsightsView
from ragfault.server.ingest.incoming_traces import MAX_ID_LENGTH
from ragfault.server.storage import StoredTrace, TimelineMark, TracePage
from ragfault.version import __version__

JSON, NDJSON, PROBLEM_JSON = "application/json", "application/x-ndjson", "application/problem+json"
PROTOBUF, TEXT, ZIP = "application/x-protobuf", "text/plain", "application/zip"
SCHEMA_PREFIX = "#/components/schemas/"
INT64_LIMIT = 2**63


class HealthStatus(msgspec.Struct):
    """That the server is up."""

    status: str


class RejectedEntry(msgspec.Struct):
    """One thing of a body that was not taken."""

    place: int
    """Its place in the body, from 1."""
    problem: str


class MarksReceipt(msgspec.Struct):
    """What became of marks."""

    taken: int
    repeated: int


class TracesReceipt(msgspec.Struct):
    """What became of traces."""

    taken: int
    repeated: int
    """Those whose id was there already."""
    rejected: int
    refused: tuple[RejectedEntry, ...]
    """The first hundred of the rejected."""


class OtlpPartialSuccess(msgspec.Struct, omit_defaults=True, rename="camel"):
    """How much of an export request was rejected, and why."""

    rejected_spans: str = ""
    rejected_log_records: str = ""
    error_message: str = ""


class OtlpResponse(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The answer of OTLP to an export request: empty where everything was taken."""

    partial_success: OtlpPartialSuccess | None = None


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """A fault (RFC 9457): what was asked, what there is, what to do."""

    type: str
    title: str
    status: int
    detail: str


class OperationSpec(NamedTuple):
    """What an operation answers."""

    schema_type: Any = None
    """The record; None: no JSON."""
    media_types: tuple[str, ...] = (JSON,)
    error_statuses: tuple[int, ...] = ()
    """The statuses that it has beside those that all have."""


READ_ERRORS, WRITE_ERRORS = (401, 403, 429, 503), (400, 401, 403, 408, 413, 415, 429, 503)
"""The statuses that whoever looks, and whoever sends, must reckon with."""

OPERATIONS: dict[str, OperationSpec] = {
    "/healthz": OperationSpec(HealthStatus, error_statuses=(403,)),
    "/openapi.json": OperationSpec(dict[str, Any], error_statuses=READ_ERRORS),
    "/metrics": OperationSpec(media_types=(TEXT,), error_statuses=READ_ERRORS),
    "/overview.json": OperationSpec(traffic_views.TrafficOverview, error_statuses=READ_ERRORS),
    "/metrics/{name}.json": OperationSpec(traffic_views.MetricView, error_statuses=(*READ_ERRORS, 404, 422)),
    "/compare.json": OperationSpec(seen.WindowComparison, error_statuses=(*READ_ERRORS, 422)),
    "/traces.json": OperationSpec(TracePage, error_statuses=(*READ_ERRORS, 422)),
    "/traces/{id}.json": OperationSpec(StoredTrace, error_statuses=(*READ_ERRORS, 404, 422)),
    "/insights.json": OperationSpec(InsightsView, error_statuses=(*READ_ERRORS, 422)),
    "/drift.json": OperationSpec(DriftView, error_statuses=(*READ_ERRORS, 404, 422)),
    "/alerts.json": OperationSpec(traffic_views.AlertsView, error_statuses=READ_ERRORS),
    "/clusters.json": OperationSpec(seen.ClustersView, error_statuses=READ_ERRORS),
    "/judge.json": OperationSpec(seen.JudgeView, error_statuses=READ_ERRORS),
    "/settings.json": OperationSpec(seen.SettingsView, error_statuses=READ_ERRORS),
    "/runs.json": OperationSpec(tuple[traffic_views.RunEntry, ...], error_statuses=READ_ERRORS),
    "/export.zip": OperationSpec(media_types=(ZIP,), error_statuses=(*READ_ERRORS, 422)),
    "/v1/ragfault/traces": OperationSpec(TracesReceipt, error_statuses=WRITE_ERRORS),
    "/v1/ragfault/marks": OperationSpec(MarksReceipt, error_statuses=WRITE_ERRORS),
    "/v1/traces": OperationSpec(OtlpResponse, (JSON, PROTOBUF), (*WRITE_ERRORS, 501)),
    "/v1/logs": OperationSpec(OtlpResponse, (JSON, PROTOBUF), (*WRITE_ERRORS, 501)),
}
"""Every path that is no page for people."""

DEFAULT_OPERATION = OperationSpec(error_statuses=(*READ_ERRORS, 404, 422))
"""What a path answers of which nothing more is known here."""

RESPONSE_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer."}},
    429: {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait."}},
}

CONTENT_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "How the body is packed.",
    "schema": {"type": "string", "enum": ["gzip", "deflate", "identity"]},
}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The description of a server's interface: every route that is no page for people, and nothing else."""
    made = get_openapi(title="ragfault", version=__version__, routes=app.routes, description=__doc__)
    shapes = [told.schema_type for told in OPERATIONS.values() if told.schema_type is not None]
    found, schemas = msgspec.json.schema_components(
        [*shapes, ProblemDetails, Trace, TimelineMark], ref_template=SCHEMA_PREFIX + "{name}"
    )
    of = dict(
        zip([path for path, told in OPERATIONS.items() if told.schema_type is not None], found, strict=False)
    )
    paths = {path: _build_path(path, item, of.get(path, {})) for path, item in made["paths"].items()}
    for schema in schemas.values():
        _shorten_description(schema)
    return {
        **{name: made[name] for name in ("openapi", "info")},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": {**schemas, **_build_sent_schemas(schemas)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _build_path(path: str, item: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """One path: what FastAPI knows of its parameters, with bodies and answers."""
    told, found = OPERATIONS.get(path, DEFAULT_OPERATION), {}
    for method, operation in item.items():
        parameters = [_clean_parameter(each) for each in operation.get("parameters", ())]
        made: dict[str, Any] = {
            "operationId": f"{method}{re.sub(r'[^a-z0-9]+', '_', path.removesuffix('.json'))}".rstrip("_"),
            "summary": operation["description"].partition("\n")[0],
            "responses": _build_responses(told, schema),
        }
        if path in REQUEST_BODIES:
            parameters.append(CONTENT_ENCODING)
            made["requestBody"] = {"required": True, "content": REQUEST_BODIES[path]}
        if path == "/healthz":
            made["security"] = []
        found[method] = {**made, "parameters": parameters} if parameters else made
    return found


def _clean_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
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


def _build_responses(spec: OperationSpec, schema: dict[str, Any]) -> dict[str, Any]:
    """The answers of an operation, by status."""
    binary = any(kind == PROTOBUF for kind in spec.media_types)
    good = {kind: {"schema": schema} if kind == JSON else {} for kind in spec.media_types}
    found: dict[str, Any] = {"200": {"description": "It went well.", "content": good}}
    for status in sorted(spec.error_statuses):
        content: dict[str, Any] = {PROBLEM_JSON: {"schema": {"$ref": f"{SCHEMA_PREFIX}ProblemDetails"}}}
        if binary:
            content[PROTOBUF] = {}
        found[str(status)] = {"description": f"{HTTPStatus(status).phrase}.", "content": content}
        if status in RESPONSE_HEADERS:
            found[str(status)]["headers"] = RESPONSE_HEADERS[status]
    return found


# --- what is sent ----------------------------------------------------------------------------------


def _make_ref(name: str) -> dict[str, Any]:
    return {"$ref": SCHEMA_PREFIX + name}


def _allow_list(name: str) -> dict[str, Any]:
    return {"anyOf": [_make_ref(name), {"type": "array", "items": _make_ref(name), "minItems": 1}]}


def _build_export_schema(resources: str, scopes: str, items: str) -> dict[str, Any]:
    """An export request of OTLP in JSON, as deep as what is wrong there fails the request and not one item."""
    part = {"type": "object", "properties": {items: {"type": ["array", "null"]}}}
    inner = {"type": ["array", "null"], "items": part}
    whole = {"type": "object", "properties": {scopes: inner}}
    return {"type": "object", "properties": {resources: {"type": ["array", "null"], "items": whole}}}


def _build_otlp_body(*names: str) -> dict[str, Any]:
    return {
        JSON: {"schema": _build_export_schema(*names)},
        PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
    }


REQUEST_BODIES: dict[str, dict[str, Any]] = {
    "/v1/ragfault/traces": {
        JSON: {"schema": _allow_list("SentTrace")},
        NDJSON: {"schema": {"type": "string"}},
    },
    "/v1/ragfault/marks": {JSON: {"schema": _allow_list("SentMark")}},
    "/v1/traces": _build_otlp_body("resourceSpans", "scopeSpans", "spans"),
    "/v1/logs": _build_otlp_body("resourceLogs", "scopeLogs", "logRecords"),
}
"""What each path takes, by the type of its content."""

TIME_SCHEMA = {
    "type": "string",
    "pattern": r"^(19[7-9][0-9]|20[0-9]{2}|21[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T"
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "description": "Between 1970 and 2200; any ISO form is taken.",
}
ID_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
INTEGER_SCHEMA = {"type": "integer", "minimum": -INT64_LIMIT, "maximum": INT64_LIMIT - 1}
METADATA_SCHEMA = {
    "type": "object",
    "additionalProperties": {"type": ["string", "boolean", "null", "number"]},
}


def _build_sent_schemas(schemas: dict[str, Any]) -> dict[str, Any]:
    """Traces and marks as they are sent: the records, with the bounds within which they are taken."""
    names = {"Trace": "SentTrace", "TimelineMark": "SentMark", "Chunk": "SentChunk"}
    found = {}
    for name, new in names.items():
        made = deepcopy(schemas[name])
        fields = made["properties"]
        fields["metadata"] = {**METADATA_SCHEMA, "description": "Any JSON; what is nested is kept as it is."}
        if "time" in fields:
            fields["time"] = {"anyOf": [TIME_SCHEMA, {"type": "null"}]}
        if name == "Trace":
            fields["id"] = ID_SCHEMA
        found[new] = made
    chunks = {"type": "array", "items": _make_ref("SentChunk")}
    found["SentTrace"]["properties"]["chunks"] = {"anyOf": [chunks, {"type": "null"}]}
    return found


def _shorten_description(schema: dict[str, Any]) -> None:
    """Leave the first sentence of a record's docstring: examples are for those who read the code."""
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n")[0]
