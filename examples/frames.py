"""Frames: traces from a table of pandas, polars or Hugging Face's datasets, and scores back into one.

Run it with `python examples/frames.py`; it asks no network and needs no key.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version

import datasets
import pandas
import polars

from ragfault import Run, evaluate

ROWS = [
    {
        "question": "When does the last ferry leave?",
        "contexts": ["The last ferry to the island leaves at 22:40 every evening."],
        "answer": "The last ferry leaves at 22:40.",
    },
    {
        "question": "Do dogs pay on the ferry?",
        "contexts": ["Dogs travel free on the ferry, on a lead."],
        "answer": "Dogs pay two euros.",
    },
]


def main() -> None:
    """Evaluate the same rows from three kinds of frames, and show the scores as a frame."""
    frames = {
        "pandas": pandas.DataFrame(ROWS),
        "polars": polars.DataFrame(ROWS),
        "datasets": datasets.Dataset.from_list(ROWS),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, table in frames.items():
            run: Run = evaluate(table, f"{folder}/{name}", metrics=["context_relevance", "groundedness"])
            print(f"{name} {version(name)}: {run.manifest.source[0]}")
        print(run.to_polars().pivot("metric", index="trace", values="value"))


if __name__ == "__main__":
    main()
