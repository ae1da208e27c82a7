"""`ragfault metrics`, `ragfault lens` and `ragfault schema`."""

from __future__ import annotations

import click

__all__ = ["lens", "metrics", "schema"]

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
    """List the metrics with a line each, or explain the metric NAME, also by its name in another tool."""
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
    from ragfault.metrics.aliases import aliased, told
    from ragfault.metrics.grammar import read, write

    for line in told(text):
        click.echo(f"{line}\n")
    name = read(aliased(text))[0]
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


@click.command(
    epilog="""\b
Examples:
  ragfault lens
  ragfault lens legal > house.toml
  ragfault lens house.toml"""
)
@click.argument("name", required=False)
def lens(name: str | None) -> None:
    """List the lenses, or print the lens NAME as TOML, to be copied and changed; a file is checked first.

    A lens says which identifiers must agree exactly in a domain, and from where its thresholds run. Use one
    with: ragfault evaluate --lens NAME.
    """
    from ragfault.judges.lens import LENSES, lens_text, load_lens

    if name is not None:
        load_lens(name)
        click.echo(lens_text(name).rstrip("\n"))
        return
    for one in LENSES:
        found = load_lens(one)
        click.echo(f"{click.style(f'{one:<11}', bold=True)}{found.about}")
        if found.identifiers:
            click.echo(f"{'':<11}{', '.join(kind.name for kind in found.identifiers)}")
    click.echo("\nPrint one with: ragfault lens NAME")


@click.command(epilog="\b\nExample:\n  ragfault schema > trace.schema.json")
def schema() -> None:
    """Print the JSON schema of a trace."""
    import json

    from ragfault.sources import schema as describe

    click.echo(json.dumps(describe(), indent=2, ensure_ascii=False))
