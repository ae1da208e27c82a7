"""`ragfault metrics` and `ragfault schema`."""

from __future__ import annotations

import click

__all__ = ["metrics", "schema"]

LAYERS = {
    "retrieval": "Retrieval",
    "generation": "Generation",
    "crosscut": "Cross-cut",
    "operation": "Operation",
}


@click.command(
    epilog="""\b
Examples:
  ragfault metrics
  ragfault metrics ndcg
  ragfault metrics --layer generation"""
)
@click.argument("name", required=False)
@click.option("--layer", type=click.Choice(list(LAYERS)), help="Only the metrics of this layer.")
def metrics(name: str | None, layer: str | None) -> None:
    """List the metrics with a line each, or explain the metric NAME."""
    if name is None:
        _list(layer)
    else:
        _explain(name)


def _list(layer: str | None) -> None:
    from ragfault.metrics import definitions

    catalogue = definitions().values()
    width = max(len(entry.name) for entry in catalogue) + 4
    for key, title in LAYERS.items():
        if layer in (None, key):
            click.secho(title, bold=True)
            for entry in catalogue:
                if entry.layer == key:
                    name = f"{entry.name}@k" if entry.cut else entry.name
                    arrow = "↑" if entry.better == "higher" else "↓"
                    click.echo(f"  {name:<{width}}{arrow} {entry.summary}")
            click.echo()
    click.echo("↑ higher is better, ↓ lower is better. Explain one with: ragfault metrics NAME")


def _explain(text: str) -> None:
    from ragfault.metrics import definitions
    from ragfault.metrics.grammar import read, write

    name = read(text)[0]
    catalogue = definitions()
    if name not in catalogue:
        from ragfault.metrics import parse

        parse(text)
    entry = catalogue[name]
    low, high = entry.range
    described = entry.text.split(">>>")[0].rstrip()
    click.secho(write(name, None, entry.parameters.items()) + ("@k" if entry.cut else ""), bold=True)
    click.echo(f"\n{described}\n")
    rows = {
        "layer": LAYERS[entry.layer],
        "better": entry.better,
        "range": f"{low:g} to {high:g}",
        "reads": ", ".join([*entry.fields, *(f"{part} verdicts" for part in entry.verdicts)]),
        "source": entry.source,
    }
    if entry.extra:
        rows["needs"] = f"pip install 'ragfault[{entry.extra}]'" + (
            "" if entry.installed else "  (not installed)"
        )
    for label, value in rows.items():
        click.echo(f"  {label:<8}{value}")


@click.command(epilog="\b\nExample:\n  ragfault schema > trace.schema.json")
def schema() -> None:
    """Print the JSON schema of a trace."""
    import json

    from ragfault.sources import schema as describe

    click.echo(json.dumps(describe(), indent=2, ensure_ascii=False))
