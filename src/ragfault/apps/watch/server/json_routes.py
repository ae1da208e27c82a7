"""Routes whose handlers return msgspec records, and the OpenAPI 3.1 document that is generated from them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.responses import Response

from ragfault.apps.watch.server.request_limits import PROBLEM_JSON, ProblemDetails
from ragfault.apps.watch.server.state import ServerState
from ragfault.model.version import __version__

JSON = "application/json"
SCHEMA_PREFIX = "#/components/schemas/"

RESPONSE_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer."}},
    429: {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait."}},
}


def json_response(content: Any) -> Response:
    """Encode a record as a JSON response."""
    return Response(msgspec.json.encode(content), media_type=JSON)


def problem_responses(*statuses: int, media_types: tuple[str, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """Describe error responses by status: problem+json, and further media types without a schema."""
    schema = {"$ref": f"{SCHEMA_PREFIX}{ProblemDetails.__name__}"}
    content: dict[str, Any] = {PROBLEM_JSON: {"schema": schema}, **{kind: {} for kind in media_types}}
    return {
        status: {
            "description": f"{HTTPStatus(status).phrase}.",
            "content": content,
            **({"headers": RESPONSE_HEADERS[status]} if status in RESPONSE_HEADERS else {}),
        }
        for status in statuses
    }


def get_server(request: Request) -> ServerState:
    """Return the state of the server that received a request."""
    server: ServerState = request.app.state.server
    return server


async def _provide_server(request: Request) -> ServerState:
    return get_server(request)  # FastAPI would call a function that is not async in a thread


Server = Annotated[ServerState, Depends(_provide_server)]


class JsonRoute(APIRoute):
    """Route that encodes the record its handler returns; the return annotation is the schema of the response.

    A handler that encodes its record itself is annotated `Annotated[Response, Record]`, one without JSON `Response`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        @functools.wraps(endpoint)
        def encode_record(*args: Any, **kwargs: Any) -> Response:
            return json_response(endpoint(*args, **kwargs))

        returned = get_type_hints(endpoint)["return"]
        summary = (endpoint.__doc__ or "").partition("\n")[0]
        options |= {"response_model": None, "summary": summary, "generate_unique_id_function": make_operation_id}
        super().__init__(path, endpoint if returned is Response else encode_record, **options)


def make_operation_id(route: Any) -> str:
    """Name an operation by its method and path."""
    path = re.sub(r"[^a-z0-9]+", "_", route.path_format.removesuffix(".json"))
    return f"{min(route.methods).lower()}{path}".rstrip("_")


def get_record_type(endpoint: Callable[..., Any]) -> Any:
    """Return the type of the record that a handler's response encodes; None without one."""
    returned = get_type_hints(endpoint, include_extras=True)["return"]
    if get_origin(returned) is Annotated:
        return get_args(returned)[1]
    return None if returned is Response else returned


def build_openapi(app: FastAPI, sent: tuple[type, ...]) -> dict[str, Any]:
    """Describe every route of a server that is not a page; `sent` are the records that request bodies refer to."""
    document = get_openapi(title="ragfault", version=__version__, routes=app.routes, description=__doc__)
    records = {
        route.path_format: get_record_type(route.endpoint)
        for route in iter_route_contexts(app.routes)
        if route.include_in_schema and route.endpoint is not None
    }
    records = {path: record for path, record in records.items() if record is not None}
    schemas, components = msgspec.json.schema_components(
        [*records.values(), ProblemDetails, *sent], ref_template=SCHEMA_PREFIX + "{name}"
    )
    for path, schema in zip(records, schemas, strict=False):
        for operation in document["paths"][path].values():
            operation["responses"]["200"]["content"][JSON]["schema"] = schema
    for component in components.values():
        # only the summary: examples are for readers of the code
        component["description"] = component.get("description", "").partition("\n")[0]
    document["components"] = {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {**document, "security": [{"token": []}]}
