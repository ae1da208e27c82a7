"""The command line: what a user types, what comes back, and with which exit code."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from command_runs import run_and_read
from ragfault.cli.commands import COMMANDS, cli, load_command, run_command
from ragfault.io.runs.writer import RUN_TABLES
from ragfault.io.trace_reader import read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.judges.loading import DEFAULT_JUDGE, JUDGES
from ragfault.model.records import Chunk, Trace, Usage
from ragfault.model.version import __version__
from ragfault.options.runs import LineProgress


@pytest.fixture(scope="module")
def place(demo_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo and runs of its versions."""
    return shutil.copytree(demo_runs, tmp_path_factory.mktemp("place"), dirs_exist_ok=True)


DEMO_BY_FAST_JUDGE = """
import ragfault.judges.loading

ragfault.judges.loading.DEFAULT_JUDGE = "embedded"
from ragfault.cli.commands import main

main(["demo"])
"""


@pytest.mark.long
def test_the_demo_names_the_layer_and_writes_its_page(demo_runs: Path, tmp_path: Path):
    """Without a folder the demo evaluates both versions, in place of earlier ones, and names the layer in few lines.

    `docs/generate.py --check` runs it with its own judge.
    """
    shutil.copytree(demo_runs, tmp_path / "ragfault-demo")
    command = [sys.executable, "-c", DEMO_BY_FAST_JUDGE]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "Retrieval broke" in printed.splitlines()[0]
    assert len(printed.splitlines()) <= 14
    page = re.search(r"Page: (\S+\.html)", printed)
    assert page is not None
    assert (tmp_path / page[1]).is_file()


def list_options(command: click.Command) -> list[click.Option]:
    """List the options of a command and of those below it."""
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    own = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return own + [option for part in inner for option in list_options(part)]


def test_the_help_of_each_verb_names_the_default_judge():
    """If `--judge` is a judge of the package by default, it is that of `evaluate`, also in the words of the help."""
    options = [option for name in COMMANDS for option in list_options(load_command(name)) if "--judge" in option.opts]
    written = [match[1] for option in options if (match := re.search(r"\[default: (\w+)", option.help or ""))]
    assert JUDGES.keys() & {*written, *(str(option.default) for option in options)} == {DEFAULT_JUDGE}


def test_every_verb_has_help_with_examples():
    """`ragfault VERB --help` opens with a sentence and shows an example; the overview says the like of each."""
    assert [name for name in COMMANDS if " " not in name] == cli.list_commands(click.Context(cli))
    for name, verb in COMMANDS.items():
        command = load_command(name)
        if not verb.module:
            continue
        text = command.get_help(click.Context(command, info_name=name))
        assert "Example" in text, name
        assert verb.summary.endswith(".")
        assert command.help.strip().split("\n")[0], name


@pytest.mark.parametrize("table", RUN_TABLES)
def test_a_damaged_table_is_refused_by_the_commands_that_read_it(
    table: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """`gate` reads every file of a run; what reads other tables alone goes on, so that scores are computed again."""
    bad = shutil.copytree(place / "v1", tmp_path / "bad")
    content = bytearray((bad / f"{table}.parquet").read_bytes())
    content[len(content) // 2] ^= 4
    (bad / f"{table}.parquet").write_bytes(content)
    for command, tables in {
        ("gate", bad, "--threshold", "error<=1"): {*RUN_TABLES},
        ("compare", place / "v1", bad): {"traces", "causes", "scores"},
        ("run", "rescore", bad, "-o", tmp_path / "again", "-m", "error"): {"traces", "verdicts"},
        ("lint", bad): {"traces"},
    }.items():
        out = run_and_read(capsys, *command, code=2 if table in tables else 0)
        assert (f"{table}.parquet is damaged: its checksum is not that of the manifest" in out) == (table in tables)


@pytest.mark.parametrize(("given", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_tables_are_read_into_memory_that_goes_back_to_the_system_unless_another_pool_is_named(given, used):
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    program = (
        "import contextlib, ragfault.cli.commands\n"
        "with contextlib.suppress(SystemExit):\n"
        "    ragfault.cli.commands.main(['--version'])\n"
        "import pyarrow\n"
        "print(pyarrow.default_memory_pool().backend_name)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | ({"ARROW_DEFAULT_MEMORY_POOL": given} if given else {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.split()[-1] == used


def test_help_is_a_verb_too(capsys: pytest.CaptureFixture[str]):
    """`ragfault help VERB` is `ragfault VERB --help`."""
    assert run_and_read(capsys, "help", "gate") == run_and_read(capsys, "gate", "--help")


@pytest.mark.long
def test_a_run_without_a_place_is_named_after_its_input(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Without -o the run lies in runs/, named after the file and the time, and the next commands name it."""
    monkeypatch.chdir(tmp_path)
    out = run_and_read(capsys, "evaluate", place / "handbook/traces-v1.jsonl", "-m", "error", "--judge", "none")
    [run] = (tmp_path / "runs").iterdir()
    assert run.name.startswith("traces-v1-20")
    assert f"ragfault report runs/{run.name}" in out


def test_a_threshold_may_use_the_name_of_another_tool(place: Path, capsys: pytest.CaptureFixture[str]):
    """`faithfulness>=0.1` is decided as `groundedness>=0.1`."""
    assert "pass" in run_and_read(capsys, "gate", place / "v1", "--threshold", "faithfulness>=0.1")


def test_a_metric_has_its_names_of_other_tools_wherever_it_is_named(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Targets, margins, metrics against a baseline and ranked metrics; a typo gets the close name."""
    monkeypatch.chdir(tmp_path)
    gate = ["gate", place / "v1", "--baseline", place / "v1", "-m", "faithfulness", "--margins", "faithfulness=0.5"]
    assert run_command([str(argument) for argument in gate]) == 0
    assert "groundedness>=baseline-0.5" in capsys.readouterr().out
    Path("ragfault.toml").write_text('[targets]\nthresholds = ["faithfulness>0.123"]\n')
    shown = json.loads(run_and_read(capsys, "report", place / "v1", "--json"))["scorecard"]["aggregates"]
    assert {item["metric"]: item["target"] for item in shown}["groundedness"]["value"] == 0.123
    Path("ragfault.toml").write_text('[targets]\nthresholds = ["faithfulnes>0.1"]\n')
    assert 'Did you mean "faithfulness"' in run_and_read(capsys, "report", place / "v1", code=2)
    Path("ragfault.toml").unlink()
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 2.0 r\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    assert "reciprocal_rank@10" in run_and_read(capsys, "run", "rank", "run.trec", "qrels.txt", "-m", "mrr@10")
    options = ["--margins", "faithfulnes=0.1"]
    assert 'Did you mean "faithfulness"' in run_and_read(
        capsys, "compare", place / "v1", place / "v1", *options, code=2
    )


def test_the_version_and_the_module_are_the_command(capsys: pytest.CaptureFixture[str]):
    """`--version` names the version; `python -m ragfault` is the same command."""
    assert __version__ in run_and_read(capsys, "--version")
    done = subprocess.run([sys.executable, "-m", "ragfault", "--version"], capture_output=True, text=True, check=True)
    assert __version__ in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evalute", "x"], 'no command "evalute". Did you mean "evaluate"? List them with: ragfault --help'),
        (["evaluate", "nope.jsonl", "-o", "run"], "nope.jsonl"),
        (["evaluate", "nope.jsonl"], "nope.jsonl"),
        (["run", "schema", "gates"], 'no verb with --json "gates". Did you mean "gate"?'),
        (["metrics", "faithfulnes"], 'Did you mean "faithfulness"?'),
        (["report", "nope"], "no run at nope"),
        (["metrics", "ndgc"], 'Did you mean "ndcg"? List them with: ragfault metrics'),
        (["gate", "nope", "--threshold", "error<=0"], "no run at nope"),
        (["run", "rank", "nope", "nope"], "nope"),
    ],
)
def test_a_usage_error_is_one_message_and_exit_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    """What was asked, what there is, what to do; never a traceback."""
    assert says in run_and_read(capsys, *arguments, code=2)


@pytest.mark.long
def test_evaluate_answers_in_the_first_lines(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """25 lines of 80 columns hold how many answers are bad, causes that sum to them, and the command of the fix."""
    monkeypatch.setenv("COLUMNS", "80")
    # the path of the run is part of the screen
    monkeypatch.chdir(tmp_path)
    traces = place / "handbook/traces-v2.jsonl"
    assert run_command(["evaluate", str(traces), "-o", "v2", "--workers", "2", "--judge", "embedded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    bad = int(re.search(r"(\d+) bad", " ".join(lines[:4]))[1])
    title = next(at for at, line in enumerate(lines) if line.startswith(f"Why the {bad} are bad"))
    rows = itertools.takewhile(lambda line: not line.startswith("Retrieval"), lines[title + 2 :])
    assert sum(int(row.split()[0]) for row in rows) == bad
    assert "ragfault diagnose v2 --cause " in " ".join(lines)
    assert "ragfault report v2" in " ".join("".join(lines).split())
    again = ("evaluate", traces, "-o", tmp_path / "v2")
    assert "exists already" in run_and_read(capsys, *again, code=2)
    assert "Worst traces" in run_and_read(capsys, "run", "rescore", tmp_path / "v2", "-o", tmp_path / "full", "--full")


def test_color_is_forced_and_forbidden_by_the_environment(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """FORCE_COLOR colours what is no terminal; NO_COLOR goes before it; an empty variable says nothing."""
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run_and_read(capsys, "diagnose", place / "v1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run_and_read(capsys, "diagnose", place / "v1")


def test_lost_scores_change_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Where a judge failed on a trace, the run is there, the summary says so, and the exit code is 3."""
    from ragfault.judges.encoder.judge import EncoderJudge
    from ragfault.model.errors import JudgeError

    honest = EncoderJudge.observe

    def failing(self, traces):
        if any(trace.id == "1" for trace in traces):
            raise JudgeError("too long for the judge")
        return honest(self, traces)

    monkeypatch.setattr(EncoderJudge, "observe", failing)
    chunk = (Chunk(id="a", text="It opens at nine."),)
    traces = [Trace(id=str(n), query="When?", chunks=chunk, answer="It opens at nine.") for n in range(3)]
    write_traces(traces, tmp_path / "t.jsonl")
    out = run_and_read(capsys, "evaluate", tmp_path / "t.jsonl", "-o", tmp_path / "run", "-m", "groundedness", code=3)
    assert "1 of 3 scores failed; each has its reason" in out
    assert "too long for the judge" in out


@pytest.mark.long
def test_standard_input_is_read(place: Path, tmp_path: Path):
    """`evaluate -` reads traces from a pipe."""
    data = (place / "handbook/traces-v1.jsonl").read_bytes()
    command = [sys.executable, "-m", "ragfault", "evaluate", "-", "-o", str(tmp_path / "run"), "-m", "error", "-q"]
    subprocess.run(command, input=data, check=True)
    assert json.loads((tmp_path / "run/manifest.json").read_text())["source"] == ["-"]


def test_bad_lines_are_shown_with_their_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """All faults at once, the way out named; --skip-bad goes on, keeps the lines and names the first and the last."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "1", "query": "q", "chunks": [], "answer": "a"}\n{"id": 2\n{"query": 7, "id": "3"}\n')
    out = run_and_read(capsys, "evaluate", path, "-o", tmp_path / "run", "-m", "error", code=2)
    assert "2 of 3 traces cannot be read" in out
    assert f"{path}:2:" in out
    assert "--skip-bad" in out
    out = run_and_read(capsys, "evaluate", path, "-o", tmp_path / "run", "-m", "error", "--skip-bad")
    assert f"{path}:2: malformed JSON" in out
    assert f"; {path}:3: " in out
    assert len((tmp_path / "run.bad.jsonl").read_text().splitlines()) == 2


@pytest.mark.long
def test_report_writes_every_format(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The suffix names the format; a file that stands there is not replaced; an unknown suffix is refused."""
    for name, mark in {
        "r.md": "| metric",
        "r.json": '"scorecard"',
        "r.csv": "metric,",
        "r.html": "<!doctype html>",
    }.items():
        run_and_read(capsys, "report", place / "v1", "-o", tmp_path / name)
        assert mark in (tmp_path / name).read_text().lower()
    assert "exists already" in run_and_read(capsys, "report", place / "v1", "-o", tmp_path / "r.md", code=2)
    run_and_read(capsys, "report", place / "v1", "-o", tmp_path / "r.md", "--force")
    text = run_and_read(capsys, "report", place / "v1", "-o", tmp_path / "r.xyz", code=2)
    assert "has no known suffix" in text
    assert "cannot write" in run_and_read(capsys, "report", place / "v1", "-o", tmp_path / "no/r.md", code=2)
    assert json.loads(run_and_read(capsys, "report", place / "v1", "--format", "json"))["run"] == "v1"


def test_diagnose_shows_single_traces(place: Path, capsys: pytest.CaptureFixture[str]):
    """By id in the order asked, else the worst; an id that is not there is named."""
    first = next(read_traces(place / "handbook/traces-v1.jsonl"))
    assert first.query in " ".join(run_and_read(capsys, "diagnose", place / "v1", first.id).split())
    assert run_and_read(capsys, "diagnose", place / "v1", "--worst", "2")
    assert 'no trace in v1 "nope"' in run_and_read(capsys, "diagnose", place / "v1", "nope", code=2)


@pytest.mark.parametrize(("threshold", "code"), [("error<=0.5", 0), ("error>=0.5", 1), ("groundedness>=%.3f", 3)])
def test_the_gate_speaks_through_its_exit_code(
    place: Path, threshold: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """0 pass, 1 fail, 3 cannot tell; JUnit and Markdown beside it."""
    if "%" in threshold:
        card = json.loads(run_and_read(capsys, "report", place / "v1", "--format", "json"))["scorecard"]["aggregates"]
        threshold %= next(row["interval"]["mean"] for row in card if row["metric"] == "groundedness")
    out = run_and_read(
        capsys,
        "gate",
        place / "v1",
        "--threshold",
        threshold,
        "--junit",
        tmp_path / "g.xml",
        "--markdown",
        tmp_path / "g.md",
        code=code,
    )
    assert {0: "pass", 1: "fail", 3: "cannot tell"}[code] in out
    assert "<testsuite" in (tmp_path / "g.xml").read_text()
    assert "|" in (tmp_path / "g.md").read_text()


def test_settings_come_from_a_file(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """ragfault.toml gives thresholds, targets, metrics and the column map; a wrong key is named; flags win."""
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "ragfault.toml"
    settings.write_text(
        '[evaluate]\nmetrics = ["error", "redundancy"]\n[map]\nquery = "question"\nchunks = "docs"\n'
        '[gate]\nthresholds = ["error<=0.9"]\n[targets]\nthresholds = ["redundancy<=0.1"]\n'
    )
    (tmp_path / "t.jsonl").write_text("".join(f'{{"question": "q{n}?", "docs": ["d"]}}\n' for n in range(9)))
    out = run_and_read(capsys, "evaluate", "t.jsonl", "-o", "run")
    assert "redundancy" in out
    assert "groundedness" not in out
    assert run_and_read(capsys, "gate", "run").count("pass") >= 1
    assert "fail" in run_and_read(capsys, "gate", "run", "--threshold", "error>=0.9", code=1)
    settings.write_text("[gate]\nthreshold = 1\n")
    assert 'no key of [gate] in ragfault.toml "threshold". Did you mean "thresholds"?' in run_and_read(
        capsys, "gate", "run", code=2
    )
    settings.write_text("[gate\n")
    assert "is not TOML" in run_and_read(capsys, "gate", "run", code=2)
    assert "cannot read" in run_and_read(capsys, "gate", "run", "--config", "other.toml", code=2)


def test_metrics_lists_and_explains(capsys: pytest.CaptureFixture[str]):
    """One line each by layer; one explained with its parameters, range and source."""
    listing = run_and_read(capsys, "metrics")
    assert "ndcg@k" in listing
    assert "Generation" in listing
    assert "Retrieval" not in run_and_read(capsys, "metrics", "--layer", "generation")
    page = run_and_read(capsys, "metrics", "ndcg")
    assert "gain=linear" in page
    assert "Järvelin" in page
    assert ">>>" not in page


def test_schema_is_the_json_schema_of_a_trace(capsys: pytest.CaptureFixture[str]):
    """`ragfault run schema` prints JSON with the fields of a trace."""
    schema = json.loads(run_and_read(capsys, "run", "schema"))
    assert set(schema["$defs"]["Trace"]["properties"]) == set(Trace.__struct_fields__)


def test_convert_goes_there_and_back(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """JSONL → Parquet → JSONL keeps every trace; another shape is written on request; skip-bad keeps bad lines."""
    source = place / "handbook/traces-v1.jsonl"
    run_and_read(capsys, "run", "convert", source, tmp_path / "t.parquet")
    run_and_read(capsys, "run", "convert", tmp_path / "t.parquet", tmp_path / "t.jsonl.gz")
    assert list(read_traces(tmp_path / "t.jsonl.gz")) == list(read_traces(source))
    run_and_read(capsys, "run", "convert", source, tmp_path / "ragas.jsonl", "--to", "ragas")
    assert "user_input" in (tmp_path / "ragas.jsonl").read_text()
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "query": "q"}\nnonsense\n')
    assert "cannot be read" in run_and_read(
        capsys, "run", "convert", tmp_path / "bad.jsonl", tmp_path / "x.jsonl", code=2
    )
    assert not (tmp_path / "x.jsonl").exists()
    run_and_read(capsys, "run", "convert", tmp_path / "bad.jsonl", tmp_path / "x.jsonl", "--skip-bad")
    assert (tmp_path / "x.jsonl.bad.jsonl").read_text() == "nonsense\n"


def test_rank_says_how_ties_are_ordered_where_most_lines_tie(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A run whose scores are all alike is ordered by id, whatever its ranks: that is said, of other runs nothing."""
    (tmp_path / "qrels").write_text("".join(f"q{query} 0 a 1\n" for query in range(3)))
    for name, fall in (("flat", 0), ("steep", 1)):
        lines = [
            f"q{query} Q0 {chunk} {rank} {9 - fall * rank} x\n"
            for query in range(3)
            for rank, chunk in enumerate("abcdef")
        ]
        (tmp_path / name).write_text("".join(lines))
        printed = run_and_read(capsys, "run", "rank", tmp_path / name, tmp_path / "qrels", "-m", "recall@5")
        assert ("15 of 18 lines" in printed) == ("ordered by descending id" in printed) == (name == "flat")
        assert ("0.0000" if name == "flat" else "1.0000") in printed
        assert "too few" in printed


def test_rank_equals_evaluate_on_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The fast verb and the run give the same means, and the query that was not judged is undefined in both."""
    run_file, qrels = tmp_path / "r.trec", tmp_path / "q.txt"
    run_file.write_text("q1 Q0 a 1 0.9 x\nq1 Q0 b 2 0.8 x\nq2 Q0 c 1 0.8 x\nq4 Q0 c 1 0.8 x\n")
    qrels.write_text("q1 0 b 1\nq2 0 c 2\nq3 0 z 1\n")
    [row] = json.loads(run_and_read(capsys, "run", "rank", run_file, qrels, "-m", "ndcg@5", "--json"))
    run_and_read(capsys, "evaluate", run_file, "--qrels", qrels, "-m", "ndcg@5", "-o", tmp_path / "run", "-q")
    aggregate = json.loads(run_and_read(capsys, "report", tmp_path / "run", "--format", "json"))["scorecard"][
        "aggregates"
    ][0]
    assert row["mean"] == pytest.approx(aggregate["interval"]["mean"])
    assert (row["scored"], row["undefined"]) == (aggregate["scored"], aggregate["undefined"]) == (3, 1)
    assert "q4\tundefined" in run_and_read(capsys, "run", "rank", run_file, qrels, "-m", "ndcg@5", "--per-query")
    assert "is not a ranked metric" in run_and_read(
        capsys, "run", "rank", run_file, qrels, "-m", "groundedness", code=2
    )


def test_hostile_text_does_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Escape sequences and markup in traces come out as plain text, in reports and in errors."""
    evil = "\x1b]0;owned\x07[red]x[/red]\x1b[2J"
    write_traces([Trace(id="1", query=evil, chunks=(Chunk(id="a", text=evil),), answer=evil)], tmp_path / "t.jsonl")
    out = run_and_read(capsys, "evaluate", tmp_path / "t.jsonl", "-o", tmp_path / "run")
    out += run_and_read(capsys, "diagnose", tmp_path / "run")
    (tmp_path / "bad.jsonl").write_text(json.dumps({"id": "1", "query": {evil: 1}}) + "\n")
    out += run_and_read(capsys, "evaluate", tmp_path / "bad.jsonl", "-o", tmp_path / "x", code=2)
    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.long
def test_a_closed_pipe_is_no_error(place: Path):
    """`ragfault report RUN | head -1` ends quietly."""
    command = f"{sys.executable} -m ragfault report {place / 'v1'} --format json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_line_of_progress_names_the_calls_so_far(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Behind a slow model no part is finished for minutes: the calls tell that it works."""
    monkeypatch.setattr("ragfault.options.runs.PROGRESS_SECONDS", 0.0)
    progress = LineProgress()
    progress.show_usage(Usage(calls=8, cost=0.5))
    progress(0, 104)
    assert capsys.readouterr().err == "finished 0 of 104 traces in 0 s, US$ 0.5000 in 8 calls\n"
