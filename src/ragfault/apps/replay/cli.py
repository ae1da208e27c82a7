"""Command `replay`: recorded requests are asked again on the user's own model, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ragfault.apps.replay.settings import ReplaySettings
from ragfault.comparison.ablation.settings import RepairSettings
from ragfault.model.errors import UsageError
from ragfault.options.llm_judge import EVALUATE_LLM_FLAGS, add_endpoint_options
from ragfault.options.output import json_option, print_json, print_notice, print_report
from ragfault.options.records import add_fields, is_given, take_fields
from ragfault.options.runs import human_labels_option, load_run_labels
from ragfault.options.settings import add_config_option, add_trace_options, load_settings, pick_trace_options

if TYPE_CHECKING:
    from ragfault.apps.replay.asking import AskedRequest, Asker
    from ragfault.apps.replay.targets import ReplayTarget
    from ragfault.model.records import Trace

MOST_QUESTIONS = 2_000
"""Questions that an agent is run on: each costs a run of the agent and a judgement for every kind of step."""


@click.command(
    epilog="""\b
Examples:
  ragfault replay runs/today --model openai:gpt-4o-mini --dry-run
  ragfault replay runs/today --model openai:gpt-4o-mini --cause not-retrieved --budget 2
  ragfault replay runs/today --app my_app.py:answer --retriever my_app.py:search
  ragfault replay runs/today --with reranked.jsonl --model vllm:my-model --base-url http://localhost:8000/v1
  ragfault replay runs/today --prompt new.txt --used runs/monday --model openai:gpt-4o-mini
  ragfault replay runs/v1 runs/v2 --model openai:gpt-4o-mini
  ragfault replay runs/v1 runs/v2 --agent agent.py:answer -m completeness

Exit code 1: a fix is refuted, a change or a step made answers worse; 3: nothing could be replayed, it cannot be told,
or the budget ended first."""
)
@click.argument("run", type=click.Path())
@click.argument("candidate", type=click.Path(), required=False)
@click.option("--model", metavar="PROVIDER:MODEL", help="Model that answers the recorded requests again.")
@click.option("--app", "app_name", metavar="FILE.py:NAME", help="Function of query, chunks and history that answers.")
@click.option("--url", metavar="URL", help="Address that takes query, chunks and history as JSON, and answers.")
@click.option("--with", "with_chunks", metavar="PATH", help="Fix: traces or a run with the chunks that queries get.")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="FILE",
    help="Fix: text in place of the system message; with {context} and {query}, of the message with the chunks. "
    "Repeatable.",
)
@click.option("--used", metavar="PATH", help="Fix: traces or a run whose queries found the fault; they are left out.")
@click.option("--before", metavar="NAME", help="Change: the --model or --app of the baseline, if it was another.")
@click.option("--agent", metavar="FILE.py:NAME", help="Change: an agent to run with recorded steps of RUN.")
@click.option("--retriever", metavar="FILE.py:NAME", help="Function of a query that returns the chunks to put in.")
@add_fields(ReplaySettings)
@add_fields(RepairSettings, "metrics", "margin")
@click.option("--dry-run", is_flag=True, help="Say what would be asked and what it costs; send nothing.")
@add_endpoint_options
@human_labels_option
@add_trace_options
@add_config_option
@json_option
def replay(run: str, candidate: str | None, **options: Any) -> int:
    """Ask recorded requests of RUN again with one thing changed, to prove a cause, a fix, or the part that broke.

    RUN by itself: the cause of each failing trace is removed; it is proven if the answer becomes right, refuted if it
    stays bad. With --with or --prompt: a fix is tried on other queries than those that found the fault. RUN and
    CANDIDATE: chunks, prompt, settings and model are swapped between the two, and the fall of right answers is divided
    among them; with --agent the steps of an agent. The result is stored with the run, and `ragfault report` shows it.
    """
    mode = choose_mode(candidate, options)
    return MODES[mode].run(run, candidate or "", options)


class ReplayMode(NamedTuple):
    """One of the things that a replay can prove."""

    run: Callable[[str, str, dict[str, Any]], int]
    own: tuple[str, ...]
    """Options that only some modes have, and this one does."""
    title: str


def choose_mode(candidate: str | None, options: Mapping[str, Any]) -> str:
    """Choose the mode that the arguments ask for. Raises UsageError for options that it does not have."""
    mode = "causes" if candidate is None else "change"
    if options["with_chunks"] or options["prompts"]:
        mode = "fix"
    if options["agent"]:
        mode = "steps"
    if (candidate is None) == (mode in ("change", "steps")):
        count = "two runs: BASELINE CANDIDATE" if candidate is None else "one run"
        raise UsageError(f"{MODES[mode].title} needs {count}.")
    known = {name for item in MODES.values() for name in item.own}
    other = [name for name in known - set(MODES[mode].own) if is_given(options.get(name))]
    if other:
        titles = " or ".join(item.title for item in MODES.values() if other[0] in item.own)
        raise UsageError(f"--{FLAGS.get(other[0], other[0].replace('_', '-'))} is for {titles}.")
    return mode


class Bench(NamedTuple):
    """What a replay works with: its settings, what answers, and what is only asked for."""

    settings: ReplaySettings
    target: ReplayTarget
    options: dict[str, Any]

    def announce(self, requests: list[AskedRequest], traces: int, what: str, repeats: int = 1) -> bool:
        """Print what will be asked, and return whether to ask it."""
        from ragfault.apps.replay.targets import describe_plan

        plan = self.target.plan(requests, traces=traces, repeats=repeats)
        if not self.options["dry_run"]:
            print_notice(describe_plan(plan, what))
            return True
        if self.options["kind"] == "json":
            print_json(plan)
        else:
            click.echo(f"Nothing was sent: {describe_plan(plan, what)}.")
        return False


def _prepare(options: dict[str, Any]) -> Bench:
    from ragfault.apps.replay.targets import read_target

    table = load_settings(options["config"])
    settings = ReplaySettings(**take_fields(ReplaySettings, options), on_notice=print_notice)
    return Bench(settings, read_target(options, table.get("llm", {})), options)


def _replay_causes(run: str, _: str, options: dict[str, Any]) -> int:
    from ragfault.apps.replay.decision import count_calls
    from ragfault.apps.replay.planning import plan_replays
    from ragfault.apps.replay.proving import prove_causes
    from ragfault.apps.replay.report import build_replay
    from ragfault.diagnosis.run_table import RunTable
    from ragfault.io.runs.run import Run
    from ragfault.options.functions import load_function

    opened = Run.open(run)
    labels = load_run_labels(options["human_labels"], opened)
    source = RunTable(opened, labels) if labels else RunTable(opened)
    bench = _prepare(options)
    retrieve = None if options["retriever"] is None else load_function(options["retriever"])
    planned = plan_replays(source, bench.settings, needs_messages=bench.target.needs_messages, retrieve=retrieve)
    requests = planned.requests
    if not bench.announce(requests, len(requests), "trace", count_calls(bench.settings.attempts)):
        return 0
    report = prove_causes(source, planned, bench.target, bench.settings)
    print_report(report, options["kind"], build_replay)
    return 3 if report.stopped is not None or not any(count.sampled for count in report.counts) else 0


def _replay_fix(run: str, _: str, options: dict[str, Any]) -> int:
    from ragfault.apps.replay.experiments.experiment_report import build_fix
    from ragfault.apps.replay.experiments.fix_replay import Fix, UsedQueries, index_chunks, plan_fix, replay_fix
    from ragfault.apps.replay.proving import conduct_replay
    from ragfault.apps.replay.records import FixReplay, ReplayReport
    from ragfault.apps.replay.store import load_result
    from ragfault.io.runs.run import Run

    opened = Run.open(run)
    given, prompts, used = options["with_chunks"], options["prompts"], options["used"]
    bench = _prepare(options)
    if prompts and not bench.target.needs_messages:
        raise UsageError("--prompt changes recorded requests: it needs --model, an app writes its own.")
    reading = pick_trace_options(options)
    fix = Fix(
        " and ".join(Path(name).name for name in (given, *prompts) if name),
        None if given is None else index_chunks(_read_traces(given, reading)),
        tuple(map(_read_prompt, prompts)),
    )
    known = UsedQueries(load_result(opened, ReplayReport), () if used is None else _read_traces(used, reading))
    planned = plan_fix(opened, fix, bench.settings, known, needs_messages=bench.target.needs_messages)
    experiment = planned[0]
    requests = [request for _, request in experiment.list_requests()]
    if not bench.announce(requests, len(experiment.asked), "question"):
        return 0

    def work(askers: list[Asker]) -> FixReplay:
        return replay_fix(opened, fix, planned, askers[0], bench.settings)

    report = conduct_replay(opened, FixReplay, [bench.target], bench.settings, work)
    print_report(report, options["kind"], build_fix)
    return 3 if report.stopped is not None else {"proven": 0, "refuted": 1}.get(report.outcome, 3)


def _read_traces(path: str, reading: Mapping[str, Any]) -> Iterator[Trace]:
    """Read the traces of a run or of a file."""
    from ragfault.options.runs import open_run_or_file

    opened = open_run_or_file(path, reading=reading)
    return opened if isinstance(opened, Iterator) else opened.traces()


def _read_prompt(path: str) -> str:
    """Read a prompt. Raises UsageError where there is none."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompt {path} cannot be read: {getattr(error, 'strerror', error)}.") from None
    if not text:
        raise UsageError(f"the prompt {path} is empty.")
    return text


def _replay_change(run: str, candidate: str, options: dict[str, Any]) -> int:
    from ragfault.apps.replay.experiments.change_replay import plan_change, replay_change
    from ragfault.apps.replay.experiments.experiment_report import build_change
    from ragfault.apps.replay.proving import conduct_replay
    from ragfault.apps.replay.records import ChangeReplay
    from ragfault.comparison.paired_runs import PairedRuns
    from ragfault.io.runs.run import Run

    paired = PairedRuns(Run.open(run), Run.open(candidate), anyway=True)
    opened = paired.runs[1]
    bench = _prepare(options)
    before = None if options["before"] is None else bench.target.rename(options["before"])
    needs = bench.target.needs_messages
    planned = plan_change(paired, bench.settings, needs_messages=needs, has_other=before is not None)
    requests = [request for _, request in planned.experiment.list_requests()]
    if not bench.announce(requests, len(planned.experiment.asked), "pair"):
        return 0

    def work(askers: list[Asker]) -> ChangeReplay:
        return replay_change(paired, planned, askers, bench.settings)

    targets = [bench.target] if before is None else [before, bench.target]
    report = conduct_replay(opened, ChangeReplay, targets, bench.settings, work)
    print_report(report, options["kind"], build_change)
    state = "cannot tell" if report.stopped is not None or report.total is None else report.total.state
    return {"dropped": 1, "cannot tell": 3}.get(state, 0)


def _replay_steps(source: str, questions: str, options: dict[str, Any]) -> int:
    from ragfault.comparison.ablation.step_repair import repair_steps
    from ragfault.comparison.paired_runs import describe_sample
    from ragfault.io.runs.samples import sample_runs
    from ragfault.options.functions import load_function
    from ragfault.options.runs import open_run_or_file
    from ragfault.report.builders.steps import build_repairs

    sample = MOST_QUESTIONS if options["sample"] is None else options["sample"]
    reading = pick_trace_options(options)
    settings = RepairSettings(**take_fields(RepairSettings, options))
    function = load_function(options["agent"])
    opened = [open_run_or_file(name, reading=reading) for name in (source, questions)]
    runs = [side for side in opened if not isinstance(side, Iterator)]
    if len(runs) == len(opened):
        opened = [*(runs := [*sample_runs(runs, sample)])]
        for notice in describe_sample(*runs):
            print_notice(notice)
    sides = [list(side if isinstance(side, Iterator) else side.traces()) for side in opened]
    repairs = repair_steps(function, sides[0], sides[1], settings)
    print_report(repairs, options["kind"], build_repairs)
    return {"fault": 1, "no fault": 0}.get(repairs.status, 3)


TARGET = ("model", "app_name", "url", "dry_run", "redact", *EVALUATE_LLM_FLAGS)
READING = ("map", "shape", "qrels", "encoding", "documents", "turns", "id_from", "accept_unread")
MODES = {
    "causes": ReplayMode(
        _replay_causes, (*TARGET, "causes", "attempts", "corpus", "retriever", "human_labels"), "the causes of a run"
    ),
    "fix": ReplayMode(_replay_fix, (*TARGET, *READING, "with_chunks", "prompts", "used"), "a fix"),
    "change": ReplayMode(_replay_change, (*TARGET, "before"), "the change between two runs"),
    "steps": ReplayMode(_replay_steps, (*READING, "agent", "metrics", "margin"), "the steps of an agent"),
}
"""What a replay can prove → how, and with which options."""
FLAGS = {"app_name": "app", "with_chunks": "with", "prompts": "prompt", "causes": "cause"}
"""Options whose flag has another name."""
