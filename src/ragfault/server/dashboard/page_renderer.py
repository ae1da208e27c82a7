"""Renderer of dashboard pages: Jinja environment, filters, URLs, and errors as pages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ragfault.errors import OutputError, RagfaultError, UnknownName
from ragfault.reports.html import elements
from ragfault.server.security import TOKEN_COOKIE
from ragfault.server.state import ServerState
from ragfault.server.storage import TraceSelection
from ragfault.version import __version__

NAVIGATION = (
    ("/", "Overview"),
    ("/insights", "Insights"),
    ("/traces", "Traces"),
    ("/alerts", "Alerts"),
    ("/clusters", "Clusters"),
    ("/runs", "Runs"),
    ("/drift", "Drift"),
    ("/judge", "Judge"),
    ("/settings", "Settings"),
    ("/help", "Help"),
)
"""The pages that every page links to."""

PAGE_HEADERS = {"referrer-policy": "same-origin"}
"""Browsers say where a form comes from only to the server that the page came from."""

PAGES_WITHOUT_JSON = ("sign-in", "help")
"""Pages without a JSON twin."""

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_BIDI_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def show_controls(text: str) -> str:
    """A text from outside with its control characters and bidirectional overrides as signs; lines stay lines.

    >>> show_controls("fine\\x1b[31m\\n\\u202etxt")
    'fine␛[31m\\n�txt'
    """
    text = _CONTROL_CHARACTERS.sub(
        lambda sign: chr(0x2400 + ord(sign[0])) if sign[0] < " " else "\ufffd", text
    )
    return _BIDI_OVERRIDES.sub("\ufffd", text)


def trace_url(id: str) -> str:
    """The page of a trace, whatever its id.

    >>> trace_url("a/b?"), trace_url("notes.json")
    ('/traces/a%2Fb%3F', '/traces/-?id=notes.json')
    """
    name = quote(id, safe="", errors="replace")
    return f"/traces/-?id={name}" if id in ("", ".", "..", "-") or id.endswith(".json") else f"/traces/{name}"


def selection_query(selection: TraceSelection, **other: Any) -> str:
    """A selection as the part of an address behind the question mark, with some fields changed.

    >>> selection_query(TraceSelection(route="help", limit=9), sort="triad")
    'route=help&sort=triad&limit=9'
    """
    asked = msgspec.structs.replace(selection, **other)
    plain = TraceSelection()
    found = {name: getattr(asked, name) for name in TraceSelection.__struct_fields__}
    kept = {name: value for name, value in found.items() if value != getattr(plain, name)}
    return urlencode(kept, doseq=True, errors="replace")


def local_path(path: str) -> str:
    """A path of this server, or the first page for anything else.

    >>> local_path("/traces?sort=triad"), local_path("//example.org"), local_path("https://example.org")
    ('/traces?sort=triad', '/', '/')
    """
    return path if re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", path) else "/"


def get_server(request: Request) -> ServerState:
    """The desk of the server that was asked."""
    desk: ServerState = request.app.state.server
    return desk


# --- what stands in templates -----------------------------------------------------------------------


def _finalize(value: Any) -> Any:
    """What stands for a value in a page: nothing for None, texts made visible, drawings as they are."""
    if value is None:
        return ""
    if isinstance(value, elements.Markup):
        return Markup(value)
    return show_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _format_time(seconds: float | None, short: bool = False) -> str:
    """A time in UTC, to the second; short: to the minute, without the day where it is of no use."""
    if seconds is None:
        return "–"
    try:
        made = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return "–"
    return f"{made:%Y-%m-%d %H:%M}" if short else f"{made:%Y-%m-%d %H:%M:%S} UTC"


def _format_minutes(minutes: float) -> str:
    """A length of time in words.

    >>> _format_minutes(30), _format_minutes(90), _format_minutes(1440)
    ('30 min', '90 min', '24 h')
    """
    return f"{minutes:g} min" if minutes < 120 or minutes % 60 else f"{minutes / 60:g} h"


def _format_signed(value: float | None) -> str:
    """A difference with its sign."""
    if value is None:
        return "–"
    text = elements.format_decimal(abs(value)) if abs(value) >= 100 else f"{abs(value):.3f}"
    return f"{'−' if value < 0 else '+'}{text}"


def _format_bytes(bytes: int) -> str:
    """A number of bytes for people."""
    return f"{bytes / 1e6:,.1f} MB" if bytes >= 1e5 else f"{bytes / 1e3:,.1f} kB"


@lru_cache(maxsize=1)
def _build_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ragfault.server.dashboard", "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": elements.format_decimal,
        "signed": _format_signed,
        "moment": _format_time,
        "span": _format_minutes,
        "size": _format_bytes,
        "trace_url": trace_url,
        "url_part": lambda text: quote(text, safe="", errors="replace"),
        "label": _format_label,
        "plain": _format_plain,
    }
    made.globals |= {"pages": NAVIGATION, "version": __version__, "query": selection_query}
    return made


def _format_label(text: str | None, limit: int = 200) -> str:
    """A text on one line, cut; nothing for None."""
    return "" if text is None else elements.clean_label(text, limit)


def _format_plain(value: Any) -> str:
    """Any value as one short text."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 400 else f"{text[:400]}…"


def render_page(
    request: Request, name: str, status: int = 200, without_json: bool = False, **content: Any
) -> Response:
    """A page of this server; `content` is what its template asks for, `alone` says that it has no JSON twin.

    A page that is given `renew` fetches itself anew every so many seconds, where scripts run.
    """
    access = request.app.state.access
    around = {
        "path": request.url.path,
        "json_url": None
        if without_json or name in PAGES_WITHOUT_JSON or status != 200
        else _json_url(request),
        "csrf_token": access.make_csrf_token(request),
        "refresh_seconds": None,
        "signed_in": TOKEN_COOKIE in request.cookies and not access.is_open,
    }
    text = _build_environment().get_template(f"{name}.html").render(around | content)
    return HTMLResponse(text, status, PAGE_HEADERS)


def _json_url(request: Request) -> str:
    """The address of what a page shows, as JSON."""
    path = (
        "/overview"
        if request.url.path == "/"
        else quote(request.url.path.removesuffix("/"), errors="replace")
    )
    kept: Iterable[tuple[str, str]] = [
        (key, text) for key, text in request.query_params.multi_items() if text
    ]
    asked = urlencode(list(kept), errors="replace")
    return f"{path}.json" + (f"?{asked}" if asked else "")


# --- errors ----------------------------------------------------------------------------------------


class PageRoute(APIRoute):
    """A route whose errors are pages: what was asked, what there is, what to do; who needs a token is asked for it."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except HTTPException as error:
                if error.status_code == 401:
                    return RedirectResponse(_sign_in_url(request), 303)
                return render_error(request, error.status_code, str(error.detail), error.headers)
            except RagfaultError as error:
                status = (
                    404 if isinstance(error, UnknownName) else 503 if isinstance(error, OutputError) else 422
                )
                return render_error(request, status, str(error))

        return handler


def _sign_in_url(request: Request) -> str:
    there = request.url.path if request.method == "GET" else "/"
    asked = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
    return f"/sign-in?next={quote(quote(there, errors='replace') + asked, safe='')}"


def render_error(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A page that says what was wrong."""
    page = render_page(request, "error", status, code=status, detail=detail)
    page.headers.update(headers or {})
    return page
