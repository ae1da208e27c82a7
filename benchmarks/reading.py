"""Measure how many Python calls the reading of a line takes, in ragfault's own form and with columns to infer.

    python benchmarks/reading.py

A count of calls does not depend on the load of the machine. A file of one line shows the cost of recognising a form,
a file of 1,000 lines that of a line by itself. The last row counts the lines of code that infer and read records.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import tempfile
from pathlib import Path
from typing import Any

from ragfault.io.trace_reader import read_traces

PACKAGE = Path(__file__).parent.parent / "src" / "ragfault" / "io"
READERS = (
    *("formats/*.py", "shapes/*.py", "agents/*.py", "decoder.py", "field_values.py", "normalization.py"),
    *("gold_values.py", "trace_reader.py", "otel/tracing_platforms.py", "datasets/natural_questions.py"),
)
"""Modules that infer and read foreign records."""
SIZES = (1, 32, 1000)


def make_native_record(number: int) -> dict[str, Any]:
    """Make a trace as ragfault writes it."""
    return {
        "id": f"t{number}",
        "query": f"When does ferry {number} leave?",
        "chunks": [
            {"id": f"c{number}-{rank}", "text": f"Ferry {number} leaves pier {rank} at noon.", "score": 0.5}
            for rank in range(5)
        ],
        "answer": f"Ferry {number} leaves at noon.",
        "latency": {"total": 12.5},
        "metadata": {"language": "en"},
    }


def make_foreign_record(number: int) -> dict[str, Any]:
    """Make a line of a log of an application, under names of its own."""
    trace = make_native_record(number)
    return {
        "qid": trace["id"],
        "question": trace["query"],
        "docs": [{"doc_id": c["id"], "content": c["text"], "sim": c["score"]} for c in trace["chunks"]],
        "bot_reply": trace["answer"],
        "expected_answer": "It leaves at noon.",
        "topic": "ferries",
    }


def count_calls(path: Path) -> int:
    """Count the Python calls of one reading, after one that fills the caches of names."""
    list(read_traces(path))
    profile = cProfile.Profile()
    profile.enable()
    list(read_traces(path))
    profile.disable()
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]


def main() -> None:
    print("| calls a line, in a file of | " + " | ".join(f"{size:,}" for size in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.jsonl"
        for name, make in (("ragfault's own form", make_native_record), ("columns to infer", make_foreign_record)):
            cells = []
            for size in SIZES:
                path.write_text("".join(json.dumps(make(number)) + "\n" for number in range(size)))
                cells.append(f"{count_calls(path) / size:,.0f}")
            print(f"| {name} | {' | '.join(cells)} |")
    files = [file for pattern in READERS for file in PACKAGE.glob(pattern)]
    print(
        f"\n{sum(len(file.read_text().splitlines()) for file in files):,} lines infer and read records of other tools"
    )


if __name__ == "__main__":
    main()
