"""Pages of other apps: those of the table of apps, and what each opens for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from ragfault.apps.registry import list_apps
from ragfault.http.page_routes import AppPages


@lru_cache(maxsize=1)
def load_app_pages() -> dict[str, AppPages]:
    """Load the pages of the apps that are installed, by app."""
    return {app.name: import_module(app.pages).PAGES for app in list_apps() if app.pages is not None}


def open_app_pages(files: Mapping[str, Path]) -> dict[str, Any]:
    """Open what the pages of each app show, from the files of their options. Raises what is wrong with the files."""
    return {name: None if pages.open is None else pages.open(files) for name, pages in load_app_pages().items()}


def list_app_routers() -> list[APIRouter]:
    """List the routers of all pages."""
    return [router for pages in load_app_pages().values() for router in pages.routers]


def list_app_packages() -> list[str]:
    """List the packages with the templates of all pages."""
    return [pages.package for pages in load_app_pages().values()]


def list_app_navigation(opened: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List paths and titles of the pages that have something to show."""
    return [
        pages.navigation for name, pages in load_app_pages().items() if pages.open is None or opened[name] is not None
    ]
