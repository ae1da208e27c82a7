"""Preferences between versions of a system: sheets for people, and strengths with intervals."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.io.atomic_files import write_atomically
from ragfault.io.formats.tables import escape_formula
from ragfault.io.runs.run import AnyRun, open_run
from ragfault.labels.label import Label
from ragfault.model.errors import InputError
from ragfault.stats.bootstrap import FloatArray, Resampling, bootstrap_estimates
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import BootstrapEstimate
from ragfault.stats.preferences import compute_preference_p, estimate_covariance, fit_bradley_terry
from ragfault.text.number_format import format_share

MAX_P = 0.05
SHEET_COLUMNS = ("id", "query", "answer_1", "answer_2", "winner", "first", "second")


class VersionStrength(Struct, frozen=True, kw_only=True):
    """Strength of a version."""

    version: str
    compared: int
    wins: float
    """Half of each tie included."""
    strength: BootstrapEstimate
    """Log-odds beside the mean of all versions."""
    win_rate: BootstrapEstimate
    """Chance to win against a version of mean strength, whatever the order."""


class PreferenceReport(Struct, frozen=True, kw_only=True):
    """Strengths of versions by pairwise preferences, the strongest first."""

    comparisons: int
    queries: int
    versions: tuple[VersionStrength, ...]
    best_wins: BootstrapEstimate
    """Chance that the strongest wins against the next one, whatever the order."""
    first_wins: BootstrapEstimate
    """Chance that of two equal answers the one shown first wins; no value where versions never changed places."""
    p: float
    """p-value of no preference between these two, whatever the advantage of the first: of their own comparisons."""
    notes: tuple[str, ...] = ()

    @property
    def preferred(self) -> bool:
        """Return whether the strongest is shown to be preferred to the next one."""
        is_above = self.best_wins.low is not None and self.best_wins.low > 0.5
        return is_above and self.p <= MAX_P and self.first_wins.value is not None

    @property
    def sentence(self) -> str:
        """Say which version is preferred, or that none is shown to be."""
        best, following = (item.version for item in self.versions[:2])
        share = format_share(self.best_wins)
        counted = f"{self.comparisons:,} comparisons on {self.queries:,} queries"
        if self.preferred:
            return f"{best} is preferred to {following}: it wins {share}, by {counted}"
        return f"No preference is shown: {best} wins {share} against {following}, by {counted}"


def write_preference_sheet(first: AnyRun, second: AnyRun, path: str | Path, *, limit: int = 0, seed: int = 0) -> int:
    """Write a CSV sheet of the queries that two runs answer differently, to be filled in by people; return its rows.

    Each row shows the two answers in an order drawn at random, and the versions in the last columns, which are better
    hidden from the people who judge. A cell that a spreadsheet would run as a formula begins with an apostrophe. Raises
    InputError where no query has two different answers.
    """
    runs = [open_run(first), open_run(second)]
    answers = [{trace.id: trace for trace in run.traces() if (trace.answer or "").strip()} for run in runs]
    names = [run.path.name for run in runs]
    if names[0] == names[1]:
        names = [str(run.path) for run in runs]
    draw = random.Random(seed)
    ids = [name for name, trace in answers[0].items() if name in answers[1] and trace.answer != answers[1][name].answer]
    draw.shuffle(ids)
    if not ids:
        raise InputError(f"{names[0]} and {names[1]} have no trace with two different answers.")
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(SHEET_COLUMNS)
    sampled_ids = ids[: limit or None]
    for name in sampled_ids:
        order = (0, 1) if draw.random() < 0.5 else (1, 0)
        answers_shown = [answers[index][name].answer for index in order]
        cells = (name, answers[0][name].query, *answers_shown, "", *(names[index] for index in order))
        writer.writerow([escape_formula(cell) if cell else "" for cell in cells])
    # spreadsheets look for the mark
    write_atomically(Path(path), buffer.getvalue().encode("utf-8-sig"))
    return len(sampled_ids)


def rate_versions(preferences: Sequence[Label], *, resamples: int = 1000, seed: int = 0) -> PreferenceReport:
    """Rate versions by labels of preferences: Bradley–Terry strengths with 95 % intervals over queries.

    The strongest is preferred where its interval lies above one half and, on its own comparisons with the next one, a
    permutation test that holds whatever the advantage of the first has p ≤ 0.05. Of comparisons that all agree, half in
    each order, that takes 14. An interval is the wider of the bootstrap's and Student's t with the curvature of the
    fit.

    The advantage of being shown first is estimated with them where some pair of versions was shown in both orders;
    else it cannot be told from a preference, and none is claimed. Raises InputError where versions fall into groups
    that were never compared.

    >>> rows = [Label(trace=str(n), subject=("preference", *(("new", "old") if n % 2 else ("old", "new"))),
    ...               value=float((n % 2 == 1) == (n % 10 < 8))) for n in range(80)]
    >>> report = rate_versions(rows)
    >>> report.versions[0].version, round(report.best_wins.value, 1), report.preferred
    ('new', 0.8, True)
    """
    pairs = [(str(label.subject[1]), str(label.subject[2])) for label in preferences]
    names = sorted({name for pair in pairs for name in pair})
    _check_connected(pairs, names)
    first, second = (np.array([names.index(pair[place]) for pair in pairs], np.intp) for place in (0, 1))
    outcome = np.array([float(label.value) for label in preferences])  # type: ignore[arg-type]
    has_order = any((after, before) in set(pairs) for before, after in set(pairs))
    size = len(names)
    fitted = fit_bradley_terry(first, second, outcome, np.ones(len(outcome)), size, has_order=has_order)
    order = np.argsort(-fitted[:size], kind="stable")

    def statistic(weights: FloatArray) -> FloatArray:
        rows = []
        for row in weights:
            solution = fit_bradley_terry(first, second, outcome, row, size, has_order=has_order)
            strengths = solution[:size][order]
            chances = 1 / (1 + np.exp(-strengths))
            best = 1 / (1 + np.exp(strengths[1] - strengths[0]))
            rows.append([*strengths, *chances, best, 1 / (1 + np.exp(-solution[size])) if has_order else np.nan])
        return np.array(rows)

    estimates = bootstrap_estimates(statistic, [label.trace for label in preferences], Resampling(resamples, seed))
    estimates = _widen(
        estimates,
        fitted,
        order,
        estimate_covariance(first, second, fitted, has_order=has_order),
        len({label.trace for label in preferences}),
    )
    best_two = {names[index] for index in order[:2].tolist()}
    top = [index for index, pair in enumerate(pairs) if set(pair) == best_two]
    versions = tuple(
        VersionStrength(
            version=names[index],
            compared=int(((first == index) | (second == index)).sum()),
            wins=float(outcome[first == index].sum() + (1 - outcome[second == index]).sum()),
            strength=estimates[rank],
            win_rate=estimates[size + rank],
        )
        for rank, index in enumerate(order.tolist())
    )
    first_wins = estimates[-1]
    return PreferenceReport(
        comparisons=len(preferences),
        queries=len({label.trace for label in preferences}),
        versions=versions,
        best_wins=estimates[-2],
        first_wins=first_wins,
        p=compute_preference_p(
            np.array([pairs[index][0] == versions[0].version for index in top], bool),
            outcome[top],
            [preferences[index].trace for index in top],
            seed=seed,
        ),
        notes=tuple(_list_notes(first_wins, versions)),
    )


def _widen(
    estimates: Sequence[BootstrapEstimate],
    fitted: FloatArray,
    order: NDArray[np.intp],
    covariance: FloatArray,
    queries: int,
) -> list[BootstrapEstimate]:
    """Widen the intervals of `rate_versions` to those of Student's t with the errors of the joint fit."""
    size = len(order)
    if queries < 2:
        return list(estimates)
    unit = np.eye(size + 1)
    contrasts = [*unit[order], *unit[order], unit[order[0]] - unit[order[1]], unit[size]]
    reach = t_quantile(0.975, queries - 1)
    widened = []
    for index, (estimate, contrast) in enumerate(zip(estimates, contrasts, strict=True)):
        if estimate.value is None:
            widened.append(estimate)
            continue
        middle, spread = float(contrast @ fitted), reach * float(np.sqrt(max(0.0, contrast @ covariance @ contrast)))
        bounds = np.array([middle - spread, middle + spread])
        low, high = (bounds if index < size else 1 / (1 + np.exp(-bounds))).tolist()
        low = low if estimate.low is None else min(low, estimate.low)
        widened.append(
            BootstrapEstimate(estimate.value, low, high if estimate.high is None else max(high, estimate.high))
        )
    return widened


def _list_notes(first_wins: BootstrapEstimate, versions: Sequence[VersionStrength]) -> Iterator[str]:
    """Yield what the order shown, and strengths that overlap, say of the result."""
    if first_wins.value is None:
        yield "The versions never changed places, so a preference cannot be told from the order: swap half of them."
    elif first_wins.low is not None and (first_wins.low > 0.5 or (first_wins.high or 1) < 0.5):
        yield f"The order counts: of equal answers the one shown first wins {format_share(first_wins)}; corrected."
    for better, worse in pairwise(versions[1:]):
        if (better.strength.low or -np.inf) <= (worse.strength.high or np.inf):
            yield f"The intervals of {better.version} and {worse.version} overlap."


def _check_connected(pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
    reached = {names[0]}
    while True:
        further = {name for pair in pairs for name in pair if pair[0] in reached or pair[1] in reached}
        if further <= reached:
            break
        reached |= further
    if len(reached) < len(names):
        other = next(name for name in names if name not in reached)
        raise InputError(f"{names[0]} and {other} were never compared, not even through others. Compare some of them.")
