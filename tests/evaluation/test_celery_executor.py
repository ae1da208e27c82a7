"""Laws of the executor on Celery workers, on a real worker behind a broker and results in folders."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragfault.evaluation.celery_executor import CeleryExecutor
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.errors import RunError, UsageError
from ragfault.model.records import Chunk, Trace

celery = pytest.importorskip("celery", reason="celery is not installed (ragfault[celery])")

APP = """
from celery import Celery
from ragfault.evaluation.celery_executor import register_task

app = Celery("ragfault_jobs", broker="filesystem://", backend="file://{folder}/results")
app.conf.broker_transport_options = {{
    "data_folder_in": "{folder}/queue", "data_folder_out": "{folder}/queue", "control_folder": "{folder}/control",
}}
app.conf.broker_connection_retry_on_startup = True
register_task(app)
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("queue", "control", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "ragfault_jobs.py").write_text(APP.format(folder=tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("ragfault_jobs", None)
    yield importlib.import_module("ragfault_jobs").app
    sys.modules.pop("ragfault_jobs", None)


def build_traces() -> list[Trace]:
    chunk = Chunk(id="a", text="The ferry leaves at ten.")
    return [Trace(id=str(at), query="When?", chunks=(chunk,), answer=f"The ferry leaves at {at}.") for at in range(30)]


@pytest.mark.long
def test_celery_workers_give_the_same_scores(app: Any, tmp_path: Path):
    """The scores are those of one process, whatever worker made them."""
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "celery", "-A", "ragfault_jobs", "worker", "--pool", "solo", "--loglevel", "ERROR"]
    worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths})
    try:
        options = {"judge": "lexical", "metrics": ["groundedness", "refusal"], "batch": 10}
        executor = CeleryExecutor(app, in_flight=2, timeout=120)
        spread = evaluate(build_traces(), tmp_path / "spread", executor=executor, **options)
    finally:
        worker.terminate()
        worker.wait(30)
    alone = evaluate(build_traces(), tmp_path / "alone", **options)
    assert list(spread.scores()) == list(alone.scores())


def test_without_a_worker_the_evaluation_stops(app: Any, tmp_path: Path):
    """The error says what is missing."""
    with pytest.raises(RunError, match=r"no Celery worker ended a batch within 0\.3 s"):
        evaluate(
            build_traces(),
            tmp_path / "run",
            judge="lexical",
            metrics=["refusal"],
            executor=CeleryExecutor(app, timeout=0.3),
        )


def test_an_app_that_keeps_no_results_is_refused():
    """Results must come back."""
    with pytest.raises(UsageError, match="keeps no results"):
        list(CeleryExecutor(celery.Celery("bare", broker="memory://")).map_unordered(len, ["a"]))
    with pytest.raises(UsageError, match="at least 1"):
        CeleryExecutor(None, in_flight=0)
