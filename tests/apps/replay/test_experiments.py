"""Laws of fixes and changes that are asked again: what is proven, what explains a fall, and what is paid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from msgspec.structs import replace

from endpoint import serve_model
from programmed_model import ProgrammedServer
from ragfault.apps.replay.records import ChangeReplay, FixReplay, ReplayReport
from ragfault.apps.replay.store import load_result
from ragfault.cli.commands import run_command
from ragfault.io.runs.run import Run
from ragfault.io.trace_writer import write_traces
from ragfault.model.records import Trace
from replayed_runs import make_chunks, make_trace, write_run

QUERIES = 12


@pytest.fixture
def server() -> Iterator[ProgrammedServer]:
    with serve_model({}, ProgrammedServer) as endpoint:
        yield endpoint


def run_replay(folder: Path, url: str, *arguments: str) -> int:
    """Replay from the command line, with a cache of its own."""
    asked = ("--model", "openai:m", "--base-url", url, "--cache", str(folder / "cache.sqlite"))
    return run_command(["replay", *arguments, *asked])


def write_fix(folder: Path, numbers: range = range(QUERIES)) -> Path:
    """Write the right passage first for some questions."""
    path = folder / "reranked.jsonl"
    lines = []
    for number in numbers:
        right, others = make_chunks(number)
        lines.append(Trace(id=str(number), query=f"When does the museum {number} open?", chunks=(right, *others[:2])))
    write_traces(lines, path, force=True)
    return path


def prove_fix(folder: Path, url: str, program: str, *flags: str) -> tuple[int, FixReplay | None]:
    """Try the right passages on a run that lacks them."""
    run = write_run([make_trace(number, program, shown=False) for number in range(QUERIES)], folder / "run")
    code = run_replay(folder, url, str(run.path), "--with", str(write_fix(folder)), *flags)
    return code, load_result(Run.open(str(run.path)), FixReplay)


def test_chunks_that_help_are_proven_and_chunks_that_do_not_are_not(tmp_path: Path, server: ProgrammedServer):
    """The right passages repair answers of a model that reads, and gain nothing with one that invents."""
    for program, gain in (("invents if absent", 1.0), ("invents", 0.0)):
        code, report = prove_fix(tmp_path / program, server.url, program)
        assert report is not None
        assert (report.gain, report.sampled) == (gain, QUERIES)
        assert (code, report.outcome) == ((0, "proven") if gain else (3, "not decided"))


def test_a_fix_that_breaks_answers_is_refuted(tmp_path: Path, server: ProgrammedServer):
    """Where the fix takes right passages away, more answers are broken than repaired, and the exit code says so."""
    run = write_run([make_trace(number, "faithful", shown=True) for number in range(QUERIES)], tmp_path / "run")
    lines = [replace(trace, chunks=tuple(make_chunks(number)[1])) for number, trace in enumerate(run.traces())]
    write_traces(lines, tmp_path / "worse.jsonl")
    assert run_replay(tmp_path, server.url, str(run.path), "--with", str(tmp_path / "worse.jsonl")) == 1
    report = load_result(run, FixReplay)
    assert report is not None
    assert (report.outcome, report.became_bad, report.became_right) == ("refuted", QUERIES, 0)


def test_a_prompt_is_a_fix(tmp_path: Path, server: ProgrammedServer):
    """Another system message, or another message around the same chunks, is asked in place of the recorded one."""
    prompts = ("Answer. [program: faithful]", "Read.\n{context}\n{query} [program: faithful]")
    for number, prompt in enumerate(prompts):
        folder = tmp_path / str(number)
        run = write_run([make_trace(at, "invents", shown=True) for at in range(QUERIES)], folder / "run")
        file = folder / "new.txt"
        file.write_text(prompt, encoding="utf-8")
        flags = [str(run.path), "--prompt", str(file)]
        if number:
            system = folder / "system.txt"
            system.write_text("Be brief.", encoding="utf-8")
            flags += ["--prompt", str(system)]
        assert run_replay(folder, server.url, *flags) == 0
        report = load_result(run, FixReplay)
        assert report is not None
        assert (report.gain, report.unchanged) == (1.0, 0)


def test_a_fix_is_not_tried_on_queries_that_were_used_for_the_fault(tmp_path: Path, server: ProgrammedServer):
    """Queries whose causes were replayed, and those of another run that is named, are left out."""
    run = write_run(
        [make_trace(number, "invents if absent", shown=False) for number in range(QUERIES)], tmp_path / "run"
    )
    seen = write_run([make_trace(number, "invents", shown=False) for number in range(3)], tmp_path / "seen")
    assert run_replay(tmp_path, server.url, str(run.path), "--cause", "not-retrieved", "--sample", "4") in (0, 3)
    causes = load_result(run, ReplayReport)
    assert causes is not None
    replayed = {proof.trace for proof in causes.proofs if proof.outcome != "not replayed"}
    used = replayed | {"0", "1", "2"}
    run_replay(tmp_path, server.url, str(run.path), "--with", str(write_fix(tmp_path)), "--used", str(seen.path))
    report = load_result(run, FixReplay)
    assert report is not None
    assert {query.trace for query in report.queries} == {str(number) for number in range(QUERIES)} - used
    assert report.used == len(used)


def test_a_fix_is_paid_once(tmp_path: Path, server: ProgrammedServer):
    """Each request is asked once; the same command again asks nothing and finds the same, costs and seconds too."""
    first = prove_fix(tmp_path, server.url, "invents if absent", "--price", "1,2")[1]
    paid = sum(server.paid.values())
    again = prove_fix(tmp_path, server.url, "invents if absent", "--price", "1,2")[1]
    assert paid == sum(server.paid.values()) == 2 * QUERIES
    assert first is not None
    assert again is not None
    assert (first.queries, first.costs) == (again.queries, again.costs)
    assert all(cost.prompt and cost.completion and cost.cost and cost.seconds for cost in first.costs)


def test_a_budget_ends_a_fix_and_a_larger_one_goes_on(tmp_path: Path, server: ProgrammedServer):
    """Pairs of answers until then count, and what was paid is not paid again."""
    code, report = prove_fix(
        tmp_path, server.url, "invents if absent", "--budget", "1200 tokens", "--max-tokens", "300"
    )
    assert code == 3
    assert report is not None
    assert report.stopped is not None
    assert 0 < report.sampled < QUERIES
    code, report = prove_fix(tmp_path, server.url, "invents if absent", "--budget", "1m tokens", "--max-tokens", "300")
    assert report is not None
    assert (code, report.sampled) == (0, QUERIES)
    assert max(server.delivered.values()) == 1


def divide(folder: Path, server: ProgrammedServer, old: list[Trace], new: list[Trace], *flags: str) -> ChangeReplay:
    """Replay the change between two runs."""
    runs = [write_run(traces, folder / name) for name, traces in (("old", old), ("new", new))]
    run_replay(folder, server.url, *(str(run.path) for run in runs), *flags)
    report = load_result(runs[1], ChangeReplay)
    assert report is not None
    return report


def test_the_part_that_broke_explains_the_fall(tmp_path: Path, server: ProgrammedServer):
    """Of chunks and prompt, the one that makes answers bad has all of the fall, whichever it is."""
    numbers = range(QUERIES)
    good = [make_trace(number, "invents if absent", shown=True) for number in numbers]
    lacking = [make_trace(number, "invents", shown=False) for number in numbers]
    broken = {
        "chunks": [
            replace(trace, messages=tuple(_say(turn, "invents if absent", "Kindly. ") for turn in trace.messages or ()))
            for trace in (make_trace(number, "invents if absent", shown=False) for number in numbers)
        ],
        "prompt": [make_trace(number, "refuses", shown=True) for number in numbers],
    }
    for part, traces in broken.items():
        report = divide(tmp_path / part, server, good, traces)
        assert report.total is not None
        assert report.total.effect == -1.0
        assert {share.parts[0]: share.effect for share in report.shares}[part] == -1.0
    both = divide(tmp_path / "both", server, good, lacking)
    assert sum(share.effect for share in both.shares) == pytest.approx(-1.0)
    assert both.interactions[0].effect == pytest.approx(1.0)


def test_what_one_version_shows_of_its_passages_holds_for_the_other(tmp_path: Path, server: ProgrammedServer):
    """Passages of several lines are swapped with passages of one line, which leave open how lines are written."""
    old = [make_trace(number, "invents if absent", shown=True) for number in range(QUERIES)]
    new = []
    for trace in (make_trace(number, "invents if absent", shown=False) for number in range(QUERIES)):
        chunks = tuple(replace(chunk, text=chunk.text.replace("\n", " ")) for chunk in trace.chunks or ())
        system, asked = trace.messages or ()
        text = asked.text
        for before, after in zip(trace.chunks or (), chunks, strict=True):
            text = text.replace(before.text, after.text)
        system = replace(system, text=f"Kindly. {system.text}")
        new.append(replace(trace, chunks=chunks, messages=(system, replace(asked, text=text))))
    report = divide(tmp_path, server, old, new)
    assert (report.sampled, report.refused) == (QUERIES, ())
    assert report.shares[0].effect == -1.0


def _say(turn, program, more):  # type: ignore[no-untyped-def]
    """Return the system message with some more words."""
    return replace(turn, text=turn.text.replace("Answer", f"{more}Answer")) if turn.role == "system" else turn


def test_settings_and_model_are_parts_where_they_differ(tmp_path: Path, server: ProgrammedServer):
    """A temperature that both runs record, and a model that is named for the baseline, are swapped too."""
    old = [make_trace(number, "faithful", shown=True, settings={"temperature": 0.2}) for number in range(4)]
    new = [make_trace(number, "faithful", shown=True, settings={"temperature": 0.9}) for number in range(4)]
    report = divide(tmp_path, server, old, new, "--before", "openai:old")
    assert report.parts == ("settings", "model")
    sent = {(body["model"], body["temperature"]) for body in server.bodies}
    assert sent == {(model, temperature) for model in ("m", "old") for temperature in (0.2, 0.9)}
    assert all(share.effect == 0.0 for share in report.shares)


def test_pairs_with_the_same_request_are_not_asked(tmp_path: Path, server: ProgrammedServer):
    """Only pairs whose requests differ cost calls; where none does, the command says so and asks nothing."""
    old = [make_trace(number, "faithful", shown=True) for number in range(QUERIES)]
    new = [*old[:-2], *(make_trace(number, "refuses", shown=True) for number in (QUERIES - 2, QUERIES - 1))]
    report = divide(tmp_path / "two", server, old, new)
    assert (report.changed, report.pairs, sum(server.calls.values())) == (2, QUERIES, 4)
    runs = [str(write_run(old, tmp_path / name).path) for name in ("a", "b")]
    assert run_replay(tmp_path, server.url, *runs) == 2
    assert sum(server.calls.values()) == 4


def test_options_of_another_question_are_refused(tmp_path: Path, server: ProgrammedServer):
    """An option that would do nothing is an error, and nothing is asked."""
    run = str(write_run([make_trace(0, "faithful", shown=True)], tmp_path / "run").path)
    for arguments in (
        [run, run, "--cause", "refused"],
        [run, "--before", "openai:x"],
        [run, run, "--with", "x.jsonl"],
        [run, "--used", run],
        [run, "--agent", "agent.py:answer"],
        [run, "-m", "completeness"],
    ):
        assert run_replay(tmp_path, server.url, *arguments) == 2
    assert not server.calls


def test_reports_show_fixes_and_changes(tmp_path: Path, server: ProgrammedServer, capsys: pytest.CaptureFixture[str]):
    """The report of a run has the answers before and after, in every format, and JSON has each answer."""
    old = [make_trace(number, "invents if absent", shown=True) for number in range(QUERIES)]
    new = [make_trace(number, "invents if absent", shown=False) for number in range(QUERIES)]
    runs = [str(write_run(traces, tmp_path / name).path) for name, traces in (("old", old), ("new", new))]
    capsys.readouterr()
    assert run_replay(tmp_path, server.url, *runs, "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["queries"][0]["answers"]) == 2
    assert run_replay(tmp_path, server.url, runs[1], "--with", str(write_fix(tmp_path))) == 0
    for kind in ("terminal", "md", "html"):
        capsys.readouterr()
        assert run_command(["report", runs[1], "--format", kind]) == 0
        shown = capsys.readouterr().out
        assert "with the fix" in shown
        assert "candidate (bad)" in shown
