"""Commands `clusters` and `promote`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import UsageError
from ragfault.options.output import (
    add_output_options,
    encode_json,
    json_option,
    plan_output,
    print_json,
    print_text_warnings,
    render_document,
    write_output,
)
from ragfault.options.runs import cause_option, human_labels_option, load_run_labels, make_sample_option

if TYPE_CHECKING:
    from ragfault.diagnosis.clusters.records import ClusterRegistry, ClusterReport
    from ragfault.model.records import Trace


REGISTRY_NAME = "clusters.json"
"""The registry, in the folder of the runs."""


@click.command(
    epilog="""\b
Examples:
  ragfault clusters runs/today
  ragfault clusters runs/today --against runs/yesterday -o clusters.html
  ragfault clusters runs/v1 runs/v2 runs/v3 --json
  ragfault clusters runs/today --assign c-5f21aa=ann --resolve c-90be03"""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path())
@click.option("--against", type=click.Path(), metavar="OLD_RUN", help="Compare with the clusters of this earlier run.")
@click.option(
    "--registry",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help=f"File that stores cluster ids and states.  [default: {REGISTRY_NAME} next to the last run]",
)
@click.option("--assign", multiple=True, metavar="ID=NAME", help="Assign a cluster to a person. Repeatable.")
@click.option("--mute", multiple=True, metavar="ID", help="Mute a cluster: stop reporting it. Repeatable.")
@click.option(
    "--resolve", multiple=True, metavar="ID", help="Mark a cluster as fixed; if it returns, it reopens. Repeatable."
)
@click.option("--embedder", metavar="NAME", help="Embedder: latent, minilm, …  [default: ragfault's own word vectors]")
@click.option(
    "--smallest",
    type=click.IntRange(2),
    help="Minimum size of a cluster.  [default: derived from the number of failures]",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the resampling behind trends."
)
@make_sample_option(8_000, "traces of each run to cluster")
@human_labels_option
@add_output_options("html")
def clusters(runs: tuple[str, ...], against: str | None, registry: str | None, **given: Any) -> None:
    """Cluster the failures of RUNS, under names and ids that stay the same across runs.

    RUNS are given in the order in which they were made. The registry remembers clusters with their history; a resolved
    one that a later run has is open again.
    """
    from ragfault.io.atomic_files import lock_folder
    from ragfault.report.output import check_output_path

    plan = plan_output(given, "html")
    if given["out"] is not None:
        check_output_path(given["out"], force=given["force"])
    registry_path = Path(registry or Path(runs[-1]).resolve().parent / REGISTRY_NAME)
    options = {"embedder": _load_embedder(given["embedder"]), "min_size": given["smallest"], "seed": given["seed"]}
    with lock_folder(registry_path):
        report = _follow_clusters(runs, against, registry_path, options, given)
    write_output(plan, lambda kind, screen: _render_clusters(report, kind, screen), given)


def _load_embedder(name: str | None) -> Any:
    if name is None:
        return None
    from ragfault.retrieval.embedders.registry import load_embedder

    return load_embedder(name)


def _follow_clusters(
    runs: tuple[str, ...], against: str | None, registry_path: Path, options: dict[str, Any], given: dict[str, Any]
) -> ClusterReport:
    """Track the clusters of runs in the registry, and save it with the changes that the options ask for."""
    from ragfault.diagnosis.clusters.registry import (
        apply_registry,
        load_registry,
        save_registry,
        track_changes,
        track_clusters,
    )
    from ragfault.diagnosis.run_table import RunTable
    from ragfault.io.runs.run import Run
    from ragfault.io.runs.samples import sample_run

    if given["human_labels"] and (len(runs) > 1 or against is not None):
        raise UsageError("--human-labels corrects a single RUN. Leave out the other runs and --against.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = load_registry(registry_path)
    sampled = [sample_run(Run.open(run), given["sample"]) for run in runs]
    print_text_warnings(*sampled)
    opened = [RunTable(run, load_run_labels(given["human_labels"], run)) for run in sampled]
    if against is None:
        tracked, report = track_clusters(before, opened, now, **options)
    else:
        earlier = sample_run(Run.open(against), given["sample"])
        tracked, report = track_changes(before, opened, earlier, now, **options)
    changed = _apply_actions(tracked, given, now)
    if changed != before:
        save_registry(registry_path, changed)
    return apply_registry(report, changed)


def _apply_actions(registry: ClusterRegistry, options: dict[str, Any], now: str) -> ClusterRegistry:
    """Return the registry with the owners, mutes and resolutions that the options name."""
    from ragfault.diagnosis.clusters.registry import assign_cluster, mute_cluster, resolve_cluster

    for text in options["assign"]:
        name, equals, to = text.partition("=")
        if not equals:
            raise UsageError(f"--assign {text}: name the owner (--assign {text}=NAME) or none (--assign {text}=)")
        registry = assign_cluster(registry, name.strip(), to.strip(), now)
    for name in options["mute"]:
        registry = mute_cluster(registry, name, now)
    for name in options["resolve"]:
        registry = resolve_cluster(registry, name, now)
    return registry


def _render_clusters(clusters: ClusterReport, kind: str, screen: bool) -> str:
    from ragfault.report.builders.clusters import build_clusters

    if kind == "json":
        return encode_json(clusters)
    return render_document(build_clusters(clusters), kind, screen, "clusters", width=110)


@click.command(
    epilog="""\b
Examples:
  ragfault promote runs/today --cluster c-5f21aa -o evalset.jsonl
  ragfault promote runs/today --cause not-retrieved -o evalset.jsonl
  ragfault promote runs/today --trace ferry-12 --trace ferry-40 -o evalset.jsonl
  ragfault promote -o evalset.jsonl --accept case-0f3a6c1b22d7 --by ann"""
)
@click.argument("run", required=False, type=click.Path())
@click.option("--cluster", metavar="ID", help="Promote all traces of this cluster.")
@click.option("--trace", "traces", multiple=True, metavar="ID", help="This trace. Repeatable.")
@cause_option
@human_labels_option
@click.option("-o", "--out", required=True, type=click.Path(), help="Evaluation set (JSON Lines) to append to.")
@click.option("--accept", multiple=True, metavar="ID", help="Mark this case of OUT as reviewed. Repeatable.")
@click.option("--by", default="", metavar="NAME", help="Who reviewed it.")
@click.option(
    "--registry",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help=f"File that stores cluster ids and states.  [default: {REGISTRY_NAME} beside the run]",
)
@json_option
def promote(
    run: str | None,
    cluster: str | None,
    traces: tuple[str, ...],
    causes: tuple[str, ...],
    human_labels: tuple[str, ...],
    out: str,
    accept: tuple[str, ...],
    by: str,
    registry: str | None,
    kind: str | None,
) -> None:
    """Turn failing traces of RUN into cases of the evaluation set OUT, to be reviewed; or mark cases as reviewed.

    A case has the query, the answer key as far as there is one, and in its metadata the answer that failed and where it
    came from. Queries that OUT has already are left out; the cases in OUT are not changed.
    """
    from ragfault.diagnosis.clusters.promotion import accept_cases, promote_cases

    now = datetime.now(UTC).isoformat(timespec="seconds")
    if accept:
        if run is not None or cluster is not None or traces or causes:
            raise UsageError("--accept marks cases that are in OUT. Leave RUN, --cluster, --trace and --cause out.")
        count = accept_cases(out, accept, by, now)
        if kind == "json":
            from ragfault.report.json_documents import AcceptedCases

            print_json(AcceptedCases(path=out, accepted=count))
            return
        click.echo(f"{count:,} of {len(accept):,} cases marked as reviewed in {out}")
        return
    if run is None or sum(map(bool, (cluster, traces, causes))) != 1:
        raise UsageError("name a RUN, and one of --cluster ID, --trace ID and --cause NAME, to say what to promote.")
    if causes:
        from ragfault.diagnosis.causes.selection import select_causes
        from ragfault.diagnosis.run_table import RunTable
        from ragfault.io.runs.run import Run

        opened = Run.open(run)
        table = RunTable(opened, load_run_labels(human_labels, opened))
        traces = tuple(cause.trace for cause in select_causes(table, causes))
    collected = list(_collect_cases(run, cluster, traces, registry, now))
    done = promote_cases(collected, out)
    for name, double in done.duplicates:
        click.echo(f"{name} is skipped: {double} asks the same", err=True)
    _warn_of_personal_data([case for case in collected if case.id in done.added], out)
    if kind == "json":
        print_json(done)
        return
    cases = "case" if len(done.added) == 1 else "cases"
    click.echo(f"Added {len(done.added):,} {cases} to {out} ({done.total:,} in total).")
    click.echo(f"Read each, then: ragfault promote -o {out} --accept ID --by NAME")


def _warn_of_personal_data(cases: Sequence[Trace], out: str) -> None:
    """Say what looks like personal data or keys in the cases that were added."""
    from ragfault.io.redaction import Redactor

    counts = sum((Redactor("all").redact_trace(case).counts for case in cases), Counter[str]())
    if counts:
        kinds = ", ".join(f"{kind} ×{count:,}" for kind, count in sorted(counts.items()))
        advice = f"ragfault run convert {shlex.quote(out)} CLEAN.jsonl --redact all"
        click.echo(
            f"beware: the cases hold what looks like personal data or keys ({kinds}); without: {advice}", err=True
        )


def _collect_cases(run: str, cluster: str | None, traces: tuple[str, ...], registry: str | None, now: str) -> Any:
    """Collect the cases that were asked for."""
    from ragfault.diagnosis.clusters.promotion import build_cases
    from ragfault.io.runs.run import Run

    opened = Run.open(run)
    if cluster is None:
        return build_cases(opened, tuple(dict.fromkeys(traces)), now)
    from ragfault.diagnosis.clusters.registry import cluster_members, load_registry

    path = Path(registry or Path(run).resolve().parent / REGISTRY_NAME)
    name, ids = cluster_members(load_registry(path), cluster, opened, now)
    return build_cases(opened, ids, now, {"id": cluster, "name": name})
