"""The store of live traces, independent of its database engine."""

from __future__ import annotations

from ragfault.apps.watch.server.storage.rollups import RollupTables
from ragfault.apps.watch.server.storage.spot_checks import SpotCheckStore


class TraceStore(RollupTables):
    """A store of live traces with their scores, roll-ups, metadata and spot checks."""

    spot_checks: SpotCheckStore
