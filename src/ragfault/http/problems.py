"""Errors of requests as problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ragfault.model.errors import OutputError, RagfaultError, UnknownName

PROBLEM_JSON = "application/problem+json"


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """An error (RFC 9457): what was asked, what there is, what to do."""

    type: str
    title: str
    status: int
    detail: str


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """Build a problem+json response; `more` are additional fields."""
    problem = ProblemDetails("about:blank", HTTPStatus(status).phrase, status, detail)
    return Response(msgspec.json.encode(msgspec.to_builtins(problem) | more), status, headers, PROBLEM_JSON)


RETRY_AFTER = "2"
"""Seconds after which a client that was refused for load, or because the store cannot be used, may retry."""


def error_status(error: RagfaultError) -> int:
    """Return the HTTP status of an error of the library."""
    return 404 if isinstance(error, UnknownName) else 503 if isinstance(error, OutputError) else 422


def install_handlers(app: FastAPI) -> None:
    """Answer every expected error with a problem; SecurityMiddleware answers the unexpected ones."""
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(RagfaultError, _handle_ragfault_error)


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def _handle_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [{"where": ".".join(map(str, fault["loc"])), "problem": fault["msg"]} for fault in error.errors()[:20]]
    detail = "; ".join(f"{fault['where']}: {fault['problem']}" for fault in faults[:3])
    return problem_response(422, detail, faults=faults)


async def _handle_ragfault_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RagfaultError)
    status = error_status(error)
    return problem_response(status, str(error), {"Retry-After": RETRY_AFTER} if status == 503 else None)


RESPONSE_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer."}},
    429: {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait."}},
}


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


SCHEMA_PREFIX = "#/components/schemas/"
