"""Watch over the inputs of a certificate: a sequential test of traffic against the calibration.

Each input of a released answer is ranked among those of the calibration and of all traffic before it. While traffic is
exchangeable with the calibration these ranks are independent and uniform (Vovk, Gammerman & Shafer 2005), whatever the
distribution. Bets against uniformity that begin at every moment are summed, with weights that sum to 1: a martingale,
so that the chance that its value ever exceeds 1 / level is at most the level (Ville 1939). The inputs share the level.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Literal, get_args
from zlib import crc32

import numpy as np
from msgspec import Struct

from ragfault.model.errors import UsageError
from ragfault.model.records import Trace
from ragfault.stats.bootstrap import FloatArray
from ragfault.text.normalization import split_content_words

Ranking = Literal["risk", "words"]
RISK_SLOPE, WORD_SLOPE, WORD_INTERCEPT = 0.62, 0.68, -2.16
"""Logistic regression of bad answers (RAGTruth, answers to questions): log-odds of the risk, logarithm of 1 + words."""
NOTICE_LEVEL = 0.05
"""Largest chance that a promise is ever withdrawn though traffic still looks like the calibration."""
RISK_ROUNDING = 1e-6
MAX_RANKED = 20_000
"""Values of an input that are kept to rank the next one among; of longer traffic the first ones."""
RAMPS = np.array((0.35, 0.6, 1.6, 2.5, 5.0, 10.0))
"""Exponents of the bets on one side; below 1 on values near that end, above 1 away from the other."""
START_NORM = 2.1097428
"""Sum of 1 / (k · ln² k) over k ≥ 2."""


class TrafficShift(Struct, frozen=True):
    """Input that no longer looks like the calibration."""

    input: str
    released: int
    """Released answers until then, this one included."""
    evidence: float
    """Value of the martingale of this input; at most 1 on average while nothing has changed."""


def check_risk(risk: float) -> None:
    """Raise UsageError for a risk that is no probability."""
    if not 0 <= risk <= 1:
        raise UsageError(
            f"a risk is a probability from 0 to 1, got {risk:g}. Turn log-odds into 1 / (1 + exp(-odds)); bring "
            "other scores into that range before you certify."
        )


def rank_answer(trace: Trace, risk: float, ranking: Ranking = "risk") -> float:
    """Return the number by which answers are released: the judge's risk, or a risk that counts unsupported words, too.

    Unsupported words are the content words of the answer that are neither in the chunks nor in the query. Both numbers
    are between 0 and 1. Raises UsageError for a risk that is not (log-odds, say), and for another ranking.

    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at ten.")
    >>> plain, added = (
    ...     Trace(id="1", query="When?", chunks=(chunk,), answer=text)
    ...     for text in ("It opens at ten.", "It opens at ten, says captain Ahab.")
    ... )
    >>> rank_answer(plain, 0.1), round(rank_answer(plain, 0.1, "words"), 3), round(rank_answer(added, 0.1, "words"), 3)
    (0.1, 0.029, 0.07)
    """
    check_risk(risk)
    if ranking not in get_args(Ranking):
        raise UsageError(f'there is no ranking "{ranking}". Choose one of: {", ".join(get_args(Ranking))}.')
    if ranking == "risk":
        return risk
    known_words = set(split_content_words(" ".join((trace.query, *(chunk.text for chunk in trace.chunks or ())))))
    unsupported = sum(word not in known_words for word in split_content_words(trace.answer or ""))
    inside = min(max(risk, RISK_ROUNDING), 1 - RISK_ROUNDING)
    odds = RISK_SLOPE * math.log(inside / (1 - inside)) + WORD_SLOPE * math.log1p(unsupported) + WORD_INTERCEPT
    return 1 / (1 + math.exp(-odds))


def describe_inputs(trace: Trace, claims: int, risk: float) -> dict[str, float]:
    """Describe an answer of so many claims by the inputs that a certificate watches.

    A route is a number that its name gives, the same in each process; -1: the trace has none.

    >>> inputs = describe_inputs(Trace(id="1", query="When?", answer="At ten."), 1, 0.1)
    >>> inputs["answer_words"], inputs["claims"], inputs["risk"]
    (2.0, 1.0, 0.1)
    """
    chunks = trace.chunks or ()
    return {
        "risk": float(risk),
        "answer_words": float(len((trace.answer or "").split())),
        "claims": float(claims),
        "chunks": float(len(chunks)),
        "chunk_words": float(sum(len(chunk.text.split()) for chunk in chunks)),
        "query_words": float(len(trace.query.split())),
        "route": -1.0 if trace.route is None else float(crc32(trace.route.encode())),
    }


class TrafficWatcher:
    """Sequential test of the inputs of released answers; `observe` takes one answer at a time.

    A watcher starts anew with each process: its level holds for each start.

    >>> watcher = TrafficWatcher({"claims": [1.0, 2.0, 3.0, 4.0] * 50})
    >>> any(watcher.observe({"claims": float(1 + i % 4)}) for i in range(200))
    False
    >>> next(i for i in range(200) if watcher.observe({"claims": 9.0})) < 60
    True
    """

    def __init__(self, calibration: Mapping[str, Sequence[float]], *, level: float = NOTICE_LEVEL, seed: int = 0):
        self.shift: TrafficShift | None = None
        self.released = 0
        self._ranked = {name: sorted(values) for name, values in calibration.items()}
        self._bets = np.zeros((len(calibration), 4 * len(RAMPS) + 3))
        self._limit = len(self._ranked) / level
        self._rng = np.random.default_rng(seed)

    def observe(self, inputs: Mapping[str, float]) -> TrafficShift | None:
        """Observe a released answer; return the shift once there is evidence for it, and from then on."""
        if self.shift is not None:
            return self.shift
        weight = 1 / (START_NORM * (self.released + 2) * math.log(self.released + 2) ** 2)
        self.released += 1
        ranks = [self._rank(ranked, inputs[name]) for name, ranked in self._ranked.items()]
        self._bets = (self._bets + weight) * _bet(np.array(ranks))
        evidence = self._bets.mean(axis=1)
        for name, value in zip(self._ranked, evidence.tolist(), strict=True):
            if value >= self._limit and self.shift is None:
                self.shift = TrafficShift(name, self.released, value)
        return self.shift

    def _rank(self, ranked: list[float], value: float) -> float:
        """Return the share of all values that are below this one, equal ones in random order; add it to them."""
        below, equal = bisect_left(ranked, value), bisect_right(ranked, value)
        rank = below + float(self._rng.random()) * (equal - below + 1)
        size = len(ranked) + 1
        if len(ranked) < MAX_RANKED:
            insort(ranked, value)
        return min(max(rank / size, 1e-9), 1 - 1e-9)


def _bet(ranks: FloatArray) -> FloatArray:
    """Return the densities of all bets [ranks x bets]: powers at either end, alone or with a flat one, both, middle."""
    p = ranks[:, None]
    sides = np.concatenate([RAMPS * p ** (RAMPS - 1), RAMPS * (1 - p) ** (RAMPS - 1)], axis=1)
    density = 1 / (math.pi * np.sqrt(p * (1 - p)))
    middle = 6 * p * (1 - p)
    return np.concatenate([sides, (1 + sides) / 2, density, middle, middle**2 * 5 / 6], axis=1)
