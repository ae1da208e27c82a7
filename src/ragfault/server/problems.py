"""Errors as problem+json (RFC 9457): what was asked, what there is, what to do; never a stack trace."""

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

__all__ = ["install", "problem"]


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """A problem as a response."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def install(app: FastAPI) -> None:
    """Have every error answered as a problem; those that nobody foresaw are left to `Guarded`."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(RagfaultError, _ragfault)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), dict(error.headers or {}))


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [
        {"where": ".".join(map(str, fault["loc"])), "problem": fault["msg"]} for fault in error.errors()[:20]
    ]
    told = "; ".join(f"{fault['where']}: {fault['problem']}" for fault in faults[:3])
    return problem(422, told, faults=faults)


async def _ragfault(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, UnknownName) else 503 if isinstance(error, OutputError) else 422
    return problem(status, str(error))
