"""The hub: where models of the Hugging Face hub stand on this machine. Nothing is fetched."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["NAME", "cache", "snapshot"]

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""The shape of a model's name on the hub."""


def cache() -> Path:
    """The folder where the hub's own tools keep what they fetched."""
    held = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(held or f"{home}/hub").expanduser()


def snapshot(name: str) -> Path | None:
    """The folder of a model in the cache of the hub: its main version, else the one fetched last.

    >>> snapshot("nobody/nothing") is None
    True
    """
    folder = cache() / f"models--{name.replace('/', '--')}"
    try:
        main = folder / "snapshots" / (folder / "refs" / "main").read_text(encoding="ascii").strip()
        if main.is_dir():
            return main
    except (OSError, ValueError):
        pass
    try:
        held = [place for place in (folder / "snapshots").iterdir() if place.is_dir()]
    except OSError:
        return None
    return max(held, key=lambda place: (place.stat().st_mtime, place.name), default=None)
