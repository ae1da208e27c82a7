"""Features: what can be said in numbers of how a claim stands to the passages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ragfault.judges.embedded.claims import Held, Said
from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check
from ragfault.judges.features import OPINION
from ragfault.text import NEGATIONS

__all__ = ["NAMES", "PLACE", "STYLE", "Runs", "features", "runs"]

HEDGE = re.compile(
    r"\b(unable to answer|not (?:provide|mention|contain|specif|includ|state|clear|enough|possible)|do(?:es)? not"
    r"|cannot|no (?:information|mention)|based on (?:the|given)|according to|passages?|provided|it is important"
    r"|overall|in conclusion|additionally|please note|unfortunately)\b",
    re.IGNORECASE,
)
FIELDS = {"absent": 1.0, "no": 2.0, "yes": 3.0}
WORDS = """
words kinds total lost_kinds lost lost_total lost_most lost_second exact hard hard_most hard_total soft soft_least
covered covered2 covered3 reverse joint close close3 close_least close3_least hard3 meaning meaning_most meaning3
pairs triples quads run run_share lost_run apart apart_best
numbers numbers_lost numbers_away names names_lost names_away
denies best_denies denial ground_denies absent no no_denied yes opinion hedge quote colon
place place_share last claims asked asked_only clash field nowhere keyed sentences tokens passages best_keyed best_flag
half best_size weight common rare
"""
NAMES = tuple(WORDS.split())
"""The features in order."""
PLACE = {name: number for number, name in enumerate(NAMES)}
STYLE = ("words", "kinds", "place", "place_share", "last", "claims", "hedge", "opinion", "quote", "colon")
"""Those that tell who wrote an answer rather than what it says: its length and its manner."""


class Runs:
    """The runs of words that claims share with the passages, for all claims in one row of words."""

    def __init__(self, said: Said, ground: Ground) -> None:
        number = ground.numbers
        self.sizes: Array = np.array([len(one) for one in said.words], np.int64)
        self.starts: Array = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.owner: Array = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.tokens: Array = np.array([number.get(word, -1) for one in said.words for word in one], np.int64)
        self.hits: dict[int, Array] = {}
        """For each size of run, whether the run that begins at a word is in the passages."""
        code, known = self.tokens, self.tokens >= 0
        for size in (2, 3, 4):
            if len(self.tokens) < size:
                self.hits[size] = np.zeros(0, bool)
                continue
            code = code[:-1] * ground.base + self.tokens[size - 1 :]
            known = known[:-1] & (self.tokens[size - 1 :] >= 0)
            one = self.owner[: len(code)] == self.owner[size - 1 :]
            self.hits[size] = known & one & _among(code, ground.runs(size))

    def share(self, size: int) -> Array:
        """For each claim the share of its runs of a size that are in the passages; -1 where it is shorter."""
        hit = self.hits[size]
        found = np.bincount(self.owner[: len(hit)], hit, len(self.sizes))
        many = self.sizes - size + 1
        return np.where(many > 0, found / np.maximum(many, 1), -1.0)


def _among(values: Array, known: Array) -> Array:
    """Whether each value is among the known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    at = np.searchsorted(known, values)
    hit: Array = known[np.minimum(at, len(known) - 1)] == values
    return hit


def runs(hits: Array) -> Array:
    """For each place of a row of truth values, how long the run of true ones that ends here is.

    >>> runs(np.array([True, True, False, True])).tolist()
    [1, 2, 0, 1]
    """
    place = np.arange(1, len(hits) + 1)
    length: Array = place - np.maximum.accumulate(np.where(hits, 0, place)) if len(hits) else place
    return length


def features(
    said: Said, held: Held, ground: Ground, shared: Runs, query: frozenset[str], seen: Sequence[Check | None]
) -> Array:
    """One row for each claim, in the order of NAMES."""
    columns = [
        *_words(said, held),
        *_places(said, held, ground),
        *_runs(said, held, shared),
        *_kinds(said, held),
        *_signs(said, held, ground),
        *_trace(said, held, ground, query, seen),
        *_rest(said, held, ground),
    ]
    return np.array(columns, float).round(5).T


def _most(values: Array, member: Array) -> tuple[Array, Array]:
    """The greatest and the second value of each claim."""
    ranked = -np.sort(-np.where(member, values, 0.0), axis=1)
    return ranked[:, 0], ranked[:, 1] if ranked.shape[1] > 1 else np.zeros(len(ranked))


def _least(values: Array, member: Array) -> Array:
    least: Array = np.where(member, values, 1.0).min(1)
    return least


def _words(said: Said, held: Held) -> list[Array]:
    """What of a claim is in the passages at all."""
    member, weights = said.member, said.weights
    total = np.maximum(member @ weights, 1e-6)
    gone = weights * ~held.near
    hard = gone * (1 - np.clip(held.soft, 0, 1))
    most, second = _most(gone, member)
    lost, tough = member @ gone, member @ hard
    return [
        np.array([len(one) for one in said.words]), member.sum(1), total, member @ ~held.near.astype(bool) * 1.0,
        lost / total, lost, most, second, 1 - member @ (weights * held.there) / total,
        tough / total, _most(hard, member)[0], tough, member @ (held.soft * weights) / total, _least(held.soft, member),
    ]  # fmt: skip


def _places(said: Said, held: Held, ground: Ground) -> list[Array]:
    """How much of a claim its best sentences say."""
    rows = np.arange(len(said.texts))
    member, order = said.member, held.order
    weighted = member * said.weights
    total = np.maximum(weighted.sum(1), 1e-6)
    best = order[:, 0]
    one, three = held.close[best], held.close[order].max(1)
    far = (1 - np.clip(three, 0, 1)) * weighted
    meaning = (member * said.weights) @ (ground.table.table[held.rows].astype(float))
    meaning /= np.sqrt((meaning**2).sum(1, keepdims=True)) + 1e-9
    near = meaning @ ground.meanings.T
    return [
        held.covered[best, rows], (held.within[order[:, :2]].any(1) * weighted).sum(1) / total,
        (held.within[order].any(1) * weighted).sum(1) / total,
        (held.within[best] * weighted).sum(1) / np.maximum(ground.mass[best], 1e-6), held.joint.max(0),
        (one * weighted).sum(1) / total, (three * weighted).sum(1) / total, _least(one, member), _least(three, member),
        far.max(1), near[rows, best], near.max(1), np.sort(near, axis=1)[:, -3:].mean(1),
    ]  # fmt: skip


def _runs(said: Said, held: Held, shared: Runs) -> list[Array]:
    """How much of a claim stands in the passages word by word, or at least side by side."""
    count = len(said.texts)
    longest = np.zeros(count)
    triple = shared.hits[3]
    np.maximum.at(longest, shared.owner[: len(triple)], runs(triple) * 1.0)
    some = np.zeros(count)
    np.maximum.at(some, shared.owner, (shared.tokens >= 0) * 1.0)
    pair = np.bincount(shared.owner[: len(shared.hits[2])], shared.hits[2], count) > 0
    run = np.where(longest > 0, longest + 2, np.where(pair, 2.0, some))
    lost, apart, away = (np.zeros(count) for _ in range(3))
    for number, one in enumerate(said.words):
        row = [said.place[word] for word in one if word in said.place]
        lost[number] = runs(~held.there[row]).max(initial=0)
        if len(row) > 1:
            left, right = np.array(list(pairwise(row))).T
            both = held.within[:, left] & held.within[:, right]
            apart[number] = 1 - both.any(0).mean()
            away[number] = 1 - both[held.order[number]].any(0).mean()
    return [*(shared.share(size) for size in (2, 3, 4)), run, run / shared.sizes, lost, apart, away]


def _kinds(said: Said, held: Held) -> list[Array]:
    """Numbers and names: how many, how many stand nowhere, how many not in the best sentence."""
    digits = said.member & np.array([kind[0].isdigit() for kind in said.kinds])
    away = ~held.within[held.order[:, 0]]
    return [
        figure.sum(1) for kind in (digits, said.named) for figure in (kind, kind & ~held.near, kind & away)
    ]


def _signs(said: Said, held: Held, ground: Ground) -> list[Array]:
    """Negation, fields of records that say no or nothing, and the manner of a claim."""
    denies = np.array([not NEGATIONS.isdisjoint(one) for one in said.words])
    best = ground.negated[held.order[:, 0]]
    hit = {
        polarity: said.member @ np.array([kind in stems for kind in said.kinds], float)
        for polarity, stems in ground.keys.items()
    }
    texts = said.texts
    return [
        denies, best, denies != best, np.full(len(texts), ground.negated.mean()),
        hit["absent"], hit["no"] * ~denies, hit["no"] * denies, hit["yes"],
        np.array([len(OPINION.findall(text)) for text in texts]),
        np.array([len(HEDGE.findall(text)) for text in texts]),
        np.array([text.count('"') > 1 for text in texts]), np.array([text.rstrip().endswith(":") for text in texts]),
    ]  # fmt: skip


def _trace(
    said: Said, held: Held, ground: Ground, query: frozenset[str], seen: Sequence[Check | None]
) -> list[Array]:
    """The place of a claim in the answer, what the query says of it, the exact checks, and the kind of passages."""
    count = len(said.texts)
    place = np.arange(count)
    asked = np.array([kind in query for kind in said.kinds], bool)
    total = np.maximum(said.member @ said.weights, 1e-6)
    best = held.order[:, 0]
    whole = [len(ground.sizes), len(ground.tokens)]
    flags = np.array([bool(ground.index.sentences[at].polarity) for at in best])
    return [
        place, place / max(1, count - 1), place == count - 1, np.full(count, count),
        said.member @ (said.weights * asked) / total, said.member @ (said.weights * asked * ~held.near) / total,
        np.array([one is not None and one.against is not None for one in seen]),
        np.array([FIELDS[one.opposed[1]] if one and one.opposed else 0.0 for one in seen]),
        np.array([one is not None and one.nowhere is not None for one in seen]),
        np.full(count, ground.keyed.mean()), *(np.full(count, np.log1p(size)) for size in whole),
        np.full(count, len(ground.index.passages)), ground.keyed[best], flags,
    ]  # fmt: skip


def _rest(said: Said, held: Held, ground: Ground) -> list[Array]:
    """How many sentences say half of a claim, how long the best is, and how rare the words are."""
    member, weights = said.member, said.weights
    many = np.maximum(member.sum(1), 1)
    return [
        (held.covered > 0.5).sum(0), ground.sizes[held.order[:, 0]], member @ weights / many,
        member @ (weights < 3) / many, member @ (weights > 7) / many,
    ]  # fmt: skip
