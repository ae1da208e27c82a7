"""Calibration of a judge to labels of the user: as a file, and as the judge that applies it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ragfault.judges.pooling import PoolWeights, compute_log_odds, pool_verdicts
from ragfault.model.errors import InputError, UsageError
from ragfault.model.protocols import Judge, MeteredJudge, MeteredWrapper, VerdictKind
from ragfault.model.records import ClaimVerdict, Trace, Verdicts
from ragfault.model.whole_files import read_record

MAX_FILE_SIZE = 1_000_000
"""Bytes that a calibration file has at most; a real one has about a thousand."""
UNSURE_RANGE = (1 / 3, 2 / 3)
"""Between these probabilities of support a verdict is wrong more than one time in three: the claim is unsure."""

Slope = Annotated[float, Meta(gt=0, le=1000)]
Intercept = Annotated[float, Meta(ge=-1000, le=1000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Difference = Annotated[float, Meta(ge=-1, le=1)]


class LogOddsLine(Protocol):
    """Line with a slope and an intercept."""

    @property
    def slope(self) -> float:
        """The factor on the log-odds, above 0."""
        ...

    @property
    def intercept(self) -> float:
        """The term added to them."""
        ...


class CalibrationFigures(Struct, frozen=True, kw_only=True):
    """Agreement with people on held-out folds, without or with the calibration."""

    calibration_error: Share
    bias: Difference
    """Mean groundedness by the judge less that by people; of answers mean probability less the share of good ones."""
    bias_low: Difference
    bias_high: Difference
    f1: Share | None = None
    """F1 of the bad class; None where none is bad and none is called so."""


class CalibrationLine(Struct, frozen=True, kw_only=True):
    """Line from the judge's log-odds that a unit is bad to calibrated ones, with what shows whether it helps."""

    unit: Literal["answer", "claim"]
    n: Annotated[int, Meta(ge=1)]
    """Labelled units."""
    groups: Annotated[int, Meta(ge=1)]
    """Independent groups among them, which folds keep whole."""
    base_rate: Share
    """Share of the units that people call bad."""
    slope: Slope
    intercept: Intercept
    weights: tuple[Share, ...] = ()
    """The weight of each judge of a jury in the pooled log-odds, before slope and intercept; empty if all are equal."""
    threshold: Share | None = None
    """Calibrated probability of being bad from which a claim is called bad; None: the judge's own decision stands."""
    before: CalibrationFigures
    after: CalibrationFigures
    helps: bool
    """True if the labels show that the line helps on held-out folds; only then it is applied."""
    reason: str = ""
    """Reason for `helps`."""

    @property
    def is_identity(self) -> bool:
        """Return whether the line changes nothing."""
        return self.slope == 1 and self.intercept == 0 and self.threshold is None and not self.weights


class JudgeCalibration(Struct, frozen=True, kw_only=True):
    """Calibration of one judge to labels, as written by `ragfault judge calibrate`."""

    judge: str
    """Fingerprint of the judge; the calibration holds for no other."""
    date: str
    """Day of the fit, as YYYY-MM-DD."""
    source: tuple[str, ...] = ()
    """Files of the labels."""
    lines: tuple[CalibrationLine, ...]
    """At most one for claims and one for answers."""

    @property
    def helps(self) -> bool:
        """Return whether any line helps."""
        return any(line.helps for line in self.lines)

    @property
    def digest(self) -> str:
        """Return the digest of what is applied: eight hexadecimal digits."""
        applied = [
            (line.unit, line.n, line.slope, line.intercept, line.threshold, *([line.weights] if line.weights else ()))
            for line in self.lines
            if line.helps
        ]
        return sha256(msgspec.json.encode((self.judge, sorted(applied)))).hexdigest()[:8]

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the calibrated judge."""
        return f"{self.judge} calibration={self.digest}"

    def get_line(self, unit: Literal["answer", "claim"]) -> CalibrationLine | None:
        """Return the line that is applied to a kind of unit; None where there is none that helps."""
        return next((line for line in self.lines if line.unit == unit and line.helps), None)


def read_calibration(path: str | Path) -> JudgeCalibration:
    """Read a calibration from a JSON file.

    Raises InputError where the file cannot be read, is no calibration, or has two lines for one kind of unit.
    """
    place = Path(path)
    if place.is_file() and place.stat().st_size > MAX_FILE_SIZE:
        raise InputError(f"{path} is not a calibration: it has more than {MAX_FILE_SIZE:,} bytes.")
    make = f" Make one with: ragfault judge calibrate LABELS -o {path}"
    calibration = read_record(place, JudgeCalibration, "a calibration", make)
    if len({line.unit for line in calibration.lines}) < len(calibration.lines):
        raise InputError(f"{path} is not a calibration: it has two lines for one kind of unit.")
    if not calibration.judge.isprintable():
        raise InputError(f"{path} is not a calibration: the fingerprint of its judge is not a line of text.")
    return calibration


def calibrate_probability(p: float, line: LogOddsLine) -> float:
    """Calibrate a probability of support; the order of probabilities never changes."""
    if line.slope == 1 and line.intercept == 0:
        return p
    odds = line.slope * compute_log_odds(1 - p) + line.intercept
    return round(1 / (1 + math.exp(min(max(odds, -30.0), 30.0))), 6)


def calibrate_verdicts(verdicts: Verdicts, calibration: JudgeCalibration) -> Verdicts:
    """Calibrate the probabilities of the claims and of the answer, and decide the support of the claims anew.

    The verdicts of a jury are pooled again with the weights that were learned. An answer without claims stays as it
    is, and so do all other verdicts.
    """
    claim_line, answer_line = calibration.get_line("claim"), calibration.get_line("answer")
    changes: dict[str, object] = {"judge": calibration.fingerprint}
    weights = PoolWeights(claim_line.weights if claim_line else (), answer_line.weights if answer_line else ())
    if verdicts.members and any(weights):
        pooled = pool_verdicts(verdicts.members, weights)
        verdicts = replace(verdicts, claim=pooled["claim"], answer=pooled["answer"])
    if verdicts.claim and claim_line is not None:
        changes["claim"] = tuple(_calibrate_claim(claim, claim_line) for claim in verdicts.claim)
    answer = verdicts.answer
    if answer is not None and answer.grounded is not None and verdicts.claim and answer_line is not None:
        changes["answer"] = replace(answer, grounded=calibrate_probability(answer.grounded, answer_line))
    return replace(verdicts, **changes)


def _calibrate_claim(claim: ClaimVerdict, line: CalibrationLine) -> ClaimVerdict:
    if claim.p is None or line.is_identity:
        return claim
    p = calibrate_probability(claim.p, line)
    was_bad = claim.support in ("unsupported", "contradicted")
    is_bad = was_bad if line.threshold is None else 1 - p >= line.threshold
    is_sure = p > UNSURE_RANGE[0] if is_bad else p < UNSURE_RANGE[1]
    changed = replace(claim, p=p, unsure=claim.unsure or is_sure)
    if is_bad == was_bad:
        return changed
    return replace(changed, support="unsupported" if is_bad else "inferred", reason=f"calibrated on {line.n:,} labels")


class CalibratedJudge:
    """A judge whose probabilities of claims and answers are calibrated to labels.

    Raises UsageError for a calibration of another judge.
    """

    def __init__(self, judge: Judge, calibration: JudgeCalibration) -> None:
        if judge.fingerprint != calibration.judge:
            raise UsageError(
                f'the calibration is of the judge "{calibration.judge}", and this one is "{judge.fingerprint}". '
                "Calibrate this one with: ragfault judge calibrate LABELS -o FILE"
            )
        self._judge, self._calibration = judge, calibration

    @property
    def offers(self) -> frozenset[VerdictKind]:
        return self._judge.offers

    @property
    def settings(self) -> Any:
        """Settings of the judge that is calibrated, if it has some."""
        return getattr(self._judge, "settings", None)

    @property
    def fingerprint(self) -> str:
        return self._calibration.fingerprint

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [calibrate_verdicts(verdicts, self._calibration) for verdicts in self._judge.observe(traces)]


class CalibratedMeteredJudge(MeteredWrapper, CalibratedJudge):
    """A calibrated judge that costs money."""


def wrap_judge(judge: Judge, calibration: str | Path | JudgeCalibration | None) -> Judge:
    """Calibrate a judge by a calibration or its file; None changes nothing.

    Raises UsageError for a judge without verdicts on claims or a calibration of another judge, InputError for a file
    that is no calibration.
    """
    if calibration is None:
        return judge
    if not isinstance(calibration, JudgeCalibration):
        calibration = read_calibration(calibration)
    if "claim" not in judge.offers:
        raise UsageError(f'the judge "{judge.fingerprint}" gives no probabilities of claims: nothing is calibrated.')
    return (
        CalibratedMeteredJudge(judge, calibration)
        if isinstance(judge, MeteredJudge)
        else CalibratedJudge(judge, calibration)
    )
