"""Compare what ragfault does now with the stored results, field by field, or store them anew.

python -m tests.golden [--update] [--values] [--all] [records | verbs]

`verbs` are the JSON output of every verb on the demo (`verbs/NAME.json`), `records` the traces that are read from the
records of other tools (`records/NAME.traces.jsonl`, from the inputs in `records/NAME.jsonl`). Exit code 1: something
differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHOWN = 12  # differences of a file that are listed


def main() -> int:
    sys.path.insert(0, str(HERE.parents[1] / "src"))  # the code of this checkout, whichever one is installed
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported, so that sums have one order
    from tests.golden import records, verbs
    from tests.golden.normal_form import format_value

    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="records | verbs", help="default: both")
    parser.add_argument("--update", action="store_true", help="store the results of now")
    parser.add_argument("--values", action="store_true", help="leave out differences of sentences")
    parser.add_argument("--all", action="store_true", help=f"list all differences of a file, not the first {SHOWN}")
    arguments = parser.parse_args()
    parts = arguments.parts or ["records", "verbs"]
    if unknown := set(parts) - {"records", "verbs"}:
        parser.error(f"{', '.join(unknown)}: choose records, verbs, or both")
    print_results = Printer(arguments.update, arguments.values, None if arguments.all else SHOWN)
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        folder = Path(place).resolve()
        verbs.set_environment(folder)
        if "records" in parts:
            for name, cases in records.read_all():
                print_results.take(HERE / "records" / f"{name}.traces.jsonl", cases, records.format_cases(cases))
        if "verbs" in parts:
            for name, result in verbs.run_verbs(folder):
                print_results.take(HERE / "verbs" / f"{name}.json", result, format_value(result) + "\n")
    return print_results.finish(parts)


class Printer:
    """Comparison of results with stored files, which prints as it goes."""

    def __init__(self, update: bool, values: bool, shown: int | None) -> None:
        self.update, self.values, self.shown = update, values, shown
        self.files: set[Path] = set()
        self.different = 0

    def take(self, path: Path, result: Any, text: str) -> None:
        """Compare a result with its file, or write it."""
        self.files.add(path)
        if self.update:
            path.parent.mkdir(exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                self.different += 1
                print(f"written: {path.relative_to(HERE)}")
            return
        if not path.exists():
            self.different += 1
            print(f"{path.relative_to(HERE)}: nothing is stored; run `make golden-update`")
            return
        self.show(path, list(self.compare(path, result)))

    def compare(self, path: Path, result: Any) -> Any:
        """Yield the differences of a result from its file."""
        from tests.golden.normal_form import is_sentence, list_differences, outline
        from tests.golden.records import parse
        from tests.golden.verbs import READ_BY_MODEL

        values = (parse(path), parse(path, result))
        if path.stem in READ_BY_MODEL:
            values = tuple(map(outline, values))
        for where, stored, now in list_differences(*values):
            if not (self.values and (where.endswith(".sentences") or (is_sentence(stored) and is_sentence(now)))):
                yield where, stored, now

    def show(self, path: Path, differences: list[tuple[str, Any, Any]]) -> None:
        """Print the differences of a file."""
        if not differences:
            return
        self.different += 1
        print(f"{path.relative_to(HERE)}: {len(differences)} differences")
        for where, stored, now in differences[: self.shown]:
            print(f"  {where}\n    stored  {show(stored)}\n    now     {show(now)}")
        if self.shown is not None and len(differences) > self.shown:
            print(f"  and {len(differences) - self.shown} more (--all lists them)")

    def finish(self, parts: list[str]) -> int:
        """Name stored files that no case gives, print the sum, and return the exit code."""
        stored = [path for part, glob in (("records", "*.traces.jsonl"), ("verbs", "*.json")) if part in parts
                  for path in sorted((HERE / part).glob(glob))]  # fmt: skip
        for path in stored:
            if path not in self.files:
                self.different += 1
                print(f"{path.relative_to(HERE)}: no case gives this file{'; removed' if self.update else ''}")
                if self.update:
                    path.unlink()
        print(f"{len(self.files)} files, {self.different} {'written' if self.update else 'different'}")
        return int(bool(self.different) and not self.update)


def show(value: Any) -> str:
    """Return a value on one line of 200 characters at most."""
    import json

    text = "(none)" if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."


if __name__ == "__main__":
    sys.exit(main())
