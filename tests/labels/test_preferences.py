"""Laws of preferences: planted strengths are recovered, and the order shown is no preference."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pytest

from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.labels.label import Label
from ragfault.labels.preferences import rate_versions, write_preference_sheet
from ragfault.labels.reading.label_files import read_labels
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.stats.preferences import compute_preference_p, fit_bradley_terry


def compare(strengths: dict[str, float], count: int, *, order: float = 0.0, seed: int = 0) -> list[Label]:
    """Return comparisons of versions of these strengths, in log-odds, with an advantage of the first."""
    draw = random.Random(seed)
    rows = []
    for n in range(count):
        first, second = draw.sample(sorted(strengths), 2)
        p = 1 / (1 + np.exp(-(strengths[first] - strengths[second] + order)))
        rows.append(Label(trace=str(n), subject=("preference", first, second), value=float(draw.random() < p)))
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
    rows = [Label(trace=str(n), subject=("preference", "ab"[n % 2], "ba"[n % 2]), value=1.0) for n in range(100)]
    assert not rate_versions(rows, resamples=200).preferred
    always = [Label(trace=str(n), subject=("preference", "a", "b"), value=1.0) for n in range(50)]
    fixed = rate_versions(always, resamples=200)
    assert not fixed.preferred
    assert "never changed places" in fixed.notes[0]


def test_few_comparisons_are_no_preference():
    """A dozen comparisons that all agree show no preference, fourteen do."""
    for count, preferred in ((2, False), (8, False), (12, False), (14, True)):
        rows = [
            Label(trace=str(n), subject=("preference", "ab"[n % 2], "ba"[n % 2]), value=float(n % 2 == 0))
            for n in range(count)
        ]
        report = rate_versions(rows, resamples=200)
        assert report.preferred == preferred, report.sentence
    two = rate_versions(rows[:2], resamples=200)
    assert (two.best_wins.low or 0) < 0.5


def test_a_position_that_always_wins_explains_every_win():
    """Where a is first in 39 of 40 rows, and the first always wins, no preference of a is shown."""
    rows = [Label(trace=str(n), subject=("preference", "ab"[n == 0], "ba"[n == 0]), value=1.0) for n in range(40)]
    report = rate_versions(rows, resamples=200)
    assert not report.preferred
    assert (report.p, (report.best_wins.low or 0) < 0.5) == (1, True)


@pytest.mark.long
@pytest.mark.parametrize(("count", "first"), [(3, 0.5), (8, 0.5), (20, 0.9), (40, 0.9)])
def test_the_p_value_of_equal_versions_is_small_in_at_most_one_of_twenty(count: int, first: float):
    """Coin flips, and raters who take the first nine times of ten, have p up to 0.05 in 5 % of 200 series or fewer."""
    rng = np.random.default_rng(0)
    names = [str(n) for n in range(count)]
    small = sum(
        compute_preference_p(rng.random(count) < 0.5, (rng.random(count) < first) * 1.0, names) <= 0.05
        for _ in range(200)
    )
    assert small <= 200 * 0.05 + 6


def test_queries_judged_either_way_round_show_a_preference():
    """Each query in both orders, and the same version wins both: the order is balanced within each query."""
    rows = [
        Label(trace=str(n // 2), subject=("preference", "ab"[n % 2], "ba"[n % 2]), value=float(n % 2 == 0))
        for n in range(24)
    ]
    assert rate_versions(rows, resamples=200).preferred


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
    with sheet.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert 5 < sum(row["first"] == "new" for row in rows) < 34
    assert all(("twelve" in row["answer_1"]) == (row["first"] == "new") for row in rows)
    with pytest.raises(InputError, match="holds no preferences"):
        read_labels(sheet, "preferences")
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "winner": "1" if row["first"] == "new" else "2"} for row in rows)
    report = rate_versions(read_labels(sheet, "preferences"), resamples=100)
    assert (report.versions[0].version, report.versions[0].wins, report.preferred) == ("new", 39, True)
    assert run_command(["label", "prefer", str(sheet), str(tmp_path / "old")]) == 2


@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-16")], ids=["plain", "Excel", "Unicode"]
)
def test_a_sheet_is_read_as_any_spreadsheet_saves_it(delimiter: str, encoding: str, tmp_path: Path):
    """Other signs between cells, UTF-16 and 1.0 for 1 are read; rows without a winner are left out and counted."""
    path = tmp_path / "p.csv"
    rows = [("id", "first", "second", "winner"), ("1", "a", "b", "1.0"), ("2", "b", "a", "Tie"), ("3", "a", "b", "")]
    path.write_text("\r\n".join(map(delimiter.join, rows)), encoding=encoding)
    notices: list[str] = []
    assert [item.value for item in read_labels(path, "preferences", notice=notices.append)] == [1.0, 0.5]
    assert notices == ["left out, as nobody filled them in: 1 row of 3"]


def test_a_folder_is_no_file_of_preferences(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One run, or an option of a sheet, is answered with what to give; a fault that all rows share is said once."""
    assert run_command(["label", "prefer", str(tmp_path)]) == 2
    assert "give one file of preferences, or two runs and -o SHEET" in capsys.readouterr().err
    path = tmp_path / "p.csv"
    path.write_text("id,a,b\n" + "1,x,y\n" * 30, encoding="utf-8")
    assert run_command(["label", "prefer", str(path), "--limit", "3"]) == 2
    assert "--limit is for the sheet of two runs" in capsys.readouterr().err
    assert run_command(["label", "prefer", str(path)]) == 2
    assert "30 of 30 rows cannot be read:\n  " in (message := capsys.readouterr().err)
    assert len(message.splitlines()) == 3


def test_a_winner_1_is_the_first_even_where_a_version_has_that_name(tmp_path: Path):
    """1 and 2 mean the place, other names the version; long answers, such as of 200,000 characters, are read."""
    path = tmp_path / "p.csv"
    path.write_text(f"id,first,second,winner,answer_1\nq,2,1,1,{'x' * 200_000}\nr,a,b,b,\n", encoding="utf-8")
    assert [item.value for item in read_labels(path, "preferences")] == [1.0, 0.0]


def test_a_sheet_has_no_formula(tmp_path: Path):
    """A query or an answer that begins like a formula is written with an apostrophe, and ids are read as they are."""
    for name in ("old", "new"):
        traces = [Trace(id="-1", query="@when", answer=f"=HYPERLINK({name})")]
        evaluate(traces, tmp_path / name, metrics=["error"], judge="none")
    sheet = tmp_path / "sheet.csv"
    write_preference_sheet(tmp_path / "old", tmp_path / "new", sheet)
    with sheet.open(newline="", encoding="utf-8-sig") as file:
        row = next(csv.DictReader(file))
    assert (row["id"], row["query"]) == ("'-1", "'@when")
    assert row["answer_1"].startswith("'=HYPERLINK")
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow({**row, "winner": "1"})
    assert read_labels(sheet, "preferences")[0].trace == "-1"


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
        rate_versions(read_labels(path, "preferences"), resamples=50)
