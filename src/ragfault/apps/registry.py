"""The table of the apps: what each adds to the command line, the JSON documents and the server.

An app is a folder beside this file. Its module `app` states an `App`, and imports this module only. Everything outside
the apps reads this table and names none of them, so that a folder can be deleted: its verbs, documents and pages are
then not there.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from os.path import dirname
from pkgutil import iter_modules
from typing import Literal, NamedTuple

VerbGroup = Literal["measure", "locate", "improve", "protect", "data and settings"]
"""Group of the overview that lists a verb."""


class Verb(NamedTuple):
    """A verb of the command line."""

    module: str
    """The module that defines its command, under the last word of the verb; empty for a group of verbs."""
    summary: str
    """Its line in the overview."""
    group: VerbGroup


class App(NamedTuple):
    """An app, and where the parts lie that it adds to the core and to the server."""

    name: str
    """The name of its folder."""
    verbs: dict[str, Verb]
    """Verb → its command; a verb of two words is one of the group that the first names."""
    documents: str
    """The module whose `DOCUMENTS` has the JSON documents of its verbs, and `COMPUTED_FIELDS` of its records."""
    pages: str | None = None
    """The module whose `PAGES` the server of `ragfault serve` shows; None without pages."""
    report: str | None = None
    """The module whose `build_sections` adds to the report of a run what the app stored with it; None: nothing."""
    page_options: tuple[tuple[str, str], ...] = ()
    """Options of `ragfault serve` that name files for its pages: name and help."""
    ci: str | None = None
    """The module whose `prepare_ci` makes of these options what `ragfault ci` does with its run; None: nothing."""
    ci_options: tuple[tuple[str, str, str], ...] = ()
    """Options of `ragfault ci`: name, placeholder and help."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Former verbs, each with what to use now."""


@lru_cache(maxsize=1)
def list_apps() -> tuple[App, ...]:
    """List the apps that are installed, by name."""
    names = sorted(module.name for module in iter_modules([dirname(__file__)]) if module.ispkg)
    return tuple(import_module(f"ragfault.apps.{name}.app").APP for name in names)
