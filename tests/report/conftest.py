"""What several tests of reports share: a browser that is started once, and the runs of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import start_browser
from ragfault.io.runs.run import Run


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def runs(demo_runs: Path) -> tuple[Run, Run]:
    """Both versions of the demo system."""
    return Run.open(demo_runs / "v1"), Run.open(demo_runs / "v2")
