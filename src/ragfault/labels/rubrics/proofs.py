"""Proof of a rubric: its agreement with people and with itself, without which no gate decides on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from ragfault.io.runs.run import Run
from ragfault.metrics.catalog import parse_metric
from ragfault.model.errors import UsageError
from ragfault.model.rubrics import METRIC_NAME
from ragfault.model.whole_files import read_record
from ragfault.stats.estimates import BootstrapEstimate
from ragfault.text.number_format import format_percent

MIN_LABELLED = 50
"""Labelled traces that a proof needs."""
MIN_KAPPA = 0.4
"""Least lower end of kappa's 95 % interval: below it agreement is called fair at best (Landis & Koch 1977)."""
MIN_REPEATED, MIN_CONSISTENCY = 20, 0.9
"""Traces judged repeatedly, and the share of them that must have one and the same value each time."""


class RubricProof(Struct, frozen=True, kw_only=True):
    """Agreement of one judge with people by one rubric, and with itself."""

    rubric: str
    version: str
    """Hash of the rubric."""
    judge: str
    """Fingerprint of the judge."""
    labelled: int
    """Traces with a label and a verdict."""
    unlabelled: int
    """Labels of traces without a verdict by this rubric."""
    agreement: BootstrapEstimate
    """Share of the labelled traces on which judge and people agree."""
    kappa: BootstrapEstimate
    """Cohen's kappa; linear over more than two levels."""
    repeated: int = 0
    """Traces that were judged repeatedly."""
    consistency: float | None = None
    """Share of these with the same value each time; None where `judge repeat` was not given."""

    @property
    def shortcomings(self) -> list[str]:
        """List what keeps the rubric from deciding a gate, in words; nothing where it may."""
        low = self.kappa.low
        problems = []
        if self.labelled < MIN_LABELLED:
            problems.append(f"{self.labelled} labelled traces, and {MIN_LABELLED} are needed")
        if low is None or low < MIN_KAPPA:
            end = "unknown" if low is None else f"{low:.2f}"
            problems.append(f"the lower end of kappa is {end}, and {MIN_KAPPA:.2f} is needed")
        if self.consistency is None or self.repeated < MIN_REPEATED:
            problems.append(f"it was judged repeatedly on {self.repeated} traces, and {MIN_REPEATED} are needed")
        elif self.consistency < MIN_CONSISTENCY:
            share = f"{format_percent(self.consistency)} of traces are judged alike each time"
            problems.append(f"{share}, and {format_percent(MIN_CONSISTENCY)} are needed")
        return problems


class RubricMeasurement(Struct, frozen=True, kw_only=True):
    """Proofs of the rubrics of a run."""

    judge: str
    proofs: tuple[RubricProof, ...]

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of the rubrics that may decide a gate."""
        return tuple(proof.rubric for proof in self.proofs if not proof.shortcomings)


def load_rubric_measurement(path: str | Path) -> RubricMeasurement:
    """Load the output of `ragfault judge rubric`. Raises InputError where it cannot be read."""
    return read_record(path, RubricMeasurement, "the output of ragfault judge rubric -o")


def check_rubric_proofs(run: Run, metrics: Iterable[str], measurements: Sequence[RubricMeasurement] = ()) -> None:
    """Refuse a gate on a rubric that was not measured, or not well enough, for the judge of the run.

    Raises UsageError with what is to be done.
    """
    proofs = {
        proof.rubric: proof for item in measurements for proof in item.proofs if proof.judge == run.manifest.judge
    }
    measured_otherwise = {proof.rubric for item in measurements for proof in item.proofs} - proofs.keys()
    todo = (
        "Label answers, and measure it: ragfault judge repeat TRACES --judge llm:MODEL --rubrics FILE -o repeat.json; "
        "ragfault judge rubric RUN LABELS --flakiness repeat.json -o proof.json; then add --rubric-proof proof.json"
    )
    rubrics = [metric for metric in metrics if metric.partition("(")[0].strip() == METRIC_NAME]
    for metric in rubrics:
        name = str(dict(parse_metric(metric).parameters).get("name", ""))
        if not name:
            raise UsageError(f"{metric}: a mean over rubrics decides no gate. Name one: {METRIC_NAME}(name=…).")
        proof = proofs.get(name)
        if proof is None:
            why = (
                "was measured for another judge or another version of it"
                if name in measured_otherwise
                else "was not measured"
            )
            raise UsageError(f'the rubric "{name}" {why}, so no gate decides on it. {todo}.')
        if proof.shortcomings:
            raise UsageError(f'the rubric "{name}" may not gate: {"; ".join(proof.shortcomings)}. {todo}.')
