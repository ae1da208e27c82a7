"""What several tests of reports share: a browser that is started once, and the runs of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser import start_browser
from ragfault import evaluate
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.io.runs.run import Run


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Both versions of the demo system."""
    folder = tmp_path_factory.mktemp("runs")
    write_handbook(folder / "handbook")
    old, new = (evaluate(folder / f"handbook/traces-{name}.jsonl", folder / name) for name in ("v1", "v2"))
    return old, new
