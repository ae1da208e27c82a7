"""Options of commands that write a run or read two of them."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import UsageError
from ragfault.options.output import print_notice

if TYPE_CHECKING:
    from rich.progress import Progress

    from ragfault.io.runs.run import Run
    from ragfault.labels.correction import HumanLabels
    from ragfault.model.records import Trace, Usage


class JudgingProgress:
    """Progress display of judging: traces, rate and cost so far."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def __call__(self, done: int, total: int) -> None:
        """Say how many traces are done."""
        if self._progress is None:
            return
        speed = self._progress.tasks[0].speed
        rate = "" if not speed else f"{speed:,.0f} traces/s" if speed >= 10 else f"{speed:.2g} traces/s"
        self._progress.update(self._progress.tasks[0].id, completed=done, total=total, rate=rate)

    def show_usage(self, usage: Usage) -> None:
        """Show the usage so far."""
        if self._progress is not None:
            self._progress.update(self._progress.tasks[0].id, spent=_format_spent(usage))


def _format_spent(usage: Usage) -> str:
    from ragfault.text.number_format import format_cost

    return f"{format_cost(usage.cost)} in {usage.calls:,} calls"


PROGRESS_SECONDS = 10.0
"""Time between two lines of progress where standard error is no terminal."""


class LineProgress(JudgingProgress):
    """Progress of judging as a line every ten seconds, for logs."""

    def __init__(self) -> None:
        super().__init__(None)
        self._started = self._printed = time.monotonic()
        self._spent = ""

    def __call__(self, done: int, total: int) -> None:
        """Print how many traces are done, at most every ten seconds."""
        now = time.monotonic()
        if now - self._printed >= PROGRESS_SECONDS:
            self._printed = now
            click.echo(f"finished {done:,} of {total:,} traces in {now - self._started:.0f} s{self._spent}", err=True)

    def show_usage(self, usage: Usage) -> None:
        """Note the usage for the next line."""
        self._spent = f", {_format_spent(usage)}"


@contextlib.contextmanager
def show_progress(quiet: bool) -> Iterator[JudgingProgress]:
    """Show progress on standard error: a bar with rate, time left and cost, or lines where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield JudgingProgress(None) if quiet else LineProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("judging", total=None, rate="", spent="")
        yield JudgingProgress(progress)


PROFILE_PATTERN = re.compile(r" lens=([^\s:]+):")
"""The domain profile in the fingerprint of a judge."""


def calibrate_run(run: Run, path: str | None, folder: Path) -> Run:
    """Calibrate the verdicts of a run and score them again, in a folder; without a file the run is as it is.

    A run that was judged with this very calibration is as it is, too.
    """
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.judges.calibration import read_calibration, wrap_judge
    from ragfault.labels.judges.runner import RecordedJudge

    if path is None or run.manifest.judge == (calibration := read_calibration(path)).fingerprint:
        return run
    judge = wrap_judge(RecordedJudge(run.manifest.judge, list(run.verdicts())), calibration)
    metrics = [measure.name for measure in run.manifest.metrics]
    return evaluate(
        run.traces(), folder / (run.path.name or "run"), judge=judge, metrics=metrics, gold=run.manifest.gold
    )


def rejudge_baseline(
    old: Run, new: Run, folder: Path, calibration: str | None = None, executor: Mapping[str, Any] | None = None
) -> Run:
    """Evaluate the baseline again with the judge and the metrics of the candidate, in a folder.

    The file of the calibration is needed where the candidate was judged with one; `executor` says where:
    `workers` and `ray`, as `evaluate` takes them.
    """
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.evaluation.rescorer import rescore
    from ragfault.judges.domain.profile import PROFILES
    from ragfault.judges.loading import JUDGES, load_judge

    fingerprint = new.manifest.judge
    metrics = [measure.name for measure in new.manifest.metrics]
    path = folder / (old.path.name or "baseline")
    if old.manifest.judge == fingerprint:
        if metrics == [measure.name for measure in old.manifest.metrics]:
            return old
        return rescore(old, path, metrics=metrics, **(executor or {}))
    name = fingerprint.partition("/")[0]
    profile = PROFILE_PATTERN.search(fingerprint)
    is_loadable = name in JUDGES and (profile is None or profile[1] in PROFILES)
    applied = calibration if " calibration=" in fingerprint else None
    judge = load_judge(name, profile=profile[1] if profile else "general", calibration=applied) if is_loadable else None
    if judge is None or judge.fingerprint != fingerprint:
        here = f"the judge here is {judge.fingerprint}" if judge else _explain_missing_judge(name, profile)
        raise UsageError(
            f"{old.path} cannot be judged again as {new.path} was, by {fingerprint}: {here}. "
            "Evaluate both with one judge, or compare them anyway with --anyway."
        )
    click.echo(f"judging {old.manifest.traces:,} traces of {old.path} again, by {fingerprint}", err=True)
    return evaluate(old.traces(), path, judge=judge, metrics=metrics, **(executor or {}))


def _explain_missing_judge(name: str, profile: re.Match[str] | None) -> str:
    """Explain why there is no such judge: by its name, and by its profile where that is one of a user."""
    if name == "llm":
        return "a judge that calls a paid model is used only where --judge names it"
    return (
        f'there is none here with the domain profile "{profile[1]}"' if profile else f"there is none here called {name}"
    )


def make_sample_option(most: int = 20_000, what: str = "traces to analyze") -> Callable[[Any], Any]:
    """Make the option --sample."""
    text = f"Most {what}; of larger runs a random sample. 0: all."
    return click.option("--sample", type=click.IntRange(0), metavar="N", default=most, show_default=True, help=text)


sample_option = make_sample_option()

cause_option = click.option(
    "--cause",
    "causes",
    multiple=True,
    metavar="NAME",
    help="Only answers that are bad for this cause, such as not-retrieved or refused. Repeatable.",
)

human_labels_option = click.option(
    "--human-labels",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="Correct scores with labels of some traces (prediction-powered): human labels, or the run of a stronger "
    "judge.",
)


def load_run_labels(paths: Sequence[str], run: Run) -> HumanLabels | None:
    """Load the human labels of a run, with notices on standard error; None where no file is named.

    Without a file the run of a cascade is corrected by its second judge.
    """
    from ragfault.labels.reading.reference_scores import load_reference_scores, load_second_scores

    if len(paths) > 1:
        raise UsageError(
            f"--human-labels was given {len(paths)} times, but there is one run: put the labels in one file."
        )
    if not paths:
        return load_second_scores(run, notice=print_notice)
    return load_reference_scores(paths[0], run, notice=print_notice)


def load_paired_labels(paths: Sequence[str], old: Run, new: Run) -> tuple[HumanLabels | None, HumanLabels | None]:
    """Load the human labels of a baseline and of a candidate: one file for both, or one for each."""
    from ragfault.labels.reading.reference_scores import load_paired_reference_scores

    return load_paired_reference_scores(paths, (old, new), notice=print_notice)


NO_OPTIONS: Mapping[str, Any] = {}


def open_run_or_file(path: str, sample: int = 0, reading: Mapping[str, Any] = NO_OPTIONS) -> Run | Iterator[Trace]:
    """Open a run, or a sample of a large one (0: all), or read the traces of a file."""
    from ragfault.io.runs.run import Run
    from ragfault.io.runs.samples import sample_run
    from ragfault.io.trace_reader import read_traces

    if (Path(path) / "manifest.json").is_file():
        return sample_run(Run.open(path), sample)
    return read_traces(path, notice=print_notice, **reading)


def read_logged(path: str, sample: int = 0, reading: Mapping[str, Any] = NO_OPTIONS) -> Iterator[Trace]:
    """Read the traces of a run, at most a random sample of so many of a large one (0: all), or of a log."""
    from ragfault.io.runs.run import Run
    from ragfault.report.wording import describe_trace_count

    opened = open_run_or_file(path, sample, reading)
    if not isinstance(opened, Run):
        return opened
    if opened.manifest.population:
        print_notice(describe_trace_count(opened.manifest))
    return opened.traces()
