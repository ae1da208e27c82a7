"""The rule by which attempts prove or refute a cause.

An unchanged request may give a right answer by chance: the noise, estimated over all replayed traces of a run. A change
made answers right if noise explains so many right ones with a chance of at most 5 %. It left them bad if so few right
ones have a chance of at most 5 % under a change that works four times in five. `python -m benchmarks.replay` simulates
the errors of the rule.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

from ragfault.apps.replay.records import Expectation, ProofOutcome

LEVEL = 0.05
"""Largest chance of the attempts under the explanation that is given up."""
WORKING_SHARE = 0.8
"""Share of right answers that a change gives at least, if it removes the cause; chosen, not measured."""
NOISE_PRIOR = (0.5, 5.0)
"""Right answers and attempts that the noise is estimated from before the first attempt: one in ten."""
OWN_WEIGHT = 4.0
"""Attempts that the noise of a run counts beside the attempts of a trace of its own."""
CHANCE_ATTEMPTS = 2
"""Right answers to the recorded request, and no bad one, from which the recorded answer was bad by chance."""


def count_calls(attempts: int) -> int:
    """Return the calls for the proof of one cause, at most, with so many attempts with the change.

    A request that gave a right answer is asked again, so that two attempts may take as many calls as three.

    >>> count_calls(2), count_calls(3), count_calls(5)
    (4, 4, 6)
    """
    return max(4, 1 + attempts)


class AttemptCounts(NamedTuple):
    """Right answers and attempts, with the change and without."""

    right: int = 0
    attempts: int = 0
    same_right: int = 0
    same_attempts: int = 0


def estimate_noise(right: int, attempts: int) -> float:
    """Estimate the share of right answers to recorded requests that had a bad one.

    >>> estimate_noise(0, 0), round(estimate_noise(2, 30), 3)
    (0.1, 0.071)
    """
    return (NOISE_PRIOR[0] + right) / (NOISE_PRIOR[1] + attempts)


def compute_tail(right: int, attempts: int, share: float, *, upper: bool) -> float:
    """Return the chance of at least (or at most) so many right answers.

    >>> round(compute_tail(2, 2, 0.1, upper=True), 3), round(compute_tail(0, 2, 0.8, upper=False), 3)
    (0.01, 0.04)
    """
    counts = range(right, attempts + 1) if upper else range(right + 1)
    return sum(comb(attempts, count) * share**count * (1 - share) ** (attempts - count) for count in counts)


def is_by_chance(counts: AttemptCounts) -> bool:
    """Return whether a recorded answer was bad by chance: the same request gives right answers."""
    return counts.same_right >= CHANCE_ATTEMPTS and counts.same_right == counts.same_attempts


def decide_proof(expected: Expectation, counts: AttemptCounts, noise: float) -> tuple[ProofOutcome, str]:
    """Decide what attempts say of a cause, and why.

    >>> [decide_proof("right", AttemptCounts(right, 2, 0, 1), 0.1)[0] for right in (2, 1, 0)]
    ['proven', 'not decided', 'refuted']
    >>> decide_proof("bad", AttemptCounts(0, 2, 0, 1), 0.1)[0], decide_proof("right", AttemptCounts(0, 0, 2, 2), 0.1)[0]
    ('proven', 'refuted')
    """
    if is_by_chance(counts):
        reason = (
            "the same request gave a right answer each time: the recorded one was bad by chance, or of another model"
        )
        return "refuted", reason
    tally = f"{counts.right} of {counts.attempts} answers right"
    if counts.attempts < 2:
        return "not decided", f"{tally}: too few attempts"
    own_noise = (counts.same_right + OWN_WEIGHT * noise) / (counts.same_attempts + OWN_WEIGHT)
    by_noise = compute_tail(counts.right, counts.attempts, own_noise, upper=True)
    by_working = compute_tail(counts.right, counts.attempts, WORKING_SHARE, upper=False)
    if by_noise <= LEVEL and not counts.same_right:
        same = f", and {counts.same_right} of {counts.same_attempts} without the change" if counts.same_attempts else ""
        return ("proven" if expected == "right" else "refuted"), f"{tally}{same}"
    if by_working <= LEVEL:
        return ("proven" if expected == "bad" else "refuted"), f"{tally}: the change does not help"
    return "not decided", f"{tally}: noise may explain it"
