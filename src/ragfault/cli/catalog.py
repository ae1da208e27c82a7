"""Commands `metrics`, `profile` and `schema`."""

from __future__ import annotations

import click

LAYER_TITLES = {"retrieval": "Retrieval", "generation": "Generation", "crosscut": "Cross-cut", "operation": "Operation"}


@click.command(
    epilog="""\b
Examples:
  ragfault metrics
  ragfault metrics ndcg
  ragfault metrics --layer generation"""
)
@click.argument("name", required=False)
@click.option("--layer", type=click.Choice(list(LAYER_TITLES)), help="Only the metrics of this layer.")
def metrics(name: str | None, layer: str | None) -> None:
    """List the metrics with a line each, or explain the metric NAME, also by its name in another tool."""
    if name is None:
        _list_metrics(layer)
    else:
        _explain_metric(name)


def _list_metrics(layer: str | None) -> None:
    from ragfault.metrics import get_definitions

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


def _explain_metric(text: str) -> None:
    from ragfault.expressions import parse_expression
    from ragfault.metrics import get_definitions
    from ragfault.metrics.aliases import explain_aliases, resolve_alias
    from ragfault.metrics.catalog import format_metric

    for line in explain_aliases(text):
        click.echo(f"{line}\n")
    name = parse_expression(resolve_alias(text), "metric").name
    catalogue = get_definitions()
    if name not in catalogue:
        from ragfault.metrics import parse_metric

        parse_metric(text)
    entry = catalogue[name]
    low, high = entry.range
    described = entry.docstring.split(">>>")[0].rstrip()
    click.secho(format_metric(name, entry.parameters.items()) + ("@k" if entry.has_cutoff else ""), bold=True)
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
  ragfault profile
  ragfault profile legal > house.toml
  ragfault profile house.toml"""
)
@click.argument("name", required=False)
def profile(name: str | None) -> None:
    """List the domain profiles, or print the profile NAME as TOML, to be copied and changed; a file is checked first.

    A profile says which identifiers must agree exactly in a domain, and from where its thresholds run. Use one
    with: ragfault evaluate --profile NAME.
    """
    from ragfault.judges.domain.profile import PROFILES, load_profile, read_profile

    if name is not None:
        load_profile(name)
        click.echo(read_profile(name).rstrip("\n"))
        return
    for profile_name in PROFILES:
        loaded = load_profile(profile_name)
        click.echo(f"{click.style(f'{profile_name:<11}', bold=True)}{loaded.about}")
        if loaded.identifiers:
            click.echo(f"{'':<11}{', '.join(kind.name for kind in loaded.identifiers)}")
    click.echo("\nPrint one with: ragfault profile NAME")


@click.command(epilog="\b\nExample:\n  ragfault schema > trace.schema.json")
def schema() -> None:
    """Print the JSON schema of a trace."""
    import json

    from ragfault.io import build_trace_schema as describe

    click.echo(json.dumps(describe(), indent=2, ensure_ascii=False))
