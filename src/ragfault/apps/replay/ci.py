"""What replays add to `ragfault ci`: the causes of bad answers are put to the proof within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ragfault.apps.replay.decision import count_calls
from ragfault.apps.replay.planning import list_causes, plan_causes
from ragfault.apps.replay.proving import prove_causes
from ragfault.apps.replay.report import summarize_proofs
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.apps.replay.targets import ReplayTarget, describe_plan, read_target
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.runs.run import Run
from ragfault.judges.llm.settings import resolve_endpoint
from ragfault.model.errors import UsageError
from ragfault.options.output import print_notice

FLAGS = ("model", "app_name", "url", "cache", "temperature", "max_tokens")
"""Options of the verb that a job does not set; what it needs of them is in the table [llm] of the settings file."""


def prepare_ci(given: Mapping[str, str | None], table: Mapping[str, Any]) -> Callable[[Run], tuple[str, ...]]:
    """Return the function that proves the causes of a run, and says in sentences what is proven.

    Raises UsageError before anything is done: without a budget for a model, or without its key.
    """
    target = read_job_target(given["replay"], given["replay-budget"], table)

    def prove(run: Run) -> tuple[str, ...]:
        source, settings = RunTable(run), ReplaySettings()
        causes = list_causes(source, settings)
        if not causes:
            return ("replay: no bad answer has a cause to prove",)
        planned = plan_causes(run, causes, settings, needs_messages=target.needs_messages)
        requests = planned.requests
        print_notice(describe_plan(target.plan(requests, traces=len(requests), repeats=count_calls(settings.attempts))))
        report = prove_causes(source, planned, target, settings)
        ended = () if report.stopped is None else (f"replay ended early: {report.stopped}",)
        return (f"replay: {summarize_proofs(report.counts)}", *ended)

    return prove


def read_job_target(replay: str | None, replay_budget: str | None, table: Mapping[str, Any]) -> ReplayTarget:
    """Read what answers: an address, a function of a file, else a model.

    Raises UsageError for a model without a budget, or without its key.
    """
    if replay is None:
        raise UsageError("--replay-budget is for --replay, which names what answers.")
    kind = "url" if replay.startswith(("http://", "https://")) else "app_name" if ".py:" in replay else "model"
    if (kind == "model") != (replay_budget is not None):
        raise UsageError(
            '--replay asks a model only within a budget: --replay-budget 2 (US$), or "200000 tokens".'
            if kind == "model"
            else "--replay-budget limits a model; the price of an app or an address is not known."
        )
    options = {**dict.fromkeys(FLAGS), kind: replay, "budget": () if replay_budget is None else (replay_budget,)}
    target = read_target(options, table.get("llm", {}))
    if target.model is not None:
        resolve_endpoint(target.model)
    return target
