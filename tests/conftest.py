"""What all tests share: settings of hypothesis, no cache of the user, and the demo, evaluated once."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from waiting import wait_until

settings.register_profile("ragfault", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("ragfault")

# As the command line does: tests run in processes beside each other, and threads of small products wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Child processes inherit it, so no test reads or writes the cache of whoever runs the tests.
os.environ["RAGFAULT_CACHE"] = str(Path(tempfile.mkdtemp(prefix="ragfault-tests-")) / "replies.sqlite")

# Otherwise each of the hundreds of child processes of the tests compiles all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Import the package as users do: as it is a plugin of pytest, each worker would compile all of it anew."""
    getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("ragfault")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a long test if only those are run: each worker would import all of them."""
    if config.option.markexpr != "long" or not collection_path.name.startswith("test_"):
        return None
    return None if "mark.long" in collection_path.read_text(encoding="utf-8") else True


def pytest_collection_finish() -> None:
    """Take what was collected out of the walks of the garbage collector: it lives to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def demo_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the demo in `handbook` and runs of both versions, `v1` and `v2`, by a fast judge.

    The first process that needs it makes it for all: tests read it, or copy what they alter.
    """
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    folder, draft = session / "demo-runs", session / "demo-runs-draft"
    try:
        # it stays, so that nobody makes the demo a second time
        (session / "demo-runs-claim").mkdir()
    except FileExistsError:
        wait_until(folder.exists, seconds=280.0, pause=0.2)
    else:
        draft.mkdir()
        _write_demo(draft)
        draft.rename(folder)
    before = _list_files(folder)
    yield folder
    assert _list_files(folder) == before, "a test altered the demo that all tests share"


def _write_demo(folder: Path) -> None:
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.io.datasets.demo_handbook import write_handbook

    write_handbook(folder / "handbook")
    for version in ("v1", "v2"):
        evaluate(folder / f"handbook/traces-{version}.jsonl", folder / version, judge="embedded")


def _list_files(folder: Path) -> list[tuple[str, int, int]]:
    """Return path, size and time of change of all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
