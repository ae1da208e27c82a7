"""Evaluate: traces × judge × metrics → Run, streaming, on as many processes as wanted, resumable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragfault import __version__, judges
from ragfault.errors import BadTraces, InputError, UsageError
from ragfault.evaluation.executors import Processes
from ragfault.evaluation.paying import paying, usage
from ragfault.evaluation.spool import Side, Where, settled, spooling
from ragfault.evaluation.work import Job, work_off
from ragfault.judges.lens import Lens
from ragfault.judges.llm.settings import Settings
from ragfault.metrics import Metric, choose, definitions
from ragfault.metrics.aliases import told as answered
from ragfault.ports import Executor, Judge, Metered
from ragfault.records import Trace, Usage
from ragfault.runs import Measure, Partial, Plan, Run
from ragfault.runs.places import check_free, desk, placed
from ragfault.sources import Digest, Survey, read_traces, survey
from ragfault.sources.files import named
from ragfault.sources.frames import Frame
from ragfault.sources.remote import Place, is_remote
from ragfault.sources.slices import Index, index, marks

__all__ = ["evaluate", "measure"]

BATCH, LARGE = 64, 1024
"""Traces to a part, here and on a cluster: at most so many are lost, for each worker, when an evaluation is killed."""
PARTS = 256
"""Parts that a cluster's work is cut into at the least, before they are made larger than here."""


def _quiet(*_: object) -> None:
    """Tell nobody."""


def evaluate(  # noqa: PLR0913 - the options of one verb
    where: Where | Iterable[Trace] | Frame,
    out: str | Place,
    *,
    judge: str | Judge = judges.DEFAULT,
    options: Mapping[str, Any] | Settings | None = None,
    lens: str | Path | Lens = "general",
    metrics: str | Sequence[str] = "default",
    workers: int = 1,
    executor: Executor | None = None,
    batch: int | None = None,
    force: bool = False,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = _quiet,
    spent: Callable[[Usage], None] = _quiet,
    notice: Callable[[str], None] = _quiet,
    **reading: Any,
) -> Run:
    """Judge every trace, compute every metric on it, and leave the result as a run on disk.

    `where` is what `read_traces` takes (and `reading` its options: map, shape, qrels, …), frames among it, or traces
    themselves. `judge` is a name or an object of the port's shape; where no metric reads a verdict, nothing
    is judged. `lens` names what must agree exactly in a domain: "legal", "medical", "financial", "technical",
    or a TOML file of yours (see `ragfault lens`). `metrics` is a set ("default", "all", a layer), or texts
    such as "ndcg@10". The result is the same for any number of `workers` and any `batch`. `progress` is
    called with (traces done, traces in all), `notice` with lines worth telling.

    An `executor` has the work done in the place of `workers`, on a cluster, say (`Ray`). Input and `out` may lie in an
    object store ("s3://bucket/run"), where those who do the work read and write themselves.

    `options` go to a judge that is named: those of "llm:MODEL" are the fields of `Settings` (budget, concurrency …),
    or `Settings` themselves. A judge that is paid for asks from one process, `spent` is called with what it spent so
    far, and the run's manifest holds the sum. Where it cannot go on (BudgetSpent, Stopped) all that was done is kept.

    Killed at any point and called again with the same arguments, it goes on where it stopped; the traces in
    flight are lost, `batch` for each worker at the most. A judge that fails on a trace gives `failed`
    scores with the reason, and the run goes on.

    Raises BadTraces where lines of the input are not traces (with `skip_bad` they go to a side file
    `OUT.bad.jsonl` and the others are evaluated), InputError, UsageError, OutputError, RunError, Stopped.

    >>> import tempfile
    >>> from ragfault import Chunk, Trace, evaluate
    >>> chunk = Chunk(id="a", text="The harbour office opens at 7:30 on weekdays.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30 on weekdays.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([trace], f"{folder}/run", metrics=["groundedness", "error"])
    ...     [(score.metric, score.value) for score in run.scores()]
    [('groundedness', 1.0), ('error', 0.0)]
    """
    out = placed(out)
    check_free(out, force=force)
    chosen = choose(metrics)
    judge = _judge(judge, options, lens, chosen)
    _spread_as(workers, batch, judge, executor, notice)
    for line in (*_left_out(metrics), *answered(metrics)):
        notice(line)
    source = named(where)
    with desk(out) as place, spooling(place) as spool:
        where = settled(where, spool)
        by = executor or (Processes(workers) if workers > 1 else None)
        marked = marks(where) if by is not None else {}
        found = _survey(where, source, skip_bad, notice, reading)
        size = batch or _batch(found.count, far=executor is not None or is_remote(out))
        partial = _begin(out, _plan(judge, chosen, found, source, size), force, notice)
        told = _telling(judge, progress, spent)
        with Side(out.with_name(out.name + ".bad.jsonl"), notice) as side, paying(judge, partial):
            traces = _same(read_traces(where, on_bad=side.keep, **reading), found)
            places = _index(where, found, marked, reading) if by is not None else None
            work_off(Job.of(partial, judge, chosen), traces, places, by, told)
        return partial.finish(force=force, usage=usage(judge))


def _begin(out: Place, plan: Plan, force: bool, notice: Callable[[str], None]) -> Partial:
    """Begin the run, or take up the one that was begun, and say so."""
    partial = Partial.begin(out, plan, force=force)
    if done := len(partial.done()):
        notice(f"resuming: {done:,} parts of {partial.plan.batch} traces are done already")
    return partial


def _batch(count: int, *, far: bool) -> int:
    """Traces to a part: where each costs a request to a store or a cluster, more of them the more there are."""
    return min(LARGE, max(BATCH, count // PARTS)) if far else BATCH


def _index(
    where: Where, found: Survey, marked: Mapping[str, str], reading: Mapping[str, Any]
) -> Index | None:
    """Where the traces stand, for workers who read them themselves; None where only the whole can be read."""
    given = {name for name, value in reading.items() if value is not None} - {"shape"}
    if given or found.bad or found.named or reading.get("shape") not in (None, "ragfault"):
        return None
    return index(where, found.count, marked)


def _judge(
    judge: str | Judge,
    options: Mapping[str, Any] | Settings | None,
    lens: str | Path | Lens,
    chosen: Sequence[Metric],
) -> Judge:
    """The judge that is meant; none where no metric reads a verdict and it is only named."""
    given = {"settings": options} if isinstance(options, Settings) else dict(options or {})
    if isinstance(judge, str):
        asked = any(metric.definition.verdicts for metric in chosen)
        return judges.load_judge(judge, lens=lens, **given) if asked else judges.load_judge("none")
    if given:
        raise UsageError(
            "options go to a judge that is named. This one is made already: give them where it is made."
        )
    return judges.through(judge, lens)


def _spread_as(
    workers: int,
    batch: int | None,
    judge: Judge,
    executor: Executor | None,
    notice: Callable[[str], None],
) -> None:
    """Refuse numbers of workers and sizes of parts that cannot be; say where a judge that is paid for is asked."""
    if workers < 1 or (batch is not None and batch < 1):
        raise UsageError(f"workers and batch are at least 1, got workers={workers}, batch={batch}.")
    if not isinstance(judge, Metered):
        return
    if executor is not None:
        notice("a judge that is paid for is asked from here alone, so that one budget and one pace hold")
    elif workers > 1:
        raise UsageError(
            f"a judge that is paid for asks from one process, got workers={workers}. "
            "How many calls are under way at once is its concurrency: --concurrency, or options={'concurrency': 32}."
        )


def _telling(
    judge: Judge, progress: Callable[[int, int], None], spent: Callable[[Usage], None]
) -> Callable[[int, int], None]:
    """What tells of the progress, and of what was spent where something is."""

    def told(done: int, total: int) -> None:
        progress(done, total)
        if (so_far := usage(judge)) is not None:
            spent(so_far)

    return told


def _survey(
    where: Where,
    source: tuple[str, ...],
    skip_bad: bool,
    notice: Callable[[str], None],
    reading: dict[str, Any],
) -> Survey:
    """Read the input once before a judge sees any of it: count, fingerprint, faults."""
    found = survey(where, **reading)
    if found.bad and not (skip_bad and found.count):
        faults = found.faults
        if source == ("-",):
            faults = tuple(fault._replace(where="standard input") for fault in faults)
        raise BadTraces(faults, found.count, found.bad)
    if found.shape:
        notice(found.shape)
    return found


def _same(traces: Iterable[Trace], found: Survey) -> Iterator[Trace]:
    """The traces, and an error at their end if they are not those that the survey saw."""
    digest = Digest()
    for trace in traces:
        digest.add(trace)
        yield trace
    if digest.fingerprint != found.fingerprint:
        raise InputError(
            f"the input changed while it was read: {found.count:,} traces before, {digest.count:,} now, or other "
            "ones. Evaluate again when nothing writes to it."
        )


def _left_out(metrics: str | Sequence[str]) -> Iterator[str]:
    """What the set "all" leaves out because an extra is not installed, in words."""
    if "all" in ([metrics] if isinstance(metrics, str) else metrics):
        missing = [entry for entry in definitions().values() if not entry.installed]
        for extra in sorted({entry.extra or "" for entry in missing}):
            names = ", ".join(entry.name for entry in missing if (entry.extra or "") == extra)
            yield f"left out {names}. Install what they need with: pip install 'ragfault[{extra}]'"


def _plan(
    judge: Judge, metrics: Sequence[Metric], found: Survey, source: tuple[str, ...], batch: int
) -> Plan:
    return Plan(
        ragfault=__version__,
        judge=judge.fingerprint,
        metrics=tuple(map(measure, metrics)),
        fingerprint=found.fingerprint,
        traces=found.count,
        source=source,
        skipped=found.bad,
        batch=batch,
    )


def measure(metric: Metric) -> Measure:
    """What a run remembers of a metric.

    >>> measure(choose("latency")[0])
    Measure(name='latency', layer='operation', better='lower', low=0.0, high=None)
    """
    kind = metric.definition
    low, high = (end if math.isfinite(end) else None for end in metric.range)
    return Measure(str(metric), kind.layer, kind.better, low, high)
