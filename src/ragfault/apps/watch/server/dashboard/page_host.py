"""The server as pages of other apps see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from ragfault.apps.watch.server.api import detail_views
from ragfault.apps.watch.server.dashboard import page_renderer
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.http.hosting import TimeRange
from ragfault.labels.label import Label
from ragfault.labels.reading.lines import list_label_line
from ragfault.model.records import Verdicts

T = TypeVar("T")


class AppPageHost:
    """A `PageHost` over the state of a server."""

    def __init__(self, server: ServerState, opened: Mapping[str, Any]) -> None:
        self._server, self.opened = server, opened

    def now(self) -> float:
        """Return the seconds since 1970, UTC."""
        return self._server.now()

    def get_cached(self, name: str, compute: Callable[[], T], fresh_seconds: float) -> T:
        """Return a cached value."""
        return self._server.get_cached(name, compute, fresh_seconds)

    def parse_range(self, query: Mapping[str, str]) -> TimeRange:
        """Parse the parameters of a range of time."""
        return detail_views.parse_range(self._server, query)

    def list_routes(self) -> tuple[str, ...]:
        """Return the routes by name."""
        return self._server.store.list_routes()

    def count_traces(self, times: TimeRange, route: str | None = None) -> int:
        """Count the traces of a range of time."""
        return self._server.store.count_traces(_select(times, route))

    def iterate_bodies(self, text: str, limit: int, times: TimeRange, route: str | None = None) -> Iterator[str]:
        """Iterate over the traces, as JSON, that contain a text."""
        return self._server.store.iterate_bodies(_select(times, route), text, limit)

    def read_labels(self) -> tuple[Label, ...]:
        """Return the human labels in the order of arrival."""
        return tuple(label for line in self._server.store.read_labels() for label in list_label_line(line))

    def read_verdicts(self, trace: str) -> Verdicts | None:
        """Return the verdicts on a trace."""
        stored = self._server.store.get_trace(trace)
        return None if stored is None else stored.verdicts

    def render_page(
        self, request: Request, name: str, status: int = 200, without_json: bool = False, **content: object
    ) -> Response:
        """Render a page."""
        return page_renderer.render_page(request, name, status, without_json, **content)

    def render_error(
        self, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Render an error page."""
        return page_renderer.render_error(request, status, detail, headers)


def _select(times: TimeRange, route: str | None) -> TraceSelection:
    """Select the traces of a range of time."""
    return TraceSelection(since=60.0 * (times.until - times.window), until=60.0 * times.until, route=route)
