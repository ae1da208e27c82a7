"""Command `replay`: failing traces are asked again on the user's own model, with one cause removed at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.replay.settings import ReplaySettings
from ragfault.model.errors import UsageError
from ragfault.options.llm_judge import EVALUATE_LLM_FLAGS, add_endpoint_options, resolve_judge_options
from ragfault.options.output import json_option, print_json, print_notice, print_report
from ragfault.options.records import add_fields, take_fields
from ragfault.options.runs import human_labels_option, load_run_labels
from ragfault.options.settings import add_config_option, load_settings
from ragfault.text.number_format import format_cost, format_count

if TYPE_CHECKING:
    from ragfault.apps.replay.asking import Asker, PriceEstimate
    from ragfault.judges.llm.settings import LLMSettings


@click.command(
    epilog="""\b
Examples:
  ragfault replay runs/today --model openai:gpt-4o-mini --dry-run
  ragfault replay runs/today --model openai:gpt-4o-mini --cause not-retrieved --budget 2
  ragfault replay runs/today --model vllm:my-model --base-url http://localhost:8000/v1
  ragfault replay runs/today --app my_app.py:answer --retriever my_app.py:search
  ragfault replay runs/today --url http://localhost:8080/answer

Exit code 3: nothing could be replayed, or the budget ended first."""
)
@click.argument("run", type=click.Path())
@click.option("--model", metavar="PROVIDER:MODEL", help="Model that answers the recorded requests again.")
@click.option("--app", "app_name", metavar="FILE.py:NAME", help="Function of query, chunks and history that answers.")
@click.option("--url", metavar="URL", help="Address that takes query, chunks and history as JSON, and answers.")
@click.option("--retriever", metavar="FILE.py:NAME", help="Function of a query that returns the chunks to put in.")
@add_fields(ReplaySettings)
@click.option("--dry-run", is_flag=True, help="Say what would be asked and what it costs; send nothing.")
@add_endpoint_options
@human_labels_option
@add_config_option
@json_option
def replay(run: str, dry_run: bool, kind: str | None, **options: Any) -> int:
    """Ask the failing traces of RUN again, with the named cause removed, to prove or refute it.

    The requests are those that the traces record: only their chunks change. A cause is proven if the answer becomes
    right without it, beyond the noise of asking again; it is refuted if the answer stays bad. At most four calls for
    each trace. The result is stored with the run, and `ragfault report` shows it.
    """
    from ragfault.apps.replay.cause_replay import replay_causes
    from ragfault.apps.replay.planning import plan_replays
    from ragfault.apps.replay.report import build_replay
    from ragfault.apps.replay.store import mark_finished, mark_unfinished, store_replay
    from ragfault.diagnosis.run_table import RunTable
    from ragfault.io.runs.run import Run
    from ragfault.options.functions import load_function

    opened = Run.open(run)
    table = load_settings(options["config"])
    labels = load_run_labels(options["human_labels"], opened)
    source = RunTable(opened, labels) if labels else RunTable(opened)
    settings = ReplaySettings(**take_fields(ReplaySettings, options), on_notice=print_notice)
    target = _read_target(options, table.get("llm", {}))
    retrieve = None if options["retriever"] is None else load_function(options["retriever"])
    planned = plan_replays(source, settings, needs_messages=target.needs_messages, retrieve=retrieve)
    estimate = target.estimate(planned.requests)
    if dry_run:
        _print_plan(target, estimate, kind)
        return 0
    print_notice(describe_price(target.name, estimate))
    asker = target.open(f"replay {opened.path.resolve()}", fresh=not mark_unfinished(opened))
    try:
        report = replay_causes(source, planned, asker, settings)
    finally:
        asker.close()
    report = store_replay(opened, report)
    if report.stopped is None:
        mark_finished(opened)
    print_report(report, kind, build_replay)
    return 3 if report.stopped is not None or not any(count.sampled for count in report.counts) else 0


class ReplayTarget:
    """What answers: exactly one of a model, an app and an address."""

    def __init__(self, model: LLMSettings | None, app: str | None, url: str | None, cache: str | None) -> None:
        self.model, self.app, self.url, self.cache = model, app, url, cache

    @property
    def needs_messages(self) -> bool:
        """Whether it answers recorded requests."""
        return self.model is not None

    @property
    def name(self) -> str:
        """What is asked."""
        return f"{self.model.provider}/{self.model.model}" if self.model else self.app or self.url or ""

    def estimate(self, requests: list[Any]) -> PriceEstimate:
        """Estimate what at most four calls for each request cost; nothing is known of an app of the user."""
        from ragfault.apps.replay.asking import PriceEstimate, estimate_price

        if self.model is not None:
            return estimate_price(self.model, requests, MOST_CALLS)
        return PriceEstimate(len(requests), MOST_CALLS * len(requests), 0, None, None)

    def open(self, budget_id: str, *, fresh: bool) -> Asker:
        """Open what answers."""
        from ragfault.apps.replay.asking import ModelAsker, load_address, load_app

        if self.model is not None:
            return ModelAsker(self.model, budget_id, fresh=fresh)
        return load_app(self.app, self.cache) if self.app is not None else load_address(self.url or "", self.cache)


MOST_CALLS = 4
"""Calls for the proof of one cause of one trace, at most, with the usual number of attempts."""


def _read_target(options: Mapping[str, Any], table: Mapping[str, Any]) -> ReplayTarget:
    """Read what answers from the options. Raises UsageError unless exactly one is named."""
    from ragfault.judges.llm.settings import PROVIDERS, build_settings

    model, app, url = options["model"], options["app_name"], options["url"]
    if sum(name is not None for name in (model, app, url)) != 1:
        raise UsageError("name what answers, one of --model PROVIDER:MODEL, --app FILE.py:NAME and --url URL.")
    if model is None:
        given = [name for name in EVALUATE_LLM_FLAGS if name != "cache" and options.get(name) not in (None, (), False)]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} is an option of --model, and no model is named.")
        return ReplayTarget(None, app, url, options["cache"])
    provider, colon, name = model.removeprefix("llm:").partition(":")
    named = f"{provider}/{name}" if colon and provider in PROVIDERS else model.removeprefix("llm:")
    known = {key: value for key, value in table.items() if key not in ("votes", "reverse", "rubrics")}
    return ReplayTarget(build_settings(named, **resolve_judge_options("llm:", options, known)), None, None, None)


def describe_price(name: str, estimate: PriceEstimate) -> str:
    """Describe what will be asked, and what it costs at most."""
    calls = f"{format_count(estimate.traces, 'trace')}, at most {estimate.calls:,} calls"
    if not estimate.tokens:
        return f"asking {name}: {calls}"
    if estimate.cost is None:
        return f"asking {name}: {calls}, about {estimate.tokens:,} tokens to send; the price is not known"
    most = format_cost(estimate.max_cost)
    return f"asking {name}: {calls}, about {format_cost(estimate.cost)} ({most} if every reply has full length)"


def _print_plan(target: ReplayTarget, estimate: PriceEstimate, kind: str | None) -> None:
    from ragfault.apps.replay.records import ReplayPlan

    if kind == "json":
        print_json(ReplayPlan(model=target.name, **estimate._asdict()))
    else:
        click.echo(f"Nothing was sent: {describe_price(target.name, estimate)}.")
