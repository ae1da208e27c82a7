"""A real browser for the tests of the dashboard: Debian's Chromium, and a page that tells all that it tried to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["COLOURS", "SCRIPTS", "Visit", "list_violations", "start_browser"]

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

SCRIPTS = ("/static/theme.js", "/static/dashboard.js", "/static/auto-refresh.js")
"""The only scripts of the pages."""

COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that another theme could break."""

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextlib.contextmanager
def start_browser() -> Iterator[Any]:
    """Start Chromium; skip the test where it is not installed."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no Chromium at {CHROMIUM}")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


def list_violations(page: Any, rules: list[str] | None = None) -> list[tuple[str, str]]:
    """List the violations that axe finds: of WCAG 2.2 AA and its best practices, or of some rules alone."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(Path(package.__file__).with_name("axe.min.js").read_text("utf-8"))
    only = {"type": "tag", "values": TAGS} if rules is None else {"type": "rule", "values": rules}
    asked = {"runOnly": only, "resultTypes": ["violations"], "iframes": False}
    results = page.evaluate("asked => axe.run(document, asked).then(found => found.violations)", asked)
    return [(violation["id"], violation["nodes"][0]["html"]) for violation in results]


class Visit:
    """A page that is open, with all that it tried to do."""

    def __init__(self, chromium: Any, url: str, path: str = "/", **options: Any) -> None:
        self.url = url
        self.context = chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        self.page = self.context.new_page()
        self.abroad: list[str] = []
        self.noise: list[str] = []
        self.page.on("request", self._asked)
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noise.append("dialog"), dialog.dismiss()))
        self.open(path)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.url + "/"):
            self.abroad.append(request.url)

    def open(self, path: str) -> None:
        """Go to a page."""
        self.page.goto(self.url + path)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert [message for message in self.noise if "404 (Not Found)" not in message] == []
            assert self.abroad == []
