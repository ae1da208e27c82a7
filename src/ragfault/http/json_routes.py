"""Routes whose handlers return msgspec records, and the OpenAPI 3.1 document that is generated from them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.responses import Response

from ragfault.http.problems import SCHEMA_PREFIX, ProblemDetails, problem_responses
from ragfault.http.security import require_role
from ragfault.model.version import __version__

JSON = "application/json"


def json_response(content: Any) -> Response:
    """Encode a record as a JSON response."""
    return Response(msgspec.json.encode(content), media_type=JSON)


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


def make_json_router() -> APIRouter:
    """Make a router of JSON views, which need a token with the role `read`."""
    return APIRouter(
        route_class=JsonRoute,
        dependencies=[Depends(require_role("read"))],
        responses=problem_responses(401, 403, 429, 503),
    )
