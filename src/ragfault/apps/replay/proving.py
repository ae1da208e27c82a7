"""The conduct of a replay: what answers is opened and closed, and what it did is stored with the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragfault.apps.replay.asking import Asker, build_text_redactor
from ragfault.apps.replay.cause_replay import replay_causes
from ragfault.apps.replay.planning import PlannedRun
from ragfault.apps.replay.records import ReplayReport
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.apps.replay.store import Result, mark_finished, mark_unfinished, merge_causes, store_result
from ragfault.apps.replay.targets import ReplayTarget
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.runs.run import Run


def conduct_replay(
    run: Run,
    kind: type[Result],
    targets: Sequence[ReplayTarget],
    settings: ReplaySettings,
    work: Callable[[list[Asker]], Result],
) -> Result:
    """Do the work of a replay with what answers, and store its result with the run.

    What all of them spend counts together, and what a killed replay spent counts for the next.
    """
    fresh = not mark_unfinished(run, kind)
    budget, redact = f"{kind.__name__} {run.path.resolve()}", build_text_redactor(settings.redact)
    askers: list[Asker] = []
    try:
        for target in targets:
            askers.append(target.open(budget, fresh=fresh and not askers, redact=redact))
        result = work(askers)
    finally:
        for asker in askers:
            asker.close()
    if result.stopped is None:
        mark_finished(run, kind)
    return store_result(run, result)


def prove_causes(source: RunTable, planned: PlannedRun, target: ReplayTarget, settings: ReplaySettings) -> ReplayReport:
    """Put the causes of a run to the proof, and store the result with those of other causes by the same model."""

    def work(askers: list[Asker]) -> ReplayReport:
        return merge_causes(source.run, replay_causes(source, planned, askers[0], settings))

    return conduct_replay(source.run, ReplayReport, [target], settings, work)
