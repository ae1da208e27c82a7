"""What apps stored with a run, as sections of its report."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ragfault.apps.registry import list_apps
from ragfault.io.runs.run import Run
from ragfault.report.document import Block, Heading


class AppSection(NamedTuple):
    """The section of one app: its name, and a heading with what belongs below it."""

    app: str
    blocks: list[Block]

    @property
    def title(self) -> str:
        """Return the words of the heading."""
        heading = self.blocks[0]
        return heading.text if isinstance(heading, Heading) and isinstance(heading.text, str) else self.app


def build_app_sections(run: Run) -> list[AppSection]:
    """Build a section for every app that stored something to show with the run."""
    modules = [(app.name, import_module(app.report)) for app in list_apps() if app.report is not None]
    sections = [AppSection(name, module.build_sections(run)) for name, module in modules]
    return [section for section in sections if section.blocks]
