"""Count how often a verb reads its input and the tables of its runs.

    python -m benchmarks.passes

Evaluates both releases of the demo and runs the verbs on them. A pass over traces or verdicts reads whole records (or
all chunks); a read of columns reads a few of them; the gold column is read by either.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ragfault.cli.commands import run_command
from ragfault.io.runs.run import Run

KINDS = ("input", "traces", "trace columns", "gold", "verdicts", "verdict columns", "scores")
"""What is counted: reads of the input file, passes over whole records, reads of columns."""
_opened: list[str] = []


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _opened.append(arguments[0])


@cache
def _watch_files() -> None:
    """Note each file that is opened from now on, once in a process: a hook stays until its end."""
    sys.addaudithook(_note_open)


class PassCounter:
    """The reads of runs and of an input file while it is open."""

    def __init__(self, input_file: Path | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._input = str(input_file)
        self._methods = (Run.iterate_batches, Run.to_arrow)

    def _note_read(self, table: str, columns: Sequence[str] | None) -> None:
        kind = (
            table if table == "scores" or not columns or "chunks" in columns else f"{table.removesuffix('s')} columns"
        )
        self.counts[kind] += 1
        self.counts["gold"] += table == "traces" and (not columns or "gold" in columns)

    def __enter__(self) -> PassCounter:
        iterate, load = self._methods
        counter = self

        def iterate_batches(run: Run, table: Any = "scores", columns: Any = None, **coded: Any) -> Iterator[Any]:
            counter._note_read(table, columns)
            return iterate(run, table, columns, **coded)

        def to_arrow(run: Run, table: Any = "scores", columns: Any = None, **coded: Any) -> Any:
            counter._note_read(table, columns)
            return load(run, table, columns, **coded)

        Run.iterate_batches, Run.to_arrow = iterate_batches, to_arrow  # type: ignore[method-assign,assignment]
        _watch_files()
        _opened.clear()
        return self

    def __exit__(self, *_: object) -> None:
        Run.iterate_batches, Run.to_arrow = self._methods  # type: ignore[method-assign]
        self.counts["input"] = _opened.count(self._input)


def count_verb(arguments: Sequence[str], input_file: Path | None = None) -> Counter[str]:
    """Count the reads of one command."""
    with PassCounter(input_file) as counter, contextlib.redirect_stdout(io.StringIO()):
        run_command([*arguments])
    return counter.counts


def main() -> None:
    print(f"| verb | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run_command(["demo", f"{folder}/demo"])
        old, new = folder / "demo" / "traces-v1.jsonl", folder / "demo" / "traces-v2.jsonl"
        verbs = {
            "evaluate": (["evaluate", str(old), "-o", f"{folder}/v1"], old),
            "evaluate ": (["evaluate", str(new), "-o", f"{folder}/v2"], new),
            "report": (["report", f"{folder}/v1"], None),
            "report --html": (["report", f"{folder}/v1", "--html", f"{folder}/v1.html"], None),
            "compare": (["compare", f"{folder}/v1", f"{folder}/v2"], None),
            "bisect": (["bisect", f"{folder}/v1", f"{folder}/v2"], None),
            "gate": (["gate", f"{folder}/v2", "--baseline", f"{folder}/v1"], None),
        }
        for name, (arguments, input_file) in verbs.items():
            counts = count_verb(arguments, input_file)
            print(f"| {name} | {' | '.join(str(counts[kind]) for kind in KINDS)} |", flush=True)


if __name__ == "__main__":
    main()
