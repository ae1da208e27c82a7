"""Error responses as problem+json (RFC 9457), without stack traces."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ragfault.errors import OutputError, RagfaultError, UnknownName


def problem_response(
    status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    """A problem as a response."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def install_handlers(app: FastAPI) -> None:
    """Have every error answered as a problem; those that nobody foresaw are left to `Guarded`."""
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(RagfaultError, _handle_ragfault_error)


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def _handle_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [
        {"where": ".".join(map(str, fault["loc"])), "problem": fault["msg"]} for fault in error.errors()[:20]
    ]
    told = "; ".join(f"{fault['where']}: {fault['problem']}" for fault in faults[:3])
    return problem_response(422, told, faults=faults)


async def _handle_ragfault_error(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, UnknownName) else 503 if isinstance(error, OutputError) else 422
    return problem_response(status, str(error))
