"""Commands `metrics`, `profile` and `schema`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragfault.model.errors import UnknownName
from ragfault.options.output import json_option, print_json

if TYPE_CHECKING:
    from ragfault.metrics.catalog import MetricDefinition

LAYER_TITLES = {"retrieval": "Retrieval", "generation": "Generation", "crosscut": "Cross-cut", "operation": "Operation"}


@click.command(
    epilog="""\b
Examples:
  ragfault metrics
  ragfault metrics ndcg
  ragfault metrics --layer generation"""
)
@click.argument("name", required=False)
@click.option("--layer", type=click.Choice(list(LAYER_TITLES)), help="List only the metrics of this layer.")
@json_option
def metrics(name: str | None, layer: str | None, kind: str | None) -> None:
    """List the metrics with a line each, or explain the metric NAME, also by its name in another tool."""
    if kind == "json":
        _print_metrics(name, layer)
    elif name is None:
        _list_metrics(layer)
    else:
        _explain_metric(name)


def _list_metrics(layer: str | None) -> None:
    from ragfault.metrics.catalog import get_definitions

    catalogue = get_definitions().values()
    width = max(len(entry.name) for entry in catalogue) + 4
    for key, title in LAYER_TITLES.items():
        if layer in (None, key):
            click.secho(title, bold=True)
            for entry in catalogue:
                if entry.layer == key:
                    name = f"{entry.name}@k" if entry.has_cutoff else entry.name
                    arrow = "↑" if entry.better == "higher" else "↓"
                    click.echo(f"  {name:<{width}}{arrow} {entry.summary}")
            click.echo()
    click.echo("↑ higher is better, ↓ lower is better. Explain one with: ragfault metrics NAME")


def _print_metrics(name: str | None, layer: str | None) -> None:
    """Print the catalogue as JSON, or one entry of it."""
    from ragfault.metrics.aliases import ALIASES
    from ragfault.metrics.catalog import get_definitions
    from ragfault.report.json_documents import describe_metric

    if name is not None:
        print_json(describe_metric(_find_metric(name), ALIASES))
        return
    entries = [entry for entry in get_definitions().values() if layer in (None, entry.layer)]
    print_json([describe_metric(entry, ALIASES) for entry in entries])


def _find_metric(text: str) -> MetricDefinition:
    """Find the entry of a metric, also by its name in another tool; raises UnknownName where there is none."""
    from ragfault.metrics.aliases import resolve_alias
    from ragfault.metrics.catalog import get_definitions, parse_metric
    from ragfault.model.expressions import parse_expression

    name = parse_expression(resolve_alias(text), "metric").name
    catalogue = get_definitions()
    return catalogue[name] if name in catalogue else catalogue[parse_metric(text).name]


def _explain_metric(text: str) -> None:
    from ragfault.metrics.aliases import explain_aliases
    from ragfault.metrics.catalog import format_metric

    entry = _find_metric(text)
    for line in explain_aliases(text):
        click.echo(f"{line}\n")
    low, high = entry.range
    described = entry.docstring.split(">>>")[0].rstrip()
    click.secho(format_metric(entry.name, entry.parameters.items()) + ("@k" if entry.has_cutoff else ""), bold=True)
    click.echo(f"\n{described}\n")
    rows = {
        "layer": LAYER_TITLES[entry.layer],
        "better": entry.better,
        "range": f"{low:g} to {high:g}",
        "reads": ", ".join([*entry.fields, *(f"{part} verdicts" for part in entry.verdicts)]),
        "source": entry.source,
    }
    if entry.extra:
        rows["needs"] = f"pip install 'ragfault[{entry.extra}]'" + ("" if entry.installed else "  (not installed)")
    for label, value in rows.items():
        click.echo(f"  {label:<8}{value}")


@click.command(
    epilog="""\b
Examples:
  ragfault judge profile
  ragfault judge profile legal > house.toml
  ragfault judge profile house.toml"""
)
@click.argument("name", required=False)
@json_option
def profile(name: str | None, kind: str | None) -> None:
    """List the domain profiles, or print the profile NAME as TOML, to be copied and changed; a file is checked first.

    A profile says which identifiers must agree exactly in a domain, and from where its thresholds run. Use one
    with: ragfault evaluate --profile NAME.
    """
    from ragfault.judges.domain.profile import PROFILES, load_profile, read_profile

    if kind == "json":
        print_json([load_profile(profile_name) for profile_name in PROFILES] if name is None else load_profile(name))
        return
    if name is not None:
        load_profile(name)
        click.echo(read_profile(name).rstrip("\n"))
        return
    for profile_name in PROFILES:
        loaded = load_profile(profile_name)
        click.echo(f"{click.style(f'{profile_name:<11}', bold=True)}{loaded.about}")
        if loaded.identifiers:
            click.echo(f"{'':<11}{', '.join(kind.name for kind in loaded.identifiers)}")
    click.echo("\nPrint one with: ragfault judge profile NAME")


@click.command(
    epilog="""\b
Examples:
  ragfault run schema > trace.schema.json
  ragfault run schema gate
  ragfault run schema judge measure"""
)
@click.argument("verb", nargs=-1)
def schema(verb: tuple[str, ...]) -> None:
    """Print the JSON schema of a trace, or that of what VERB prints with --json."""
    import json

    from ragfault.io.formats.record_shapes import build_trace_schema

    if not verb:
        described = build_trace_schema()
    else:
        from ragfault.report.json_documents import build_document_schema, list_documents

        name = " ".join(verb)
        documents = list_documents()
        if name not in documents:
            raise UnknownName("verb with --json", name, documents, hint=f"There is: {', '.join(documents)}.")
        described = build_document_schema(name)
    click.echo(json.dumps(described, indent=2, ensure_ascii=False))
