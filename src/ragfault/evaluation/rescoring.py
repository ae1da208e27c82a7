"""Rescore: the metrics of a run computed anew from its stored verdicts, without judging again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragfault import __version__
from ragfault.evaluation.evaluating import measure
from ragfault.evaluation.work import score_all
from ragfault.metrics import Metric, choose
from ragfault.runs import Manifest, Run
from ragfault.runs.places import check_free, resolved, settle, writing
from ragfault.runs.run import ROWS
from ragfault.runs.writing import GROUP, write_groups, write_manifest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["rescore"]


def rescore(
    run: str | Path | Run,
    out: str | Path,
    *,
    metrics: str | Sequence[str] | None = None,
    force: bool = False,
) -> Run:
    """Compute metrics on the verdicts of a run, and leave the result as another run.

    `metrics` as for `evaluate`; None computes those of the run again. Nothing is judged: a changed weight,
    penalty or threshold costs milliseconds a trace. A metric that reads verdicts which the run's judge did
    not make is undefined, and says so.

    Raises RunError where there is no run, OutputError where the place is taken, and what `choose` raises.

    >>> import tempfile
    >>> from ragfault import Chunk, Trace, evaluate
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),), answer="At noon.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([trace], f"{folder}/run", metrics=["redundancy"])
    ...     again = rescore(run, f"{folder}/again", metrics=["redundancy(threshold=0.5)"])
    ...     [(score.metric, score.value) for score in again.scores()]
    [('redundancy(threshold=0.5)', 0.0)]
    """
    run = run if isinstance(run, Run) else Run.open(run)
    out = resolved(out)
    check_free(out, force=force)
    chosen = choose(metrics if metrics is not None else [made.name for made in run.manifest.metrics])
    with writing(out), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=_parent(out)) as folder:
        draft = Path(folder, "run")
        draft.mkdir()
        for name in ("traces", "verdicts"):
            shutil.copyfile(run.path / f"{name}.parquet", draft / f"{name}.parquet")
        states = write_groups(_scores(run, chosen), draft / "scores.parquet", GROUP["scores"])
        write_manifest(draft, _manifest(run.manifest, chosen, states))
        settle(draft, out, force=force)
    return Run.open(out)


def _parent(out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent


def _manifest(old: Manifest, metrics: Sequence[Metric], states: dict[str, int]) -> Manifest:
    """The manifest of a run that is scored anew."""
    return msgspec.structs.replace(
        old,
        ragfault=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=tuple(map(measure, metrics)),
        scored=states.get("scored", 0),
        undefined=states.get("undefined", 0),
        failed=states.get("failed", 0),
    )


def _scores(run: Run, metrics: Sequence[Metric]) -> Iterator[pa.Table]:
    """The scores as tables, a bounded number of traces at a time."""
    from ragfault.runs.tables import SCORE_SCHEMA, to_table

    held = []
    for number, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True), 1):
        held += score_all(metrics, trace, verdicts)
        if number % ROWS == 0:
            yield to_table(held, SCORE_SCHEMA)
            held = []
    if held:
        yield to_table(held, SCORE_SCHEMA)
