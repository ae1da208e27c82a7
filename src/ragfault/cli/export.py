"""`ragfault export`."""

from __future__ import annotations

import click

from ragfault.errors import UsageError

__all__ = ["export"]


@click.command(
    epilog="""\b
Examples:
  ragfault export runs/v1 runs/v2 --to mlflow --experiment handbook
  ragfault export runs/v1 --to mlflow --uri http://127.0.0.1:5000
  ragfault export runs/v1 runs/v2 --to wandb -o wandb/"""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path())
@click.option(
    "--to",
    required=True,
    type=click.Choice(["mlflow", "wandb"]),
    help="mlflow: parameters, metrics, table and files of each run. wandb: CSV of a history and a table.",
)
@click.option("--uri", help="MLflow's server or store.  [default: what MLFLOW_TRACKING_URI says]")
@click.option("--experiment", default="ragfault", show_default=True, help="MLflow's experiment.")
@click.option("-o", "--out", type=click.Path(), help="The folder for the CSV of --to wandb.")
@click.option("--force", is_flag=True, help="Replace CSV that stand there.")
def export(
    runs: tuple[str, ...], to: str, uri: str | None, experiment: str, out: str | None, force: bool
) -> None:
    """Hand RUNS on to a tracker of experiments."""
    from ragfault.report.tracking import to_mlflow, write_history

    if to == "wandb":
        if out is None:
            raise UsageError("--to wandb writes CSV: name the folder for them with -o.")
        for path in write_history(runs, out, force=force):
            click.echo(f"{path}")
        return
    if out is not None:
        raise UsageError("--to mlflow writes to MLflow: name its server or store with --uri, not -o.")
    for run in runs:
        click.echo(f"{run}: run {to_mlflow(run, uri=uri, experiment=experiment)} of MLflow")
