"""Measure: traces × labels × judge → how far they agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ragfault.agreement.columns import PEOPLE, checked
from ragfault.agreement.figures import Terms
from ragfault.agreement.gathering import Asked, Gathered, Where, gather
from ragfault.agreement.judging import judged
from ragfault.agreement.making import Frame, Said, made
from ragfault.agreement.records import Measurement, Task
from ragfault.agreement.running import OfRun, of_run
from ragfault.agreement.units import derived
from ragfault.errors import UnknownName, UsageError
from ragfault.judges import DEFAULT, load_judge, through
from ragfault.judges.lens import Lens
from ragfault.ports import Judge
from ragfault.records import Trace
from ragfault.runs import Run
from ragfault.sources.desk import OnBad
from ragfault.sources.files import named

__all__ = ["TASKS", "measure"]

TASKS: tuple[Task, ...] = ("answer", "support", "relevance")


def _quiet(*_: object) -> None:
    """Tell nobody."""


def measure(  # noqa: PLR0913 - the options of one verb
    where: Where | Iterable[Trace],
    *,
    run: str | Path | Run | None = None,
    judge: str | Judge | None = None,
    lens: str | Path | Lens = "general",
    options: Mapping[str, Any] | None = None,
    task: Task | None = None,
    positive: str | float | Sequence[str | float] = (),
    group: str | None = None,
    within: str | Sequence[str] = (),
    by: str | None = None,
    threshold: str | float = "cv",
    limit: int | None = None,
    seed: int = 0,
    resamples: int = 1000,
    workers: int = 1,
    on_bad: OnBad = "raise",
    progress: Callable[[int, int], None] = _quiet,
    notice: Callable[[str], object] = _quiet,
    **reading: Any,
) -> Measurement:
    """How far a judge agrees with people, on traces with labels.

    `judge` is a name (made with `options`) or an object of the port's shape, looking through a `lens`; without it the
    default one. With a `run`, `where` is a file of labels that `ragfault label` wrote on it, and without a judge the
    verdicts of the run are measured as they stand.
    `where` and `reading` are what `read_traces` takes; `map` has four keys more, `label`, `spans`, `claims` and
    `grades`, for the columns of what people said, which are else known by their names. `task` is what people judged:
    "answer" as a whole (with marked `spans` also by claim and by sentence), "support" of single claims, or
    "relevance" of chunks; without it the columns tell. `positive` names the labels that are bad (relevance: the
    lowest grade that is relevant).

    A score is one less the judge's probability that an answer or a claim is supported, or the relevance of a
    chunk. Intervals resample whole groups: those of the column `group`. AUROC is also taken `within` columns; `by`
    a column gives figures for each of its values. F1 is taken at a `threshold`: "cv", the best of the other
    folds of groups; "own", the judge's word; or a number. `limit` draws whole groups until there are so many
    traces. Figures are the same for any order of the lines and any number of `workers`.

    Raises BadTraces for lines and labels that cannot be read, all at once (`on_bad` as for `read_traces`),
    InputError, UsageError, UnknownName; JudgeError where the judge has no verdict on any trace.

    >>> from ragfault import Chunk, Trace
    >>> said = {"It opens at 7:30.": 0, "It opens at 9:00.": 1}
    >>> chunk = Chunk(id="a", text="The office opens at 7:30 on weekdays.")
    >>> traces = [
    ...     Trace(id=answer, query="When?", chunks=(chunk,), answer=answer, metadata={"label": label})
    ...     for answer, label in said.items()
    ... ]
    >>> found = measure(traces, group="id")
    >>> found.task, found.whole.n, found.whole.positives, found.whole.figure("auroc").value
    ('answer', 2, 1, 1.0)
    """
    columns = _columns(within)
    level = _checked(task, threshold, workers, limit, seed)
    told = None if run is None else of_run(run, cast("str | Path", where), task)
    judge = _judge(judge, lens, options, told)
    asked = Asked(told.task if told else task, _texts(positive), group, limit, seed)
    given = gather(told.traces if told else where, asked, on_bad, notice, {**reading, **_map(told)})
    traces = [one.trace for one in given.labelled]
    checked([*columns, *([by] if by else [])], traces)
    notice(_told(given))
    seen, speed = judged(judge, [*traces, *derived(given.labelled)], workers, progress)
    given = given._replace(notes=[*(told.notes if told else ()), *given.notes])
    said = Said(given.labelled, seen[: len(traces)], seen[len(traces) :], told.words if told else None)
    frame = Frame(judge.fingerprint, named(where), level, columns, by, Terms(resamples, seed))
    return made(given, said, frame, speed)


def _judge(
    judge: str | Judge | None, lens: str | Path | Lens, options: Mapping[str, Any] | None, told: OfRun | None
) -> Judge:
    """Who is measured: the one that was named, else that of the run, else the default one."""
    if judge is None and told is not None:
        return told.judge
    judge = DEFAULT if judge is None else judge
    made = load_judge(judge, **(options or {})) if isinstance(judge, str) else judge
    return through(made, lens)


def _map(told: OfRun | None) -> dict[str, Any]:
    """Where the labels of a run stand beside its traces."""
    if told is None:
        return {}
    return {"map": {"claims": "claims"} if told.task == "support" else {"grades": "grades"}}


def _columns(within: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that were named, in a list or with commas between them."""
    names = within.split(",") if isinstance(within, str) else within
    return tuple(name.strip() for name in names if name.strip())


def _checked(task: Task | None, threshold: str | float, workers: int, limit: int | None, seed: int) -> str:
    """The threshold as it is known by; raises UsageError for what cannot be."""
    if task is not None and task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if workers < 1 or (limit is not None and limit < 1):
        raise UsageError(f"workers and limit are at least 1, got workers={workers}, limit={limit}.")
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed is a whole number from 0 to 2**63 - 1, got {seed}.")
    text = str(threshold)
    if text in ("cv", "own"):
        return text
    try:
        number = float(text)
    except ValueError:
        raise UnknownName("threshold", text, ["cv", "own", "a number from 0 to 1"]) from None
    if not 0 <= number <= 1:
        raise UsageError(f"the threshold {text} is not a score: give a number from 0 to 1, cv, or own.")
    return f"{number:g}"


def _texts(positive: str | float | Sequence[str | float]) -> tuple[str, ...]:
    listed = [positive] if isinstance(positive, (str, int, float)) else positive
    return tuple(str(one) for one in listed)


def _told(given: Gathered) -> str:
    """What is measured, in a line."""
    bad = "relevant" if given.task == "relevance" else "bad"
    group = f"groups by {given.columns.group}" if given.columns.group else "every trace by itself"
    return f"task {given.task}: people judged {PEOPLE[given.task]}; {given.positive} is {bad}; {group}"
