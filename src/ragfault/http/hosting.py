"""What a server lets the pages of apps use: its live traffic, its renderer, and what an app opened for its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from fastapi import Depends, Query, Request
from msgspec import Struct
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from ragfault.http.problems import problem_responses
from ragfault.labels.label import Label
from ragfault.model.records import Verdicts

T = TypeVar("T")
DAY_MINUTES = 24 * 60


class TimeRange(NamedTuple):
    """The minutes that a view shows, up to now or between two times; see `PageHost.parse_range`."""

    window: int
    """Length in minutes."""
    until: int
    """The minute after the last one."""
    is_fixed: bool
    """True where begin or end was chosen; else it moves on with the time."""

    @property
    def query(self) -> str:
        """The parameters of a link that keep it."""
        if not self.is_fixed:
            return f"window={self.window}"
        return f"since={60 * (self.until - self.window)}&until={60 * self.until}"


class WindowView(Struct, frozen=True, kw_only=True):
    """A view of the traffic within a window of minutes."""

    now: float
    """Seconds since 1970."""
    window: int
    """Minutes."""
    until: int
    """The minute after the last one."""


class RouteView(WindowView, frozen=True, kw_only=True):
    """A view of the traffic of one route, or of all, within a window of minutes."""

    route: str | None
    """None: all routes; empty: traces without a route."""


# form value for traces without a route
NO_ROUTE = "-"


def parse_route(text: str | None) -> str | None:
    """Parse the route of a form: empty means all routes (None), "-" the traces without a route ("")."""
    return "" if text == NO_ROUTE else text or None


class PageHost(Protocol):
    """A server that shows pages of apps, at `app.state.host` of its application."""

    opened: Mapping[str, Any]
    """App → what it opened for its pages; None where the server was started without the files of its options."""

    def now(self) -> float:
        """Return the seconds since 1970, UTC; a demo has a clock of its own."""
        ...

    def get_cached(self, name: str, compute: Callable[[], T], fresh_seconds: float) -> T:
        """Return a cached value, computed anew where it is older than a few seconds more than it is fresh."""
        ...

    def parse_range(self, query: Mapping[str, str]) -> TimeRange:
        """Parse the parameters `since` and `until`, or `window` in minutes up to now. Raises UsageError."""
        ...

    def list_routes(self) -> tuple[str, ...]:
        """Return the routes by name; an empty text for the traces without a route."""
        ...

    def count_traces(self, times: TimeRange, route: str | None = None) -> int:
        """Count the traces of a range of time, of one route or of all."""
        ...

    def iterate_bodies(self, text: str, limit: int, times: TimeRange, route: str | None = None) -> Iterator[str]:
        """Iterate over the traces, as JSON, that contain a text among the `limit` latest ones of a range of time."""
        ...

    def read_labels(self) -> tuple[Label, ...]:
        """Return the human labels in the order of arrival."""
        ...

    def read_verdicts(self, trace: str) -> Verdicts | None:
        """Return the verdicts on a trace; None for an unknown trace, and for one that is not judged."""
        ...

    def render_page(
        self, request: Request, name: str, status: int = 200, without_json: bool = False, **content: object
    ) -> Response:
        """Render a page; `content` is for its template, `without_json` hides the link to its JSON view."""
        ...

    def render_error(
        self, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Render an error page."""
        ...


def get_host(request: Request) -> PageHost:
    """Return the server that received a request."""
    host: PageHost = request.app.state.host
    return host


async def _provide_host(request: Request) -> PageHost:
    # FastAPI would call a function that is not async in a thread
    return get_host(request)


Host = Annotated[PageHost, Depends(_provide_host)]

INVALID: Any = {"responses": problem_responses(422)}

TextParam = Annotated[str | SkipJsonSchema[None], Query(max_length=1000)]

TimeParam = Annotated[str, Query(max_length=40, description="Seconds since 1970, or an ISO time in UTC.")]

WindowParam = Annotated[int, Query(ge=1, le=366 * DAY_MINUTES)]


def read_times(
    host: Host, window: WindowParam = DAY_MINUTES, since: TimeParam = "", until: TimeParam = ""
) -> TimeRange:
    """Build the range that the query parameters ask for: a window up to now, or between two times."""
    return host.parse_range({"window": str(window), "since": since, "until": until})


Times = Annotated[TimeRange, Depends(read_times)]
