"""Laws of preferences: planted strengths are recovered, and the order shown is no preference."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest

from ragfault.cli import run_command
from ragfault.errors import InputError
from ragfault.evaluation import evaluate
from ragfault.evaluation.agreement.preferences import (
    Preference,
    rate_versions,
    read_preferences,
    write_preference_sheet,
)
from ragfault.records import Trace
from ragfault.stats.preferences import fit_bradley_terry


def compare(strengths: dict[str, float], count: int, *, order: float = 0.0, seed: int = 0) -> list[Preference]:
    """Return comparisons of versions of these strengths, in log-odds, with an advantage of the first."""
    draw = random.Random(seed)
    rows = []
    for n in range(count):
        first, second = draw.sample(sorted(strengths), 2)
        p = 1 / (1 + np.exp(-(strengths[first] - strengths[second] + order)))
        rows.append(Preference(id=str(n), first=first, second=second, outcome=float(draw.random() < p)))
    return rows


def test_planted_strengths_are_recovered():
    """Strengths and the advantage of the first are those that were planted, within their intervals."""
    planted = {"a": 1.0, "b": 0.0, "c": -1.0}
    report = rate_versions(compare(planted, 600, order=0.8), resamples=300)
    assert [item.version for item in report.versions] == ["a", "b", "c"]
    for item in report.versions:
        assert (item.strength.low or 0) < planted[item.version] < (item.strength.high or 0)
    assert (report.first_wins.low or 0) < 1 / (1 + np.exp(-0.8)) < (report.first_wins.high or 0)
    assert any("The order counts" in note for note in report.notes)
    assert report.preferred


def test_order_alone_is_no_preference():
    """Whoever always takes the first answer prefers no version; versions that never change places tell nothing."""
    rows = [Preference(id=str(n), first="ab"[n % 2], second="ba"[n % 2], outcome=1.0) for n in range(100)]
    assert not rate_versions(rows, resamples=200).preferred
    always = [Preference(id=str(n), first="a", second="b", outcome=1.0) for n in range(50)]
    fixed = rate_versions(always, resamples=200)
    assert not fixed.preferred
    assert "never changed places" in fixed.notes[0]


@pytest.mark.long
def test_equal_versions_are_rarely_preferred():
    """Of equal versions one is called preferred in at most one of sixteen series of 100 comparisons."""
    claims = [rate_versions(compare({"a": 0, "b": 0}, 100, seed=n), resamples=300).preferred for n in range(48)]
    assert sum(claims) <= 3


def test_a_tie_is_half_a_win():
    """Ties alone make equal strengths."""
    first, second = np.array([0, 1, 0]), np.array([1, 0, 1])
    solution = fit_bradley_terry(first, second, np.full(3, 0.5), np.ones(3), 2)
    assert np.allclose(solution, 0)


def test_a_sheet_of_two_runs_is_filled_in_and_read(tmp_path: Path):
    """The sheet shows each pair in an order drawn at random, without those that are equal, and is read again."""
    for name, word in (("old", "noon"), ("new", "twelve")):
        traces = [
            Trace(id=str(n), query=f"When {n}?", answer="The same." if n == 7 else f"At {word} {n}.") for n in range(40)
        ]
        evaluate(traces, tmp_path / name, metrics=["error"], judge="none")
    sheet = tmp_path / "sheet.csv"
    assert write_preference_sheet(tmp_path / "old", tmp_path / "new", sheet) == 39
    with sheet.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert 5 < sum(row["first"] == "new" for row in rows) < 34
    assert all(("twelve" in row["answer_1"]) == (row["first"] == "new") for row in rows)
    with pytest.raises(InputError, match="holds no preference"):
        read_preferences(sheet)
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "winner": "1" if row["first"] == "new" else "2"} for row in rows)
    report = rate_versions(read_preferences(sheet), resamples=100)
    assert (report.versions[0].version, report.versions[0].wins, report.preferred) == ("new", 39, True)
    assert run_command(["label", "prefer", str(sheet), str(tmp_path / "old")]) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,a,a,1", "both versions"),
        ("1,a,b,c", "is not 1, 2, tie, a or b"),
        ("1,a,,1", "needs id, first and second"),
        ("1,a,b,1\n2,c,d,1", "never compared"),
    ],
)
def test_wrong_preferences_are_refused(row: str, message: str, tmp_path: Path):
    """A row that is no preference, and groups never compared, say what is wrong."""
    path = tmp_path / "p.csv"
    path.write_text(f"id,first,second,winner\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        rate_versions(read_preferences(path), resamples=50)
