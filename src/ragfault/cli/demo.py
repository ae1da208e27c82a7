"""Command `demo`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ragfault.options.output import json_option, print_files, supports_color

SHOWN_FOLDER = "ragfault-demo"
"""Folder of the whole demonstration, in the current one."""


@click.command(
    epilog="""\b
Examples:
  ragfault demo
  ragfault demo handbook && ragfault evaluate handbook/traces-v1.jsonl -o runs/v1
  ragfault demo agent --agent && ragfault steps agent/agent-v2.jsonl"""
)
@click.argument("folder", type=click.Path(file_okay=False), required=False)
@click.option("--agent", is_flag=True, help="Write the traces of two versions of an agent, with their steps.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@json_option
def demo(folder: str | None, agent: bool, force: bool, kind: str | None) -> None:
    """Show a whole diagnosis on a made-up system, or only write its files into FOLDER.

    Without FOLDER: evaluates the traces of two versions of the system, names the layer that broke, and writes the
    reports, all in ragfault-demo/. With FOLDER: writes the handbook, questions about it, and the traces. With
    --agent: writes the traces of two versions of an agent that answers the same questions.
    """
    if folder is None and not agent:
        _show_diagnosis(Path(SHOWN_FOLDER), kind)
        return
    folder = folder or "agent"
    if agent:
        from ragfault.io.datasets.agent import write_agent_traces

        written = write_agent_traces(folder, force=force)
    else:
        from ragfault.io.datasets.demo_handbook import write_handbook

        written = write_handbook(folder, force=force)
    if kind == "json":
        print_files(written)
        return
    for path in written:
        if path.suffix == ".jsonl":
            click.echo(path)
    first = f"{folder}/{'agent' if agent else 'traces'}-v1.jsonl"
    click.echo(f"\n{len(written)} files. Next: ragfault evaluate {first} -o runs/v1")


def _show_diagnosis(folder: Path, kind: str | None) -> None:
    """Evaluate both versions of the demo, print the layer that broke, and write the reports."""
    from ragfault.comparison.bisection import bisect
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.io.datasets.demo_handbook import write_handbook
    from ragfault.report.builders.answer_changes import SCREEN_LINES, build_first_screens
    from ragfault.report.builders.bisection import build_bisection
    from ragfault.report.renderers.html import render_html_page
    from ragfault.report.renderers.terminal import render_first_fitting

    # The folder is the demo's own, so that a second demonstration replaces the first.
    written = list(write_handbook(folder / "handbook", force=True))
    runs = [evaluate(folder / "handbook" / f"traces-{name}.jsonl", folder / name, force=True) for name in ("v1", "v2")]
    result = bisect(*runs)
    page = folder / "bisect.html"
    page.write_text(render_html_page(build_bisection(result), "bisection"), encoding="utf-8")
    written.append(page)
    if kind == "json":
        print_files(written)
        return
    screens = build_first_screens(lambda causes: build_bisection(result, causes=causes))
    # Their last lines name an option of bisect, which the demo does not have.
    leads = (replace(screen, body=()) for screen in screens)
    click.echo(render_first_fitting(leads, SCREEN_LINES, color=supports_color()))
    click.echo(f"Page: {page}. Next, on your own traces: ragfault evaluate traces.jsonl -o runs/today")
