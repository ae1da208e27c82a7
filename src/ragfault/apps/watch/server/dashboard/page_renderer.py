"""Renderer of dashboard pages: Jinja environment, filters, URLs, and errors as pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ragfault.apps.watch.monitoring.windows import DAY_MINUTES
from ragfault.apps.watch.server.api.trace_parts import escape_pointer
from ragfault.apps.watch.server.app_pages import list_app_navigation, list_app_packages
from ragfault.apps.watch.server.json_routes import get_server
from ragfault.apps.watch.server.security import SESSION_COOKIE
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.http.hosting import get_host
from ragfault.model.version import __version__
from ragfault.report.format import format_duration, get_problem_title
from ragfault.report.safe_text import BIDI_OVERRIDES, clean_label
from ragfault.text.number_format import format_number, format_percent

NAVIGATION = (
    ("/", "Overview"), ("/insights", "Insights"), ("/versions", "Versions"), ("/traces", "Traces"),
    ("/conversations", "Conversations"), ("/incidents", "Incidents"), ("/clusters", "Clusters"),
)  # fmt: skip
"""Pages of the navigation before those of other apps."""

CLOSING_NAVIGATION = (
    ("/runs", "Runs"), ("/drift", "Drift"), ("/judge", "Judge"), ("/settings", "Settings"), ("/access", "Access"),
    ("/help", "Help"),
)  # fmt: skip
"""Pages of the navigation behind those of other apps."""

TIME_PRESETS = (60, 6 * 60, DAY_MINUTES, 7 * DAY_MINUTES, 30 * DAY_MINUTES)
"""Windows that the time picker offers, in minutes."""

PAGE_HEADERS = {"referrer-policy": "same-origin"}
"""Headers of pages: browsers send the origin of a form only to the server of its page."""

PAGES_WITHOUT_JSON = ("sign-in", "help")
"""Pages without a JSON view."""

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def show_controls(text: str) -> str:
    """Make control characters and bidirectional overrides of untrusted text visible; line breaks stay.

    >>> show_controls("fine\\x1b[31m\\n\\u202etxt")
    'fine␛[31m\\n�txt'
    """
    text = _CONTROL_CHARACTERS.sub(lambda sign: chr(0x2400 + ord(sign[0])) if sign[0] < " " else "\ufffd", text)
    return BIDI_OVERRIDES.sub("\ufffd", text)


def trace_url(id: str) -> str:
    """Return the URL of the page of a trace, with its id escaped.

    >>> trace_url("a/b?"), trace_url("notes.json")
    ('/traces/a%2Fb%3F', '/traces/-?id=notes.json')
    """
    name = quote(id, safe="", errors="replace")
    fits_no_path = id in ("", ".", "..", "-") or id.endswith(".json") or "\n" in id
    return f"/traces/-?id={name}" if fits_no_path else f"/traces/{name}"


def selection_query(selection: TraceSelection, **changes: str | float | None) -> str:
    """Encode a selection as a query string, with some fields changed.

    >>> selection_query(TraceSelection(route="help", limit=9), sort="triad")
    'route=help&sort=triad&limit=9'
    """
    changed = msgspec.structs.replace(selection, **changes)
    plain = TraceSelection()
    fields = {name: getattr(changed, name) for name in TraceSelection.__struct_fields__}
    given = {name: value for name, value in fields.items() if value != getattr(plain, name)}
    return urlencode(given, doseq=True, errors="replace")


def local_path(path: str) -> str:
    """Return a path of this server; "/" for anything else.

    >>> local_path("/traces?sort=triad"), local_path("//example.org"), local_path("https://example.org")
    ('/traces?sort=triad', '/', '/')
    """
    return path if re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", path) else "/"


def _finalize(value: Any) -> Any:
    """Convert a value for a template: nothing for None, control characters visible, charts unescaped."""
    if value is None:
        return ""
    return show_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _format_time(seconds: float | None, short: bool = False) -> str:
    """Format a time in UTC to the second; short: to the minute."""
    if seconds is None:
        return "–"
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return "–"
    return f"{moment:%Y-%m-%d %H:%M}" if short else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _format_age(minutes: float) -> str:
    """Format a time that has passed.

    >>> _format_age(0.4), _format_age(75), _format_age(3000)
    ('just now', '75 min ago', '2 d ago')
    """
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes:.0f} min ago"
    return f"{minutes / 60:.0f} h ago" if minutes < 2880 else f"{minutes / 1440:.0f} d ago"


def _format_signed(value: float | None) -> str:
    """Format a difference with its sign."""
    if value is None:
        return "–"
    text = format_number(abs(value)) if abs(value) >= 100 else f"{abs(value):.3f}"
    return f"{'−' if value < 0 else '+'}{text}"


@lru_cache(maxsize=1)
def create_environment() -> Environment:
    """Create the environment of the templates of all pages, those of other apps included."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package) for package in ("ragfault.apps.watch.server.dashboard", *list_app_packages())]
        ),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": format_number,
        "percent": format_percent,
        "signed": _format_signed,
        "moment": _format_time,
        "span": format_duration,
        "ago": _format_age,
        "size": lambda bytes: f"{bytes / 1e6:,.1f} MB" if bytes >= 1e5 else f"{bytes / 1e3:,.1f} kB",
        "trace_url": trace_url,
        "url_part": lambda text: quote(text, safe="", errors="replace"),
        "label": lambda text, limit=200: "" if text is None else clean_label(text, limit),
        "plain": _format_plain,
        "problem_title": get_problem_title,
        "text": _format_text,
        "pointer": lambda name: escape_pointer(str(name)),
        "numbered": enumerate,
    }
    environment.globals |= {"windows": TIME_PRESETS, "version": __version__, "query": selection_query}
    return environment


def _format_text(value: Any) -> str:
    """Format any value as one text of any length."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _format_plain(value: Any) -> str:
    """Format any value as one short text."""
    text = _format_text(value)
    return text if len(text) <= 400 else f"{text[:400]}…"


def render_page(
    request: Request, name: str, status: int = 200, without_json: bool = False, **content: object
) -> Response:
    """Render a page; `content` is for its template, `without_json` hides the link to its JSON view.

    With a `TimeRange` as `times` the links to other pages keep it. A page with `refresh_seconds`
    reloads its content at that interval, where scripts run.
    """
    access = request.app.state.access
    around = {
        "path": request.url.path,
        "json_url": None if without_json or name in PAGES_WITHOUT_JSON or status != 200 else _json_url(request),
        "csrf_token": access.make_csrf_token(request),
        "refresh_seconds": None,
        "times": None,
        "signed_in": SESSION_COOKIE in request.cookies and not access.is_open,
        "root": get_server(request).settings.root_path,
        "pages": (*NAVIGATION, *list_app_navigation(get_host(request).opened), *CLOSING_NAVIGATION),
    }
    text = create_environment().get_template(f"{name}.html").render(around | content)
    return HTMLResponse(prefix_links(text, around["root"]), status, PAGE_HEADERS)


def prefix_links(page: str, root: str) -> str:
    """Put a root path before the local addresses of a page; in texts of traces quotes are escaped, so that they stay.

    >>> prefix_links('<a href="/traces">href=&#34;/x&#34;</a>', "/rag")
    '<a href="/rag/traces">href=&#34;/x&#34;</a>'
    """
    return re.sub(r'((?:href|src|action)=")(?=/(?!/))', lambda match: match[1] + root, page) if root else page


def _json_url(request: Request) -> str:
    """Return the URL of the JSON view of a page."""
    path = "/overview" if request.url.path == "/" else quote(request.url.path.removesuffix("/"), errors="replace")
    parameters: Iterable[tuple[str, str]] = [(key, text) for key, text in request.query_params.multi_items() if text]
    query = urlencode(list(parameters), errors="replace")
    return f"{path}.json" + (f"?{query}" if query else "")


def render_error(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Render an error page."""
    page = render_page(request, "error", status, code=status, detail=detail)
    page.headers.update(headers or {})
    return page
