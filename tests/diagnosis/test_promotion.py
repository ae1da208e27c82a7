"""Promotion: failing traces become cases of an evaluation set, once each, with their origin, for review."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from ragfault.cli.commands import run_command as command
from ragfault.diagnosis.clusters.promotion import accept_cases, build_cases, promote_cases
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Gold, Trace
from sample_runs import evaluate_pairs, pair

NOW = "2031-05-04T09:30:00+00:00"

QUERIES = ("What is the refund of a cancelled ticket?", "Is a refund paid for a lost ticket?", "May a dog go on deck?")


@pytest.fixture
def failing_run(tmp_path: Path) -> Run:
    """A run of three failures, two of one kind about refunds, and one that has an answer key."""
    key = {"reference": "Half of it.", "facts": ("Half is paid back.",), "gold": Gold(chunks={"a": 1.0})}
    content = [
        pair("r1", "n", "u", query=QUERIES[0], route="tickets", metadata={"user": "u1"}, **key),
        pair("r2", "n", "u", query=QUERIES[1], gold=Gold(chunks={"b": 1.0})),
        pair("d1", "h", "c", query=QUERIES[2]),
    ]
    return evaluate_pairs(tmp_path, content)


def case_of(query: str, name: str = "x") -> Trace:
    return Trace(id=f"case-{name}", query=query, metadata={"review": "pending", "provenance": {"trace": name}})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_case_has_the_answer_key_and_not_the_answer(failing_run: Run, tmp_path: Path):
    """Query and key go over; the failing answer and where it is from stand in the metadata; it waits for review."""
    out = tmp_path / "evalset.jsonl"
    done = promote_cases(build_cases(failing_run, ["r1"], NOW, {"id": "c-1", "name": "refunds"}), out)
    [case] = read_traces(out)
    assert done.added == (case.id,)
    assert (case.query, case.reference, case.facts, case.route) == (
        QUERIES[0],
        "Half of it.",
        ("Half is paid back.",),
        "tickets",
    )
    assert case.gold == Gold(chunks={"a": 1.0})
    assert (case.answer, case.chunks) == (None, None)
    assert case.metadata["user"] == "u1"
    assert case.metadata["review"] == "pending"
    assert case.metadata["failing"]["answer"] == "Claim 0 holds."
    assert "nothing_relevant" in case.metadata["failing"]["problems"]
    assert case.metadata["provenance"] == {
        "run": "run",
        "fingerprint": failing_run.manifest.fingerprint,
        "judge": "told/1",
        "trace": "r1",
        "date": NOW,
        "cluster": {"id": "c-1", "name": "refunds"},
    }


def test_evaluate_reads_the_set(failing_run: Run, tmp_path: Path):
    """An evaluation set is traces: `ragfault evaluate` takes it as it is."""
    out = tmp_path / "evalset.jsonl"
    promote_cases(build_cases(failing_run, ["r1", "d1"], NOW), out)
    assert evaluate(out, tmp_path / "again").manifest.traces == 2


def test_promoting_again_adds_nothing(failing_run: Run, tmp_path: Path):
    """The same traces again leave the file as it is, byte for byte, and are told with the case that asks the same."""
    out = tmp_path / "evalset.jsonl"
    first = promote_cases(build_cases(failing_run, ["r1", "r2"], NOW), out)
    before = out.read_bytes()
    again = promote_cases(build_cases(failing_run, ["r1", "r2"], NOW), out)
    assert again.added == ()
    assert again.duplicates == (("r1", first.added[0]), ("r2", first.added[1]))
    assert again.total == 2
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("query", "double"),
    [
        ("may a dog go on deck", True),
        ("May a cat go on deck?", False),
        ("What does the harbour ask of a yacht of 12 metres that lies at the outer pier for one week in July?", True),
        ("What does the harbour ask of a yacht?", False),
    ],
)
def test_what_is_asked_already_is_left_out(tmp_path: Path, query: str, double: bool):
    """A query in another spelling, or one that shares nearly all its runs of words, is no new case."""
    out = tmp_path / "evalset.jsonl"
    long = "What does the harbour ask of a yacht of 12 metres that lies at the outer pier for one week in June?"
    promote_cases([case_of("May a dog go on deck?", "a"), case_of(long, "b")], out)
    done = promote_cases([case_of(query, "c")], out)
    assert bool(done.duplicates) is double
    assert len(done.added) == 1 - double


def test_what_stands_in_the_file_stays(failing_run: Run, tmp_path: Path):
    """Lines that others wrote stay as they are, odd spaces, foreign shapes and a missing last line end included."""
    out = tmp_path / "evalset.jsonl"
    content = (
        '{"id": "own",  "query": "Where is the pier?", "facts": ["It is north."]}\n{"id":"two","query":"The bank?"}'
    )
    out.write_text(content)
    done = promote_cases(build_cases(failing_run, ["d1"], NOW), out)
    assert out.read_text().startswith(content + "\n")
    assert done.total == 3
    assert [case["id"] for case in lines(out)][:2] == ["own", "two"]


def test_a_file_that_is_no_set_is_not_touched(failing_run: Run, tmp_path: Path):
    """What cannot be read as traces is refused, and left as it is; so is a name that is not of JSON Lines."""
    out = tmp_path / "evalset.jsonl"
    out.write_text("not a trace\n")
    with pytest.raises(InputError):
        promote_cases(build_cases(failing_run, ["d1"], NOW), out)
    assert out.read_text() == "not a trace\n"
    with pytest.raises(UsageError, match=r"\.jsonl"):
        promote_cases(build_cases(failing_run, ["d1"], NOW), tmp_path / "evalset.csv")


def test_accepting_marks_the_case_alone(failing_run: Run, tmp_path: Path):
    """The case says who accepted it and when; the other lines are the same bytes; once is enough."""
    out = tmp_path / "evalset.jsonl"
    done = promote_cases(build_cases(failing_run, ["r1", "d1"], NOW), out)
    before = out.read_bytes().splitlines()
    assert accept_cases(out, done.added[1:], "ann", NOW) == 1
    assert accept_cases(out, done.added[1:], "bob", NOW) == 0
    first, second = lines(out)
    assert first["metadata"]["review"] == "pending"
    assert second["metadata"]["review"] == "accepted"
    assert second["metadata"]["reviewed"] == {"by": "ann", "time": NOW}
    assert out.read_bytes().splitlines()[0] == before[0]
    with pytest.raises(UnknownName, match="case-none"):
        accept_cases(out, ["case-none"], "ann", NOW)


@pytest.mark.long
def test_two_processes_lose_nothing(tmp_path: Path):
    """Processes that promote to one file at once leave the cases of all of them, each on a line of its own."""
    out = tmp_path / "evalset.jsonl"
    code = (
        "import sys\n"
        "from ragfault.diagnosis.clusters.promotion import promote_cases\n"
        "from ragfault.model.records import Trace\n"
        "for n in range(15):\n"
        "    name = f'{sys.argv[2]}{n}'\n"
        "    case = Trace(id='case-' + name, query=f'What of {name}?', metadata={'provenance': {'trace': name}})\n"
        "    promote_cases([case], sys.argv[1])\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(out), name], env=os.environ) for name in ("a", "b", "c")
    ]
    assert [case.wait(120) for case in running] == [0, 0, 0]
    assert {case["id"] for case in lines(out)} == {f"case-{name}{n}" for name in "abc" for n in range(15)}
    assert os.listdir(tmp_path) == ["evalset.jsonl"]


# --- the command line ------------------------------------------------------------------------------


def test_the_command_promotes_a_cluster(failing_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """All traces of a cluster become failing_run, which name it; then one is accepted."""
    out = tmp_path / "evalset.jsonl"
    assert command(["clusters", str(failing_run.path), "--json"]) == 0
    [refunds] = json.loads(capsys.readouterr().out)["clusters"]
    assert command(["promote", str(failing_run.path), "--cluster", refunds["id"], "-o", str(out)]) == 0
    assert "Added 2 cases" in capsys.readouterr().out
    report = lines(out)
    assert {case["metadata"]["provenance"]["trace"] for case in report} == {"r1", "r2"}
    assert report[0]["metadata"]["provenance"]["cluster"] == {"id": refunds["id"], "name": refunds["name"]}
    assert datetime.fromisoformat(report[0]["metadata"]["provenance"]["date"]).tzinfo is not None
    assert command(["promote", "-o", str(out), "--accept", report[0]["id"], "--by", "ann"]) == 0
    assert lines(out)[0]["metadata"]["reviewed"]["by"] == "ann"


def test_a_cluster_of_several_runs_is_promoted_from_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What was found over two runs is known by its failures in each of them, however one run alone would be grouped."""
    content = [pair(name, "n", "u", query=QUERIES[at]) for at, name in enumerate(("r1", "r2"))]
    old, new = (evaluate_pairs(tmp_path / name, content[at : at + 1]) for at, name in enumerate(("old", "new")))
    registry = ["--registry", str(tmp_path / "known.json")]
    assert command(["clusters", str(old.path), str(new.path), "--json", *registry]) == 0
    [refunds] = json.loads(capsys.readouterr().out)["clusters"]
    out = tmp_path / "evalset.jsonl"
    for run, name in ((old, "r1"), (new, "r2")):
        assert command(["promote", str(run.path), "--cluster", refunds["id"], "-o", str(out), *registry]) == 0
        assert lines(out)[-1]["metadata"]["provenance"]["trace"] == name


def test_the_command_promotes_single_traces(failing_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Traces are taken by their ids in the order in which they are named; an id that no trace has is refused."""
    out = tmp_path / "evalset.jsonl"
    assert command(["promote", str(failing_run.path), "--trace", "d1", "--trace", "r1", "-o", str(out)]) == 0
    assert [case["query"] for case in lines(out)] == [QUERIES[2], QUERIES[0]]
    assert command(["promote", str(failing_run.path), "--trace", "d2", "-o", str(out)]) == 2
    assert "There is: r1, r2, d1." in capsys.readouterr().err
    assert len(lines(out)) == 2


def test_personal_data_in_new_cases_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What the traffic left of addresses in query, answer or metadata is counted; cases without any say nothing."""
    content = [
        pair("r1", "n", "u", query="Write to ann@example.org, please?", metadata={"user": "bob@example.org"}),
        pair("d1", "n", "u", query=QUERIES[2]),
    ]
    run, out = str(evaluate_pairs(tmp_path, content).path), str(tmp_path / "set.jsonl")
    assert command(["promote", run, "--trace", "r1", "-o", out]) == 0
    assert "personal data or keys (email ×2); without: ragfault run convert" in capsys.readouterr().err
    for name in ("d1", "r1"):  # the second is in the set already
        assert command(["promote", run, "--trace", name, "-o", out]) == 0
        assert "personal data" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["RUN"],
        ["RUN", "--cluster", "c-1", "--trace", "d1"],
        ["RUN", "--accept", "case-1"],
        ["RUN", "--cluster", "c-none"],
    ],
)
def test_what_does_not_go_together_is_refused(failing_run: Run, tmp_path: Path, arguments: list[str]):
    """A run and what of it is to be promoted are named, or cases to accept, and nothing is written otherwise."""
    out = tmp_path / "evalset.jsonl"
    given = [str(failing_run.path) if row == "RUN" else row for row in arguments]
    assert command(["promote", *given, "-o", str(out)]) == 2
    assert not out.exists()


def test_cases_of_a_cluster_come_in_the_order_of_the_run_and_named_ones_as_they_are_named(failing_run: Run):
    """A cluster may have more traces than memory holds: its cases are read one after the other."""

    def list_origins(cluster: dict[str, str] | None) -> list[str]:
        return [case.metadata["provenance"]["trace"] for case in build_cases(failing_run, ["d1", "r1"], NOW, cluster)]

    assert list_origins({"id": "c-1", "name": "refunds"}) == ["r1", "d1"]
    assert list_origins(None) == ["d1", "r1"]
