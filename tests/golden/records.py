"""Traces that are read from the records of other tools, which lie in `records/NAME.jsonl`, one case a line.

A case has a name, its files (text, or base64 below "base64"), what is read of them (`where`: a file, several, or a
list of records in memory), and the options of `read_traces`.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "records"


def read_all() -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of each group of cases, with what is read of them."""
    for path in sorted(HERE.glob("*.jsonl")):
        if not path.name.endswith(".traces.jsonl"):
            lines = path.read_text(encoding="utf-8").splitlines()
            yield path.stem, [read_case(json.loads(line)) for line in lines]


def read_case(case: dict[str, Any]) -> dict[str, Any]:
    """Return what is read of a case: traces, the notice, the lines that are bad, and the kind of an error."""
    import msgspec

    import ragfault
    from tests.golden.normal_form import normalize

    notices: list[str] = []
    bad_lines: list[Any] = []
    result: dict[str, Any] = {"case": case["name"], "traces": []}
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        folder = Path(place).resolve()
        for name, content in case["files"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else base64.b64decode(content["base64"]))
        where, options = place_paths(case["where"], folder), place_paths(case.get("options", {}), folder)
        try:
            for trace in ragfault.read_traces(where, notice=notices.append, on_bad=bad_lines.append, **options):
                result["traces"].append(normalize(msgspec.to_builtins(trace), folder))
        except Exception as error:  # noqa: BLE001 - its kind is what is compared
            result["error"] = type(error).__name__
        result["bad_lines"] = [bad_line.line for bad_line in bad_lines]
        result["notices"] = normalize(notices, folder)
    return {key: value for key, value in result.items() if value not in ([], None) or key == "traces"}


def place_paths(value: Any, folder: Path) -> Any:
    """Return a value with `<folder>` replaced in its texts."""
    if isinstance(value, str):
        return value.replace("<folder>", str(folder))
    if isinstance(value, list):
        return [place_paths(item, folder) for item in value]
    return {key: place_paths(item, folder) for key, item in value.items()} if isinstance(value, dict) else value


def format_cases(cases: list[Any]) -> str:
    """Return the results of a group as JSON Lines."""
    return "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)


def parse(path: Path, result: Any = None) -> Any:
    """Return a stored result, or one of now, as it is compared: cases of records by their names."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8")) if result is None else json.loads(json.dumps(result))
    rows = map(json.loads, (path.read_text("utf-8") if result is None else format_cases(result)).splitlines())
    return {row.pop("case"): row for row in rows}
