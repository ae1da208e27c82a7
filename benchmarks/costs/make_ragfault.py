"""A set by ragfault: `testset make --judge`, with the default mix of kinds or with those alone that a model words."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.costs.making import measure_tool
from benchmarks.costs.running import MODEL
from ragfault.apps.testsets.making.make import make_testset
from ragfault.io.documents import read_documents
from ragfault.judges.llm.judge import LLMGenerator


def make_queries(url: str, folder: Path, count: int) -> tuple[str, list[str]]:
    """Return the version, and the queries of the set."""
    mix: Any = {"extractive": 0.6, "abstract": 0.4} if os.environ.get("MIX") == "model" else None
    model = LLMGenerator(MODEL, base_url=url, cache="none")
    result = make_testset(read_documents(str(folder)), count, mix=mix, model=model)
    try:
        name = version("ragfault")
    except PackageNotFoundError:
        name = "0.1.0"
    return f"ragfault {name}", [item.query for item in result.items]


if __name__ == "__main__":
    measure_tool(make_queries)
