"""Bounds on what traffic names: routes and cohorts, each with its own series, roll-ups and rows on pages."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ragfault.apps.watch.monitoring.rollups import is_cohort
from ragfault.model.records import Trace

MAX_ROUTES = 100
"""Routes with figures of their own at one time: those with the most traffic; others are counted together."""
# values of a cohort field with figures of their own
MAX_COHORT_VALUES = 50
# traces of a name before it may take the place of one with less than half of its traffic
MIN_TRAFFIC = 20
# longest route or cohort value, in characters
MAX_LABEL_LENGTH = 120
MAX_ROUTE_READ = 1000
"""Characters of a route that are looked at: the patterns below take the square of the length at worst, and a sender may
write a route of a megabyte, in which one look held the server for minutes."""
# the route, or the value of a cohort field, of what is beyond the bounds
OTHER_LABEL = "other"

QUERY_STRING = re.compile(r"(?<=/)([^\s?#]*)[?#]\S*")
IDENTIFIER = re.compile(
    r"(?<![\w{])(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[^\s/@]+@[^\s/@]+\.\w+"
    r"|(?=[\w-]*\d)(?=[\w-]*[g-zG-Z_-])(?=[\w-]{16})[\w-]+|(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}|(?<=/)\d+(?=/|\s|$)|\d{5,})(?![\w}])"
)
"""UUIDs, mail addresses, long words with digits, hexadecimal numbers, and numbers that are long or part of a path."""


def template_route(name: str) -> str:
    """Replace what names one user or object in a route by `{id}`, and leave out the query string.

    A name that looks like that of a followed cohort says that it is a route.

    >>> template_route("GET /user/17/ask"), template_route("/v2/docs?page=3"), template_route("faq search")
    ('GET /user/{id}/ask', '/v2/docs', 'faq search')
    """
    template = IDENTIFIER.sub("{id}", QUERY_STRING.sub(r"\1", name[:MAX_ROUTE_READ]))
    return (f"route {template}" if is_cohort(template) else template)[:MAX_LABEL_LENGTH]


class TopNames:
    """The names with the most traffic, at most `size` at one time.

    The first names have a place; a later one takes that of the name with the least traffic once it has more than twice
    as much. Counts are halved now and then, so that names that went quiet lose their place, and memory is bounded.

    >>> names = TopNames(1)
    >>> names.admit("first"), names.admit("second")
    (True, False)
    >>> [names.admit("second") for _ in range(20)][-1], names.admit("first")
    (True, False)
    """

    def __init__(self, size: int, names: Iterable[str] = ()) -> None:
        self._size, self._counts = size, dict.fromkeys(names, 1)
        self._others: dict[str, int] = {}

    def admit(self, name: str) -> bool:
        """Count a trace of a name; return whether the name has a place."""
        if name in self._counts or len(self._counts) < self._size:
            self._counts[name] = self._counts.get(name, 0) + 1
            return True
        count = self._others.pop(name, 0) + 1
        least = min(self._counts, key=self._counts.__getitem__)
        if count >= MIN_TRAFFIC and count > 2 * self._counts[least]:
            self._others[least] = self._counts.pop(least)
            self._counts[name] = count
            return True
        self._others[name] = count
        if len(self._others) > 10 * self._size:
            self._others = {name: count // 2 for name, count in self._others.items() if count > 1}
            self._counts = {name: (count + 1) // 2 for name, count in self._counts.items()}
        return False


class LabelLimiter:
    """Bounds the routes and cohorts that traces may have; each value beyond them becomes "other" and is counted."""

    def __init__(self, list_routes: Callable[[], Iterable[str]], count: Callable[[str, int], None]) -> None:
        self._list_routes, self._count = list_routes, count
        self._routes: TopNames | None = None
        self._values: dict[str, TopNames] = {}
        self._lock = threading.Lock()

    def limit_route(self, trace: Trace) -> Trace:
        """Return a trace with its route as a template, or "other" where there are too many.

        The name that was sent stays in the metadata as `sent_route`, where it differs.
        """
        if trace.route is None:
            return trace
        route = template_route(trace.route)
        with self._lock:
            if self._routes is None:
                self._routes = TopNames(MAX_ROUTES, (name for name in self._list_routes() if name))
            if not self._routes.admit(route):
                self._count("other_route", 1)
                route = OTHER_LABEL
        if route == trace.route:
            return trace
        return replace(trace, route=route, metadata={"sent_route": trace.route} | trace.metadata)

    def limit_cohorts(self, trace: Trace, fields: Sequence[str]) -> Trace:
        """Return a trace as it is counted: values of cohort fields beyond the bound are "other"."""
        changed = {}
        for field in fields:
            value = trace.model if field == "model" else trace.metadata.get(field)
            if value is None or field == "route":
                continue
            text = str(value)
            with self._lock:
                names = self._values.setdefault(field, TopNames(MAX_COHORT_VALUES))
                if len(text) > MAX_LABEL_LENGTH or not names.admit(text):
                    changed[field] = OTHER_LABEL
        if not changed:
            return trace
        self._count("other_cohort", 1)
        model = changed.pop("model", trace.model)
        return replace(trace, model=model, metadata=trace.metadata | changed)
