"""Results that print themselves as their report."""

from __future__ import annotations

from importlib import import_module


class PrintedResult:
    """Result of an analysis whose `str` is its report, in at most 40 lines of 80 columns; `repr` shows the fields.

    A notebook shows it as HTML.
    """

    __slots__ = ()

    def __str__(self) -> str:
        # Found by name: reports lie in a layer above.
        return str(import_module("ragfault.report.results").render_result(self))

    def _repr_html_(self) -> str:
        return str(import_module("ragfault.report.results").render_result_html(self))
