"""The examples run as they stand, against the libraries that are installed, without a network and without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "dspy_traces": ("dspy",),
    "fastapi_service": ("fastapi",),
    "frames": ("pandas", "polars", "datasets"),
    "haystack_traces": ("haystack-ai",),
    "langchain_traces": ("langchain-core",),
    "llamaindex_traces": ("llama-index-core",),
    "mlflow_run": ("mlflow-skinny",),
    "openai_contexts": ("openai",),
}
"""Example → the packages that it is run against."""
MODULES = {
    "haystack-ai": "haystack",
    "langchain-core": "langchain_core",
    "llama-index-core": "llama_index",
    "mlflow-skinny": "mlflow",
}


def test_every_example_is_run():
    """No file of the folder is left out here."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_is_short(name: str):
    """It has at most 60 lines that are not blank."""
    lines = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


@pytest.mark.long
@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs(name: str, tmp_path: Path):
    """It says the version of each library that it ran against, and scores a wrong answer as wrong."""
    lacking = [package for package in NEEDS[name] if find_spec(MODULES.get(package, package)) is None]
    if lacking:
        pytest.skip(f"{', '.join(lacking)} not installed")
    keyless = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**keyless, "NO_PROXY": "127.0.0.1", "HTTPS_PROXY": "http://127.0.0.1:9", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    for package in NEEDS[name]:
        assert version(package) in done.stdout
    if name not in ("frames", "mlflow_run"):
        assert "groundedness 1.00" in done.stdout
        assert "groundedness 0.00" in done.stdout
