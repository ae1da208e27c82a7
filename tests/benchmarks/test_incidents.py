"""Simulated weeks of live traffic run to their end, and are held against what is expected."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="the server needs the extra `server`")
pytest.importorskip("fastapi", reason="the server needs the extra `server`")

sys.path.append(str(Path(__file__).parents[2]))
incidents = import_module("benchmarks.incidents")

pytestmark = pytest.mark.long


def test_a_simulated_fault_is_one_incident_on_its_routes(capsys: pytest.CaptureFixture[str]):
    """The benchmark prints its notices and says right where one incident opens on all affected routes."""
    assert incidents.check_case("all traces fail", incidents.CASES["all traces fail"], 0, 0.3)
    assert "opened: More traces end in an error" in capsys.readouterr().out
