"""Routes of pages, and the pages that an app adds to a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ragfault.http.hosting import get_host
from ragfault.http.problems import error_status
from ragfault.model.errors import RagfaultError


class AppPages(NamedTuple):
    """Pages that an app adds to the server of `ragfault serve`."""

    routers: tuple[APIRouter, ...]
    """Routes of its pages and of its JSON interface."""
    package: str
    """The package whose folder `templates` has its templates; they extend those of the server."""
    navigation: tuple[str, str]
    """Path and title of the page that the navigation names."""
    open: Callable[[Mapping[str, Path]], Any] | None = None
    """Opens what the pages show, from the files of its options by name; None where there is none.

    It runs before a store is created, and raises what is wrong with the files. Without this function the navigation
    always names the page, else where something was opened.
    """


class PageRoute(APIRoute):
    """Route that renders errors as pages, and redirects to the sign-in page where a token is needed."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except HTTPException as error:
                if error.status_code == 401:
                    return RedirectResponse(_sign_in_url(request), 303)
                return get_host(request).render_error(request, error.status_code, str(error.detail), error.headers)
            except RagfaultError as error:
                return get_host(request).render_error(request, error_status(error), str(error))

        return handler


def _sign_in_url(request: Request) -> str:
    there = request.url.path if request.method == "GET" else "/"
    query = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
    return f"/sign-in?next={quote(quote(there, errors='replace') + query, safe='')}"
