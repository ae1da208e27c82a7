"""Trackers of experiments: a run reaches MLflow whole, and becomes the CSV of Weights & Biases."""

from __future__ import annotations

import csv
import io
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from ragfault import Chunk, Gold, Run, Trace, evaluate
from ragfault.cli.commands import run_command as command
from ragfault.diagnosis.run_analysis import analyze
from ragfault.model.errors import OutputError, UsageError
from ragfault.report.experiment_trackers import collect_metrics, list_trace_rows, to_mlflow, write_history
from remembered import LEXICAL

TEXT = "The harbour office opens at 7:30 on weekdays."
METRICS = ["groundedness", "ndcg@10", "recall(relevant=2)@3", "context_recall"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    traces = [
        Trace(
            id=str(n),
            query="=When does it open?",
            chunks=(Chunk(id="a", text=TEXT),),
            answer="It opens at 7:30 on weekdays." if n % 3 else "It opens at noon.",
            gold=Gold(chunks={"a": 1.0}),
        )
        for n in range(12)
    ]
    return evaluate(traces, tmp_path_factory.mktemp("runs") / "v1", judge=LEXICAL, metrics=METRICS)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlflow").as_uri()


@pytest.mark.filterwarnings("ignore")
def test_all_of_a_run_is_logged_to_mlflow(run: Run, store: str, tmp_path: Path):
    """Its parameters, figures, table, report and files are there, and MLflow's run is finished."""
    import mlflow

    key = to_mlflow(run, uri=store, experiment="handbook", name="first")
    client = mlflow.MlflowClient(tracking_uri=store)
    logged = client.get_run(key)
    assert (logged.info.status, logged.info.run_name) == ("FINISHED", "first"), version("mlflow-skinny")
    assert logged.data.params["judge"] == run.manifest.judge
    figures = collect_metrics(analyze(run))
    assert figures["groundedness"] == pytest.approx(8 / 12)
    assert logged.data.metrics["groundedness"] == pytest.approx(figures["groundedness"])
    assert logged.data.metrics["ndcg_10"] == figures["ndcg@10"] == 1.0
    assert logged.data.metrics["context_recall.undefined"] == 12
    assert "context_recall" not in logged.data.metrics
    files = {item.path for item in client.list_artifacts(key)}
    assert files == {"report.md", "run", "traces.json"}
    again = Run.open(client.download_artifacts(key, "run", str(tmp_path)))
    assert again.manifest == run.manifest
    table = json.loads(Path(client.download_artifacts(key, "traces.json", str(tmp_path))).read_text())
    assert table["columns"][:4] == ["trace", "route", "query", "answer"]
    assert len(table["data"]) == 12
    to_mlflow(run, uri=store, experiment="handbook")
    assert len(client.search_experiments(filter_string="name = 'handbook'")) == 1


@pytest.mark.filterwarnings("ignore")
def test_what_mlflow_refuses_is_reported(run: Run):
    """A store that there cannot be is a usage error, and no traceback."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    with pytest.raises(UsageError, match="MLflow refuses"):
        to_mlflow(run, uri="nosuch://place")


def test_runs_become_a_history_and_a_table(run: Run, tmp_path: Path):
    """One row a run, one a trace; no cell is a formula, and nothing is written over."""
    paths = write_history([run, run.path], tmp_path / "out")
    history, table = (list(csv.DictReader(io.StringIO(path.read_text()))) for path in paths)
    assert [(row["_step"], row["name"]) for row in history] == [("0", "v1"), ("1", "v1")]
    assert float(history[0]["groundedness"]) == pytest.approx(8 / 12)
    assert float(history[0]["groundedness.low"]) < 8 / 12 < float(history[0]["groundedness.high"])
    assert len(table) == 24
    assert table[0]["query"] == "'=When does it open?"
    assert (table[0]["groundedness"], table[0]["context_recall"]) == ("0.0", "")
    with pytest.raises(OutputError, match="exists already"):
        write_history([run], tmp_path / "out")


def test_a_table_holds_no_more_than_asked(run: Run):
    """Each row has the values of its own trace."""
    rows = list(list_trace_rows(run, most=4))
    assert [row["trace"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["groundedness"] for row in rows] == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.filterwarnings("ignore")
def test_the_command_exports(run: Run, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """To either; what does not go together is refused."""
    assert command(["run", "export", str(run.path), "--to", "wandb", "-o", str(tmp_path / "w")]) == 0
    assert (tmp_path / "w" / "history.csv").is_file()
    assert command(["run", "export", str(run.path), "--to", "mlflow", "--uri", store]) == 0
    assert " of MLflow" in capsys.readouterr().out
    assert command(["run", "export", str(run.path), "--to", "wandb"]) == 2
    assert command(["run", "export", str(run.path), "--to", "mlflow", "-o", str(tmp_path)]) == 2


def test_figures_of_a_larger_run_are_those_of_a_sample_and_say_so(run: Run, tmp_path: Path):
    """The history has the size of the sample beside that of the run; a run that is measured whole has none."""
    for sample, expected in ((5, "5"), (0, None), (20, None)):
        history, _ = write_history([run], tmp_path / str(sample), sample=sample)
        [row] = csv.DictReader(io.StringIO(history.read_text()))
        assert (row["traces"], row.get("sample")) == ("12", expected)
        assert int(row["groundedness.scored"]) == int(expected or 12)
