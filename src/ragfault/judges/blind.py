"""The judge that looks at nothing, for metrics that read no verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.ports import Part
from ragfault.records import Trace, Verdicts

__all__ = ["Blind"]


class Blind:
    """A judge that offers no verdict: every metric that would read one is undefined.

    >>> Blind().observe([Trace(id="1", query="q")])[0].chunk is None
    True
    """

    offers: frozenset[Part] = frozenset()
    fingerprint = "none"

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Verdicts without any part."""
        return [Verdicts(trace=trace.id, judge=self.fingerprint) for trace in traces]
