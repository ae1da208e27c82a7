"""MLflow: a run of ragfault as a run of MLflow, with parameters, figures, a table of traces, a report and its files.

Run it with `python examples/mlflow_run.py`; it asks no network and needs no key, because it logs to a folder. On the
command line: `ragfault run export runs/v1 --to mlflow --uri http://127.0.0.1:5000`.
"""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a folder is the lightest store; in earnest, name your server

import mlflow

from ragfault import Chunk, Trace, evaluate
from ragfault.report.experiment_trackers import to_mlflow

PAGE = Chunk(id="ferry", text="The last ferry to the island leaves at 22:40 every evening.")
QUERY = "When does the last ferry leave?"
TRACES = [
    Trace(id="1", query=QUERY, chunks=(PAGE,), answer="The last ferry leaves at 22:40."),
    Trace(id="2", query=QUERY, chunks=(PAGE,), answer="The last ferry leaves at noon on Sundays."),
]


def main() -> None:
    """Evaluate two traces, log the run, and show what MLflow has of it."""
    print(f"mlflow {version('mlflow-skinny')}")
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(TRACES, f"{folder}/v1", metrics=["context_relevance", "groundedness"])
        store = Path(folder, "mlflow").as_uri()
        key = to_mlflow(run, uri=store, experiment="handbook")
        client = mlflow.MlflowClient(tracking_uri=store)
        logged = client.get_run(key).data
        print(f"groundedness {logged.metrics['groundedness']:.2f} over {logged.params['traces']} traces")
        print(", ".join(sorted(item.path for item in client.list_artifacts(key))))


if __name__ == "__main__":
    main()
