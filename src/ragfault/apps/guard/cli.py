"""Command group `guard`: certify a threshold, replay a policy on past traffic, and apply it to an endpoint."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import click

from ragfault.apps.guard.settings import CertificateSettings
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.options.label_results import derive_from_labels
from ragfault.options.output import add_result_options, json_option, print_notice, print_report
from ragfault.options.records import add_fields
from ragfault.options.runs import sample_option
from ragfault.options.settings import add_label_options, calibration_option


@click.group(
    epilog="""\b
Examples:
  ragfault guard certify labelled.jsonl --alpha 0.1 --delta 0.1 -o certificate.json
  ragfault guard replay runs/today policy.toml --labels labels.jsonl
  ragfault guard proxy policy.toml --endpoint http://127.0.0.1:11434/v1"""
)
def guard() -> None:
    """Decide which answers are released, with a bound on the share of bad ones among them."""


@guard.command(
    epilog="""\b
Examples:
  ragfault guard certify labelled.jsonl -o certificate.json
  ragfault guard certify labels.jsonl --run runs/today --alpha 0.05 -o certificate.json
  ragfault guard certify labelled.jsonl --route support --route billing -o certificate.json

Exit code 3: nothing can be promised; nothing is written."""
)
@click.argument("labels", nargs=-1, required=True)
@add_fields(CertificateSettings)
@add_label_options
@calibration_option
@add_result_options("certificate")
def certify(labels: tuple[str, ...], **options: Any) -> int:
    """Certify the largest threshold of the judge's risk with P(bad | released) ≤ alpha.

    LABELS are read as by `judge measure`: traces with a label of the answer. They must be drawn at random from the
    traffic that the guard will see. The certificate states threshold, counts, released share and bound, and keeps the
    inputs of the released answers, against which traffic is watched.
    """
    from ragfault.apps.guard.certificate import certify
    from ragfault.apps.guard.report import build_certificate

    return derive_from_labels(certify, CertificateSettings, build_certificate, attrgetter("promises"), labels, options)


@guard.command(
    epilog="""\b
Examples:
  ragfault guard replay runs/today policy.toml
  ragfault guard replay runs/today policy.toml --labels labels.jsonl --cost 20 1"""
)
@click.argument("run", type=click.Path())
@click.argument("policy", type=click.Path())
@click.option("--labels", type=click.Path(), help="Labels of `ragfault label` on this run: the risk by people.")
@click.option(
    "--cost",
    "costs",
    type=click.FloatRange(0),
    nargs=2,
    metavar="FALSE_RELEASE FALSE_BLOCK",
    help="Costs of a bad answer that is released and of a good one that is held back: choose the thresholds of least "
    "cost on one half of the answers, and state their cost on the other.",
)
@sample_option
@json_option
def replay(
    run: str, policy: str, labels: str | None, costs: tuple[float, float] | None, sample: int, kind: str | None
) -> int:
    """Show what POLICY would have done to the traces of RUN: released share, risk, blocks by rail, cost.

    The verdicts are those of the run. Without labels the risk is the judge's own, and nothing is promised; with them no
    trace is left out.
    """
    from ragfault.apps.guard.replay import replay_run
    from ragfault.apps.guard.report import build_replay
    from ragfault.io.runs.run import Run

    opened = Run.open(run)
    bad = read_bad_answers(opened, labels) if labels else None
    result = replay_run(opened, policy, labels=bad, costs=costs, sample=sample)
    print_report(result, kind, build_replay)
    return 0


@guard.command(
    epilog="""\b
Examples:
  ragfault guard proxy policy.toml --endpoint http://127.0.0.1:11434/v1
  ragfault guard proxy policy.toml --endpoint https://api.openai.com/v1 --decisions decisions.jsonl"""
)
@click.argument("policy", type=click.Path())
@click.option("--endpoint", required=True, metavar="URL", help="Address of an OpenAI-compatible endpoint.")
@click.option("--judge", "judge_name", help=f"Judge of groundedness.  [default: {DEFAULT_JUDGE}]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=4319, show_default=True, help="Port; 0: a free one.")
@click.option("--decisions", type=click.Path(dir_okay=False), help="Append every decision with its text, JSON Lines.")
def proxy(policy: str, endpoint: str, judge_name: str | None, host: str, port: int, decisions: str | None) -> None:
    """Guard an OpenAI-compatible ENDPOINT by POLICY: clients call the proxy in its place, with their own keys.

    Passages are sent in the field `contexts` of a request. A blocked answer is a completion with the policy's message
    and the finish reason content_filter. Ends with Ctrl-C.
    """
    from ragfault.apps.guard.frameworks.proxy import append_decisions, guard_endpoint
    from ragfault.apps.guard.runtime import Guard
    from ragfault.http.serving import serve_application

    sink = None if decisions is None else append_decisions(decisions)
    app = guard_endpoint(Guard(policy, judge=judge_name, sink=sink), endpoint)
    serve_application(
        app, host, port, lambda address: print_notice(f"guarding {endpoint} on {address}; Ctrl-C ends it")
    )


def read_bad_answers(run: Any, path: str) -> dict[str, bool]:
    """Read which answers of a run people call bad; left out are those whose claims were not all reviewed.

    Labels of another answer to the same question than the run's do not count.
    """
    from ragfault.labels.consensus import group_labels, rate_labeled_answer
    from ragfault.labels.label import fingerprint_answer
    from ragfault.labels.reading.label_files import read_labels

    labels = group_labels(read_labels(path))
    answers = {trace.id: fingerprint_answer(trace) for trace in run.traces(list(labels))}
    ratings = {
        item.trace: rate_labeled_answer(labels[item.trace], len(item.claim or ()), (None, answers[item.trace]))
        for item in run.verdicts(list(answers))
    }
    return {id: rating for id, rating in ratings.items() if rating is not None}
