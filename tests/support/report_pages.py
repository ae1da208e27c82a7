"""Pages of reports: one opened from a file in a browser, and the names in its text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class FileVisit:
    """A page of a file that is open; it may report no fault and ask for nothing but itself."""

    def __init__(self, chromium: Any, place: Path, anchor: str = "", **options: Any) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.noise: list[str] = []
        self.context.route("**/*", self._route)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noise.append("dialog"), dialog.dismiss()))
        self.page.goto(place.as_uri() + anchor)
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def _route(self, route: Any) -> None:
        """Let through the page itself; whatever else is asked for is written down and refused."""
        if route.request.is_navigation_request() and len(self.requests) <= 1:
            route.continue_()
        else:
            route.abort()

    def __enter__(self) -> FileVisit:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.noise == []
            assert len(self.requests) == 1


class PageNames(HTMLParser):
    """The elements and attributes of a page, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name in ("href", "xlink:href"))
