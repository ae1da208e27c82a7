"""Documents that the commands of the guard print as JSON."""

from __future__ import annotations

from typing import Any

from ragfault.apps.guard.certificate import Certificate
from ragfault.apps.guard.replay import GuardReplay

DOCUMENTS: dict[str, tuple[Any, ...]] = {"guard certify": (Certificate,), "guard replay": (GuardReplay,)}
"""Verb → the types of its document."""
