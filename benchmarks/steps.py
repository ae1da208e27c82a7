"""Measure how well faulty steps are located, beside two simpler rules and published judges.

    python -m benchmarks.steps SHARED [--page benchmarks/RESULTS.md]

SHARED holds agent_steps_hotpotqa_dev, its judges and agent_steps_whowhen_dev. Nothing is trained. Intervals of
differences resample questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.datasets import read_rows
from benchmarks.step_faults import write_table
from ragfault.diagnosis.steps.agreement import measure_agreements
from ragfault.diagnosis.steps.localization import detect_outcome, localize_faulty_steps
from ragfault.diagnosis.steps.moves import group_moves
from ragfault.diagnosis.steps.records import FaultyStep
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Trace

COLUMNS = ("system", "right", "less the rule below", "right given a fault", "right given none", "not told")
SET_COLUMNS = (
    "runs known to have failed",
    "runs",
    "first faulty step",
    "set holds it",
    "steps in it",
    "steps of the run",
)
RESAMPLES = 2000
NONE, UNTOLD = "none", "not told"
"""What a system says of a run in place of a step."""


class LabelledRun(NamedTuple):
    """A run with the label of people."""

    question: str
    trace: Trace
    steps: tuple[str, ...]
    """The steps that decide something."""
    first: str
    """The first faulty step, or NONE."""


def load_runs(folder: Path, name: str) -> list[LabelledRun]:
    """Load the runs of one benchmark."""
    traces = read_traces(folder / f"{name}.jsonl.gz")
    runs = []
    for row, trace in zip(read_rows(folder, name), traces, strict=True):
        steps = tuple(move.step.id for move in group_moves(trace).moves)
        runs.append(LabelledRun(row["source_id"], trace, steps, _read_first(row)))
    return runs


def _read_first(row: dict[str, Any]) -> str:
    return NONE if row["first_error"] is None else str(row["first_error"])


def name_step(finding: FaultyStep) -> str:
    """Return what a finding says."""
    if finding.status == "no fault":
        return NONE
    return finding.best.step if finding.status == "fault" and finding.best is not None else UNTOLD


def build_systems(runs: Sequence[LabelledRun]) -> dict[str, list[str]]:
    """Build what each system says of each run; each of ours stands before the rule that it is compared with."""
    traces = [run.trace for run in runs]
    bare = [replace(trace, reference=None, facts=None, metadata={}) for trace in traces]
    stated = [detect_outcome(trace) == "right" for trace in traces]
    agreed = [agreement is not None and agreement.same > 0 for agreement in measure_agreements(bare)]
    systems = {}
    for ours, shown, rule, right in (
        ("ragfault, with the reference", traces, "reference stated → none, else the last step", stated),
        ("ragfault, beside other runs", bare, "another run agrees → none, else the last step", agreed),
    ):
        systems[ours] = [name_step(finding) for finding in localize_faulty_steps(shown).traces]
        systems[rule] = [NONE if is_right else run.steps[-1] for run, is_right in zip(runs, right, strict=True)]
    return {**systems, "every step right": [NONE] * len(runs)}


def format_difference(runs: Sequence[LabelledRun], difference: np.ndarray[Any, Any]) -> str:
    """Format the mean of differences with its 95 % interval over questions."""
    questions = sorted({run.question for run in runs})
    members = [[n for n, run in enumerate(runs) if run.question == question] for question in questions]
    sums = np.array([[difference[rows].sum(), len(rows)] for rows in members])
    draws = np.random.default_rng(0).integers(0, len(questions), (RESAMPLES, len(questions)))
    low, high = np.quantile(sums[draws, 0].sum(1) / sums[draws, 1].sum(1), [0.025, 0.975])
    return f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def build_table(runs: Sequence[LabelledRun]) -> list[str]:
    """Build the table of runs with a fault and without one."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    systems = build_systems(runs)
    names = list(systems)
    hits = {
        name: np.array([float(named == run.first) for named, run in zip(predictions, runs, strict=True)])
        for name, predictions in systems.items()
    }
    is_faulty = np.array([run.first != NONE for run in runs])
    for name, following in zip(names, [*names[1:], ""], strict=True):
        right = hits[name]
        less = format_difference(runs, right - hits[following]) if name.startswith("ragfault") else ""
        shares = (f"{right[is_faulty].mean():.3f}", f"{right[~is_faulty].mean():.3f}")
        lines.append(f"| {name} | {right.mean():.3f} | {less} | {' | '.join(shares)} | {systems[name].count(UNTOLD)} |")
    return lines


def build_set_table(kinds: dict[str, Sequence[LabelledRun]]) -> list[str]:
    """Build the table of the suspects of runs that are known to have failed."""
    lines = ["| " + " | ".join(SET_COLUMNS) + " |", "|" + "---|" * len(SET_COLUMNS)]
    for kind, runs in kinds.items():
        faulty = [run for run in runs if run.first != NONE]
        findings = localize_faulty_steps([run.trace for run in faulty], failed=True).traces
        sets = [{suspect.step for suspect in finding.suspects} for finding in findings]
        firsts = [next(iter(finding.suspects)).step for finding in findings]
        cells = (
            f"{np.mean([run.first == first for run, first in zip(faulty, firsts, strict=True)]):.3f}",
            f"{np.mean([run.first in members for run, members in zip(faulty, sets, strict=True)]):.3f}",
            f"{np.mean([len(members) for members in sets]):.2f}",
            f"{np.mean([len(run.steps) for run in faulty]):.2f}",
        )
        lines.append(f"| {kind} | {len(faulty)} | {' | '.join(cells)} |")
    return lines


def build_judge_table(folder: Path) -> list[str]:
    """Build the table of the published judges, the best first."""
    rows = sorted(read_rows(folder, "agent_steps_hotpotqa_judges_dev"), key=lambda row: -row["first_error_accuracy"])
    cells = [f"| {row['judge']} | {row['first_error_accuracy']:.3f} | {row['step_accuracy']:.3f} |" for row in rows]
    return ["| judge | first faulty step | steps labelled right |", "|---|---|---|", *cells]


def main() -> None:
    """Print the tables, or write them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    search = load_runs(options.shared, "agent_steps_hotpotqa_dev")
    team = load_runs(options.shared, "agent_steps_whowhen_dev")
    tables: dict[str, Callable[[], list[str]]] = {
        "search": lambda: build_table(search),
        "sets": lambda: build_set_table({"agents that search": search, "teams": team}),
        "judges": lambda: build_judge_table(options.shared),
    }
    for name, build in tables.items():
        lines = build()
        print(f"## {name}\n" + "\n".join(lines) + "\n", flush=True)
        if options.page:
            write_table(options.page, name, lines)


if __name__ == "__main__":
    main()
