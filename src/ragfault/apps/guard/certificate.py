"""Certificate: a threshold with P(bad | released) ≤ alpha at confidence 1 − delta, from labelled answers.

Learn-then-test (Angelopoulos et al. 2021) with a fixed sequence: answers are ordered by the judge's risk, which does
not know the labels. From `start` of them on more permissive thresholds are tested by the exact binomial test of
"risk > alpha" (Clopper & Pearson 1934) at level delta, and the sequence ends at its first failure. Thresholds are
tested where the number of bad answers that pass rises by one, and at the end: there the test has most of its level, and
each further test could only end the sequence. A bad threshold is certified only if the first bad one of those tested
passes, so the whole sequence errs with chance delta at most. The start is at most half of the answers, and may depend
on the risks and on the labels of the riskier half: the first test reads those of the other half alone. This assumes
that labelled answers were drawn from the traffic that will be released, independently up to groups, and that the risk
does not fall back below alpha beyond the threshold where it first exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from ragfault.apps.guard.settings import CertificateSettings
from ragfault.apps.guard.traffic import Ranking, check_risk, describe_inputs, rank_answer
from ragfault.io.files import describe_input
from ragfault.io.runs.run import Run
from ragfault.io.runs.samples import sample_run
from ragfault.labels.judges.measuring import JudgedSource, judge_labels
from ragfault.labels.judges.units import rate_answer
from ragfault.labels.reading.label_files import read_labels
from ragfault.labels.reading.labeled_traces import LabeledSource, LabeledTrace
from ragfault.model.errors import UsageError
from ragfault.model.records import Trace, Verdicts
from ragfault.model.settings import accept_fields
from ragfault.model.whole_files import read_record
from ragfault.stats.distributions import compare_histograms, incomplete_beta
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval
from ragfault.text.number_format import format_number, format_percent

MAX_START = 0.5
MIN_DRAW_P = 0.001
"""Chance that labels drawn at random are taken for another draw."""


class RatedAnswer(Struct, frozen=True):
    """Labelled answer with the risk that the judge sees in it."""

    risk: float
    """The judge's probability that the answer is bad."""
    bad: bool
    group: str
    inputs: Mapping[str, float]
    route: str | None = None


class RouteCertificate(Struct, frozen=True, kw_only=True):
    """Certified threshold of one route, or of all together."""

    route: str | None
    """None: all traffic, in the mix of the labels."""
    delta: float
    """Share of delta that is this route's."""
    n: int
    """Labelled answers."""
    groups: int
    """Independent groups among them."""
    bad: int
    """Bad ones among them."""
    design_effect: float
    """Factor by which answers of one group say less than independent ones; counts are divided by it."""
    threshold: float | None
    """Largest risk that is released; None: nothing can be promised."""
    released: int = 0
    """Labelled answers at or below the threshold."""
    released_bad: int = 0
    released_share: Interval | None = None
    """Share of the traffic that is released, with its 95 % interval."""
    bound: float | None = None
    """Upper limit of P(bad | released) at this threshold alone."""
    reason: str = ""
    """Reason why nothing can be promised."""
    inputs: Mapping[str, tuple[float, ...]] = {}
    """Inputs of the released labelled answers, against which traffic is watched."""


class Certificate(Struct, frozen=True, kw_only=True):
    """Promise that P(bad | released) ≤ alpha with confidence 1 − delta, jointly over its routes."""

    alpha: float
    delta: float
    date: str
    """Day of the labels' use, as YYYY-MM-DD."""
    judge: str
    """Fingerprint of the judge; the promise holds for no other."""
    source: tuple[str, ...] = ()
    routes: tuple[RouteCertificate, ...]
    ranking: Ranking = "risk"
    """Number whose threshold is certified: the judge's risk, or one that counts unsupported words, too."""
    notes: tuple[str, ...] = ()
    """Signs that the labels are no random draw of the traffic."""

    @property
    def promises(self) -> bool:
        """Return whether anything is promised."""
        return any(route.threshold is not None for route in self.routes)

    def get_route(self, route: str | None) -> RouteCertificate | None:
        """Return the part that holds for a route: its own, else the one of all traffic; None: nothing is promised."""
        parts = {entry.route: entry for entry in self.routes}
        return parts.get(route, parts.get(None))


@lru_cache(maxsize=1 << 16)
def binomial_tail(bad: float, n: float, alpha: float) -> float:
    """Return P(at most `bad` of n are bad) where each is with chance alpha; counts may be fractions.

    >>> round(binomial_tail(26, 337, 0.1), 3), binomial_tail(0, 22, 0.1) < 0.1
    (0.0..., True)
    """
    return 1.0 if bad >= n else incomplete_beta(n - bad, bad + 1, 1 - alpha, alpha)


def find_upper_bound(bad: float, n: float, delta: float) -> float:
    """Return the upper Clopper–Pearson limit of a share at confidence 1 − delta.

    >>> round(find_upper_bound(0, 22, 0.1), 3), find_upper_bound(5, 5, 0.1)
    (0.099, 1.0)
    """
    if n <= 0 or bad >= n:
        return 1.0
    low, high = bad / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(bad, n, middle) > delta else (low, middle)
    return high


def count_needed(alpha: float, delta: float) -> int:
    """Count the answers that must be released, all of them good, before anything can be promised.

    >>> count_needed(0.1, 0.1), count_needed(0.05, 0.1)
    (22, 45)
    """
    return math.ceil(math.log(delta) / math.log(1 - alpha))


@accept_fields(CertificateSettings)
def certify_answers(answers: Sequence[RatedAnswer], settings: CertificateSettings) -> RouteCertificate:
    """Certify the largest threshold with P(bad | released) ≤ alpha at confidence 1 − delta.

    `start` is the share of the answers with which the sequence of tests begins; by default it is chosen
    (`choose_start`). Answers of one group are not independent: counts are divided by the design effect
    (`measure_design_effect`), and one group promises nothing. Labels are read, routes separated and answers ranked
    already: the settings of these do not apply. Raises UsageError for alpha or delta outside (0, 1), and for a risk
    outside [0, 1].

    >>> answers = [RatedAnswer(i / 100, i >= 80, str(i), {"risk": i / 100}) for i in range(100)]
    >>> part = certify_answers(answers)
    >>> part.threshold, part.released, part.released_bad
    (0.77, 78, 0)
    """
    return _certify_route(answers, settings, None)


def _certify_route(
    answers: Sequence[RatedAnswer], settings: CertificateSettings, route: str | None
) -> RouteCertificate:
    """Certify the answers of one route, or of all."""
    alpha, delta, start = settings.alpha, settings.delta, settings.start
    for answer in answers:
        check_risk(answer.risk)
    n = len(answers)
    labels = np.array([answer.bad for answer in answers], dtype=np.float64)
    groups = [answer.group for answer in answers]
    effect = measure_design_effect(labels, groups)
    entry = RouteCertificate(
        route=route,
        delta=delta,
        n=n,
        groups=len(set(groups)),
        bad=int(labels.sum()),
        design_effect=effect,
        threshold=None,
    )
    needed = count_needed(alpha, delta)
    if n < needed * effect:
        alike = f" count as {n / effect:.1f}, as those of a group are alike" if effect > 1 else ""
        return msgspec.structs.replace(
            entry, reason=f"{n:,} labelled answers{alike}; {needed:,} good ones are needed at the least"
        )
    risks = np.array([answer.risk for answer in answers])
    order = np.argsort(risks, kind="stable")
    counts, bad_counts = _accumulate(risks[order], labels[order])
    allowed = count_allowed(counts, effect, alpha, delta)
    steps = np.flatnonzero(np.diff(allowed, prepend=-1) > 0)
    if start is None:
        first_step = choose_start(risks[order], labels[order], counts[steps], allowed[steps], effect)
    else:
        first_step = int(np.searchsorted(counts[steps], start * n))
    tested = np.unique([*steps[first_step:], len(counts) - 1])
    last = _test_sequence(bad_counts[tested], allowed[tested])
    if last is None:
        note = f"{bad_counts[tested[0]]:.0f} of the {counts[tested[0]]:,} answers of least risk are bad"
        return msgspec.structs.replace(entry, reason=f"{note}: more than {format_percent(alpha)} cannot be excluded")
    released, released_bad = int(counts[tested[last]]), int(bad_counts[tested[last]])
    threshold = float(risks[order][released - 1])
    let_through = [answer for answer in answers if answer.risk <= threshold]
    return msgspec.structs.replace(
        entry,
        threshold=threshold,
        released=released,
        released_bad=released_bad,
        released_share=mean_interval((risks <= threshold).astype(np.float64), groups, bounds=(0.0, 1.0)),
        bound=find_upper_bound(released_bad / effect, released / effect, delta),
        inputs={
            name: tuple(answer.inputs[name] for answer in let_through)
            for name in let_through[0].inputs
            if name != "route" or (route is None and any(answer.route is not None for answer in let_through))
        },
    )


def count_allowed(counts: Any, effect: float, alpha: float, delta: float) -> Any:
    """Count for each rising number of answers the most bad ones with which they pass the test; -1 where none do.

    >>> count_allowed(np.array([21, 22, 37, 38, 450]), 1.0, 0.1, 0.1).tolist()
    [-1, 0, 0, 1, 36]
    """
    allowed, bad_count = [], -1
    for count in counts.tolist():
        while bad_count < count and binomial_tail((bad_count + 1) / effect, count / effect, alpha) <= delta:
            bad_count += 1
        allowed.append(bad_count)
    return np.array(allowed)


def choose_start(risks: Any, labels: Any, counts: Any, allowed: Any, effect: float) -> int:
    """Choose the first test, so that most are released: the number of answers that it reads times its chance to pass.

    Answers are in the order of their risk; `counts` and `allowed` are the answers of each test and the most bad ones
    with which it passes. The risks of the safer half are scaled to the share of bad ones among the riskier half; labels
    of the safer half are not read, so that its test remains exact.

    >>> risks, counts = np.arange(400) / 400, np.arange(22, 401)
    >>> allowed = count_allowed(counts, 1.0, 0.1, 0.1)
    >>> [int(counts[choose_start(risks, risks > share, counts, allowed, 1.0)]) for share in (0.97, 0.3)]
    [200, 38]
    """
    half = int(MAX_START * len(risks))
    scale = float(np.mean(labels[half:])) / max(float(np.mean(risks[half:])), 1e-9)
    expected = np.minimum(scale * np.cumsum(risks[:half]) / np.arange(1, half + 1), 1.0)

    def rate(test: int) -> float:
        count = int(counts[test])
        share = max(float(expected[count - 1]), 1e-9)
        return count * binomial_tail(int(allowed[test]) / effect, count / effect, share)

    return max(range(int(np.searchsorted(counts, half, side="right"))), key=rate, default=0)


def _accumulate(risks: Any, labels: Any) -> tuple[Any, Any]:
    """Return the answers and the bad ones up to each distinct risk."""
    last_rows = np.append(np.flatnonzero(np.diff(risks)), risks.size - 1)
    return last_rows + 1, np.cumsum(labels)[last_rows]


def _test_sequence(bad_counts: Any, allowed: Any) -> int | None:
    """Return the last position before the first test that fails; None if that is the first."""
    failed = np.flatnonzero(bad_counts > allowed)
    last = int(failed[0]) - 1 if failed.size else len(bad_counts) - 1
    return None if last < 0 else last


def measure_design_effect(labels: Any, groups: Sequence[str]) -> float:
    """Measure by how much answers of one group say less than independent ones: 1 + (size − 1) · intraclass correlation.

    The size is that of the group which an answer is in, on average (Kish 1965), the correlation that of the analysis of
    variance, and 1 where labels do not show it. The error of the share itself says too little where a few groups are
    large: they may all be good by chance. 1 where groups are single answers.

    >>> measure_design_effect(np.array([1.0, 0.0, 1.0]), ["a", "b", "c"])
    1.0
    >>> measure_design_effect(np.array([1.0, 1.0, 0.0, 0.0]), ["a", "a", "b", "b"])
    2.0
    """
    _, codes, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    n, count = len(labels), len(sizes)
    if count == n:
        return 1.0
    size, correlation = float((sizes**2).sum()) / n, 1.0
    if count > 1 and np.ptp(labels):
        means = np.bincount(codes, labels) / sizes
        between = float((sizes * (means - labels.mean()) ** 2).sum()) / (count - 1)
        within = float(((labels - means[codes]) ** 2).sum()) / (n - count)
        correlation = (between - within) / (between + ((n - size) / (count - 1) - 1) * within)
    return 1 + (size - 1) * min(1.0, max(0.0, correlation))


@accept_fields(CertificateSettings)
def certify(source: LabeledSource | Iterable[Trace], settings: CertificateSettings) -> Certificate:
    """Certify a judge's threshold on labelled answers, read as by `ragfault.labels.judges.measuring.judge_labels`.

    With `routes` each of them gets a threshold of its own and an equal share of delta, so that all promises hold
    jointly; otherwise one threshold holds for all traffic in the mix of the labels. `ranking` orders the answers (see
    `ragfault.apps.guard.traffic.rank_answer`); chosen after a look at the labels, it breaks the promise. Raises what
    `judge_labels` raises; UsageError where no label of an answer is read, or a route has none.
    """
    run, routes = settings.run, settings.routes
    if run is not None:
        _check_chances(str(source))
    judged_source = judge_labels(source, settings)
    answers = rate_labeled_answers(judged_source, settings.ranking)
    if not answers:
        raise UsageError("these labels say of no answer whether it is bad. Label answers, or all claims of an answer.")
    known = {answer.route for answer in answers}
    if missing := [name for name in routes if name not in known]:
        listing = ", ".join(sorted(filter(None, known))) or "none"
        raise UsageError(f"no labelled answer has the route {missing[0]}. Routes: {listing}.")
    # each route errs with its share of delta, so that all promises together err with delta at most
    shared = msgspec.structs.replace(settings, delta=settings.delta / max(1, len(routes)))
    parts = [
        _certify_route([answer for answer in answers if name in (None, answer.route)], shared, name)
        for name in (routes or (None,))
    ]
    return Certificate(
        alpha=settings.alpha,
        delta=settings.delta,
        date=datetime.now(UTC).date().isoformat(),
        judge=judged_source.judge,
        source=() if isinstance(source, Run) else tuple(describe_input(source)),
        routes=tuple(parts),
        ranking=settings.ranking,
        notes=() if run is None else compare_with_run(run, [item.trace.id for item in judged_source.labeled.labeled]),
    )


def _check_chances(labels: str) -> None:
    """Raise UsageError for labels of traces that were drawn with unequal chances."""
    if len({label.chance for label in read_labels(labels)}) > 1:
        raise UsageError(
            f"the traces of {labels} were drawn with unequal chances (ragfault label suggest). A promise needs answers "
            "that were drawn at random: label some with ragfault label RUN --limit N."
        )


def compare_with_run(run: str | Path | Run, labelled: Sequence[str]) -> tuple[str, ...]:
    """Compare the risk of labelled answers with that of the run's others; return a note where they differ.

    By the two-sample test of Kolmogorov and Smirnov at the level MIN_DRAW_P, on the verdicts of the run; of a large run
    on a random sample.
    """
    known, opened = set(labelled), run if isinstance(run, Run) else Run.open(run)
    units = [rate_answer(verdicts) for verdicts in opened.verdicts(list(labelled))]
    others = [rate_answer(verdicts) for verdicts in sample_run(opened).verdicts() if verdicts.trace not in known]
    sides = [[unit.score for unit in side if unit is not None] for side in (units, others)]
    if not all(sides):
        return ()
    values = np.unique(np.concatenate(sides))
    bins = [np.bincount(np.searchsorted(values, side), minlength=len(values)) for side in sides]
    if compare_histograms(bins[0], bins[1])[1] >= MIN_DRAW_P:
        return ()
    mine, rest = (format_number(float(np.mean(side))) for side in sides)
    return (
        f"the labelled answers look like no random draw of the run: their risk is {mine} on average, that of "
        f"{len(sides[1]):,} others {rest}. The guarantee and the released share hold only for answers like these",
    )


def rate_labeled_answers(judged_source: JudgedSource, ranking: Ranking = "risk") -> list[RatedAnswer]:
    """Return the answers with a label and a verdict; one with a bad claim is bad, one is good if all its claims are."""
    answers = []
    for item, verdicts in zip(judged_source.labeled.labeled, judged_source.judged.verdicts, strict=False):
        is_bad, unit = _read_label(item, verdicts), rate_answer(verdicts)
        if is_bad is not None and unit is not None:
            risk = rank_answer(item.trace, unit.score, ranking)
            inputs = describe_inputs(item.trace, len(verdicts.claim or ()), risk)
            answers.append(RatedAnswer(risk, is_bad, item.group, inputs, item.trace.route))
    return answers


def _read_label(item: LabeledTrace, verdicts: Verdicts) -> bool | None:
    """Return whether people call an answer bad; None where they did not say."""
    if item.positive is not None:
        return item.positive
    if item.claims is None:
        return None
    if any(claim.positive for claim in item.claims):
        return True
    return False if len(item.claims) >= len(verdicts.claim or ()) else None


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate from a JSON file; InputError where there is none."""
    return read_record(path, Certificate, "a certificate", f" Make one with: ragfault guard certify LABELS -o {path}")
