"""What apps read of large runs is a sample, and they say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragfault import Run, evaluate
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.replay import replay_run
from ragfault.apps.guard.report import build_replay
from ragfault.cli.commands import run_command
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.report.renderers.terminal import render_terminal


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    place: Path = tmp_path_factory.mktemp("samples")
    old, new = (
        evaluate(load_handbook().traces[version], place / version, judge="lexical", metrics=["groundedness", "mrr"])
        for version in ("v1", "v2")
    )
    return old, new


def test_a_replay_says_of_which_sample_it_is(runs: tuple[Run, Run]) -> None:
    total = runs[1].manifest.traces
    policy = parse_policy("[rails.secrets]")
    replay = replay_run(runs[1], policy, sample=40)
    assert (replay.sample, replay.population) == (40, total)
    assert f"random sample: 40 of {total} traces" in " ".join(render_terminal(build_replay(replay)).split())
    labels = {trace.id: False for trace in runs[1].traces()}
    assert replay_run(runs[1], policy, labels=labels, sample=40).population == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [["lint", "RUN", "--sample", "40"], ["monitor", "RUN", "--sample", "40"]],
    ids=lambda arguments: arguments[0],
)
def test_every_verb_on_a_large_run_says_that_it_took_a_sample(
    runs: tuple[Run, Run], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, total = str(runs[0].path), runs[0].manifest.traces
    code = run_command([path if word == "RUN" else word for word in arguments])
    printed = capsys.readouterr()
    assert code in (0, 1, 3), printed
    assert f"random sample: 40 of {total} traces" in " ".join((printed.out + printed.err).split())


@pytest.mark.long
def test_runs_that_are_monitored_together_are_sampled_at_one_rate(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = evaluate(list(runs[1].traces())[:52], tmp_path / "small", judge="lexical", metrics=["groundedness", "mrr"])
    run_command(["monitor", str(runs[0].path), str(small.path), "--sample", "78", "--json"])
    report = json.loads(capsys.readouterr().out)
    total = runs[0].manifest.traces + 52
    assert (report["sample"], report["population"]) == (78, total)
