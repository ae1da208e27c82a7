"""Simulated live traffic runs to its end, and is held against what is expected."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

sys.path.append(str(Path(__file__).parents[2]))
incidents = import_module("benchmarks.incidents")

pytestmark = pytest.mark.long


def test_a_simulated_fault_is_one_incident_on_its_routes(capsys: pytest.CaptureFixture[str]):
    """The benchmark prints its notices and says right where one incident opens on all affected routes."""
    fault = (25 * incidents.HOUR_MINUTES, 26 * incidents.HOUR_MINUTES)  # after the reference of a day
    case = incidents.break_case("More traces end in an error", incidents.ROUTES, fault=fault, error=1.0)
    assert incidents.check_case("all traces fail", case._replace(days=1.1), 0, 0.2)
    assert "opened: More traces end in an error" in capsys.readouterr().out
