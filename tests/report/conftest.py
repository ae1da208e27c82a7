"""What several tests of reports share: a browser that is started once, and the runs of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import start_browser
from ragfault import evaluate
from ragfault.io.runs.run import Run


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def runs(demo_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Both versions of the demo system, by a fast judge, as a bisection judges again."""
    folder, traces = tmp_path_factory.mktemp("runs"), demo_runs / "handbook"
    old, new = (evaluate(traces / f"traces-{name}.jsonl", folder / name, judge="embedded") for name in ("v1", "v2"))
    return old, new
