"""What the verbs share that hold one run beside another: margins by metric, and a baseline judged again."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.runs import Run

__all__ = ["margins", "rejudged"]

LENS = re.compile(r" lens=([^\s:]+):")
"""The lens in the fingerprint of a judge."""


def margins(texts: Sequence[str]) -> dict[str, float]:
    """Margins by metric, of texts such as `latency=50`; the value stands after the last "=".

    Raises UsageError for anything else.

    >>> margins(["latency=50", "noise_sensitivity(chunks=all)=0.1"])
    {'latency': 50.0, 'noise_sensitivity(chunks=all)': 0.1}
    """
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            margin = float(value)
        except ValueError:
            margin = math.nan
        if not name.strip() or not 0 < margin < math.inf:
            raise UsageError(
                f"--margins {text}: write METRIC=VALUE with a value above 0, such as latency=50."
            )
        found[name.strip()] = margin
    return found


def rejudged(old: Run, new: Run, folder: Path) -> Run:
    """The baseline with the judge and the metrics of the candidate, in a folder."""
    from ragfault.evaluation import evaluate, rescore
    from ragfault.judges import JUDGES, load_judge
    from ragfault.judges.lens import LENSES

    wanted = new.manifest.judge
    metrics = [measure.name for measure in new.manifest.metrics]
    place = folder / (old.path.name or "baseline")
    if old.manifest.judge == wanted:
        if metrics == [measure.name for measure in old.manifest.metrics]:
            return old
        return rescore(old, place, metrics=metrics)
    name = wanted.partition("/")[0]
    lens = LENS.search(wanted)
    known = name in JUDGES and (lens is None or lens[1] in LENSES)
    there = load_judge(name, lens=lens[1] if lens else "general") if known else None
    if there is None or there.fingerprint != wanted:
        here = f"the judge here is {there.fingerprint}" if there else _lacking(name, lens)
        raise UsageError(
            f"{old.path} cannot be judged again as {new.path} was, by {wanted}: {here}. "
            "Evaluate both with one judge, or compare them all the same with --anyway."
        )
    click.echo(f"judging {old.manifest.traces:,} traces of {old.path} again, by {wanted}", err=True)
    return evaluate(old.traces(), place, judge=there, metrics=metrics)


def _lacking(name: str, lens: re.Match[str] | None) -> str:
    """Why there is no such judge: by its name, and by its lens where that is one of a user."""
    if name == "llm":
        return "a judge that asks a model is paid for, and asks only where --judge names it"
    return f'there is none here with the lens "{lens[1]}"' if lens else f"there is none here called {name}"
