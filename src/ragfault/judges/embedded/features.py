"""Features: what can be said in numbers of how a claim stands to the passages."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragfault.judges.embedded.claims import Held, Said
from ragfault.judges.embedded.joint import Joint
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check
from ragfault.judges.features import OPINION
from ragfault.text import NEGATIONS

__all__ = ["NAMES", "PLACE", "STYLE", "Runs", "features", "runs"]

HEDGE = re.compile(
    r"\b(unable to answer|not (?:provide|mention|contain|specif|includ|state|clear|enough|possible)|do(?:es)? not"
    r"|cannot|no (?:information|mention)|based on (?:the|given)|according to|passages?|provided|it is important"
    r"|overall|in conclusion|additionally|please note|unfortunately)\b"
)
"""What a claim in lower case holds that qualifies it."""
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
Columns = dict[str, Array]
"""By name, one number for each claim."""
STYLE = ("words", "kinds", "place", "place_share", "last", "claims", "hedge", "opinion", "quote", "colon")
"""Those that tell who wrote an answer rather than what it says: its length and its manner."""


class Runs:
    """The runs of words that claims share with the passages, for all claims in one row of words."""

    def __init__(self, said: Said, joint: Joint) -> None:
        self.sizes, self.owner = said.sizes, said.owner
        self.tokens: Array = _numbered(said, joint)
        """[W] The number of each word in its ground, or -1."""
        self.hits: Array = np.zeros((3, len(self.tokens)), bool)
        """For runs of two, three and four words, whether the one that begins at a word is in the passages."""
        code, known = self.tokens, self.tokens >= 0
        for size in range(2, 1 + min(4, len(self.tokens))):
            code = code[:-1] * joint.base + self.tokens[size - 1 :]
            known = known[:-1] & (self.tokens[size - 1 :] >= 0)
            one = self.owner[: len(code)] == self.owner[size - 1 :]
            self.hits[size - 2, : len(code)] = known & one & _among(code, joint.runs(size))


def _numbered(said: Said, joint: Joint) -> Array:
    if len(joint.grounds) == 1:
        number = joint.grounds[0].numbers
        return np.array([number.get(word, -1) for word in said.spoken], np.int64)
    tokens: list[int] = []
    for one, group in zip(said.words, said.group.tolist(), strict=True):
        number, first = joint.grounds[group].numbers, joint.words[group]
        tokens += [first + number[word] if word in number else -1 for word in one]
    return np.array(tokens, np.int64)


def _unit(values: Array) -> Array:
    """Values, with what is below 0 or above 1 at the end of that range."""
    unit: Array = np.minimum(np.maximum(values, 0), 1)
    return unit


def _among(values: Array, known: Array) -> Array:
    """Whether each value is among the known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    at = known.searchsorted(values)
    hit: Array = known.take(at, mode="clip") == values
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
    said: Said, held: Held, joint: Joint, shared: Runs, query: frozenset[str], seen: Sequence[Check | None]
) -> Array:
    """One row for each claim, in the order of NAMES."""
    told = {
        **_words(said, held, joint, query),
        **_places(said, held, joint),
        **_runs(shared),
        **_apart(said, held),
        **_signs(said, held, joint),
        **_checks(seen),
        **_trace(said, held, joint),
    }
    denies = told["denies"]
    told |= {
        "no": told["no"] * ~denies, "no_denied": told["no"] * denies,
        "names": np.add.reduce(said.named, axis=1), "names_lost": np.add.reduce(said.named & ~held.near, axis=1),
        "names_away": np.add.reduce(said.named & ~held.inside[0], axis=1),
    }  # fmt: skip
    table: Array = np.concatenate([told[name] for name in NAMES]).reshape(len(NAMES), -1)
    return table.round(5).T


def _words(said: Said, held: Held, joint: Joint, query: frozenset[str]) -> Columns:
    """What of a claim is in the passages at all: sums over its words of content, and the greatest of them."""
    member, weights, lost = said.member, said.weights, ~held.near
    gone = weights * lost
    hard = gone * (1 - _unit(held.soft))
    digits = said.digits
    asked = weights * np.array([kind in query for kinds in said.kinds for kind in kinds])
    each = {
        "kinds": np.ones(len(weights)), "weight": weights, "lost_kinds": lost, "lost_total": gone,
        "exact": weights * held.there, "hard_total": hard, "soft": held.soft * weights, "numbers": digits,
        "numbers_lost": digits & lost, "asked": asked, "asked_only": asked * lost,
        "common": weights < 3, "rare": weights > 7,
    }  # fmt: skip
    for polarity in ("absent", "no", "yes"):
        keys = [one.keys[polarity] for one in joint.grounds]
        each[polarity] = (
            np.array([kind in stems for stems, kinds in zip(keys, said.kinds, strict=True) for kind in kinds])
            if any(keys)
            else np.zeros(len(weights))
        )
    table = np.concatenate(list(each.values())).reshape(len(each), -1)
    part = member.astype(float)
    told = dict(zip(each, (part @ table.T).T, strict=True))
    total, many = np.maximum(told["weight"], 1e-6), np.maximum(told["kinds"], 1)
    most = np.sort(part * gone, axis=1)
    return told | {
        "words": said.sizes, "total": total, "lost_kinds": told["lost_kinds"] > 0, "lost": told["lost_total"] / total,
        "lost_most": most[:, -1], "lost_second": most[:, -2] if len(weights) > 1 else np.zeros(len(most)),
        "exact": 1 - told["exact"] / total, "hard": told["hard_total"] / total, "soft": told["soft"] / total,
        "hard_most": np.maximum.reduce(part * hard, axis=1),
        "soft_least": np.minimum.reduce(np.where(member, held.soft, 1.0), axis=1),
        "numbers_away": np.add.reduce(member & digits & ~held.inside[0], axis=1),
        "asked": told["asked"] / total, "asked_only": told["asked_only"] / total,
        "weight": told["weight"] / many, "common": (told["common"] > 0) / many, "rare": (told["rare"] > 0) / many,
    }  # fmt: skip


def _places(said: Said, held: Held, joint: Joint) -> Columns:
    """How much of a claim its best sentences say."""
    weighted = said.member * said.weights
    total = np.maximum(np.add.reduce(weighted, axis=1), 1e-6)
    best = held.order[0]
    reached = np.logical_or.accumulate(held.inside)
    one, three = held.close[0], np.maximum.reduce(held.close)
    parts = (reached[0], reached[:2][-1], reached[-1], one, three)
    first, second, third, near, nearer = np.add.reduce(np.stack(parts) * weighted, axis=2)
    least, lesser = (np.minimum.reduce(np.where(said.member, part, 1.0), axis=1) for part in (one, three))
    meaning = weighted @ held.vectors.astype(float)
    meaning /= np.sqrt(np.add.reduce(meaning**2, axis=1, keepdims=True)) + 1e-9
    meant = meaning @ joint.meanings.T
    row = np.arange(len(best))
    nearest = meant[row, best]
    if len(joint.grounds) > 1:
        meant[joint.group != said.group[:, None]] = -np.inf
    ranked = np.sort(meant, axis=1)[:, -3:]
    three_meant = np.add.reduce(np.where(ranked > -np.inf, ranked, 0.0), axis=1)
    three_meant /= np.minimum(3, joint.counts)[said.group]
    return {
        "covered": held.covered[best, row], "covered2": second / total, "covered3": third / total,
        "reverse": first / np.maximum(joint.mass[best], 1e-6), "joint": np.maximum.reduce(held.joint),
        "close": near / total, "close3": nearer / total, "close_least": least, "close3_least": lesser,
        "hard3": np.maximum.reduce((1 - _unit(three)) * weighted, axis=1), "meaning": nearest,
        "meaning_most": ranked[:, -1], "meaning3": three_meant,
        "half": np.add.reduce(held.covered > 0.5), "best_size": joint.sizes[best],
    }  # fmt: skip


def _runs(shared: Runs) -> Columns:
    """How much of a claim stands in the passages word by word; -1 where it is shorter than a run."""
    sizes = shared.sizes
    starts = sizes.cumsum() - sizes
    found, many = np.add.reduceat(shared.hits, starts, axis=1, dtype=float), sizes - [[1], [2], [3]]
    pairs, triples, quads = np.where(many > 0, found / np.maximum(many, 1), -1.0)
    longest = np.maximum.reduceat(runs(shared.hits[1]), starts)
    one = np.logical_or.reduceat(shared.tokens >= 0, starts)
    run = np.where(longest > 0, longest + 2, np.where(found[0] > 0, 2, one))
    return {"pairs": pairs, "triples": triples, "quads": quads, "run": run, "run_share": run / sizes}


def _apart(said: Said, held: Held) -> Columns:
    """Whether the words of a claim that stand side by side do so in a sentence, too."""
    kept = said.kind >= 0
    kind, owner = said.kind[kept], said.owner[kept]
    count = len(said.texts)
    lost = np.zeros(len(kind) + count, bool)  # with a gap after each claim
    lost[np.arange(len(kind)) + owner] = ~held.there[kind]
    sizes = np.bincount(owner, minlength=count) + 1
    beside = owner[1:] == owner[:-1]
    left, right, owner = kind[:-1][beside], kind[1:][beside], owner[1:][beside]
    anywhere = np.logical_or.reduce(held.within[:, left] & held.within[:, right])
    inside, at = held.inside.reshape(len(held.order), -1), owner * len(said.kin)
    best = np.logical_or.reduce(inside.take(at + left, axis=1) & inside.take(at + right, axis=1))
    pairs = sizes - 2
    share = np.array([np.bincount(owner, hits, count) for hits in (anywhere, best)]) / np.maximum(pairs, 1)
    apart, away = np.where(pairs > 0, 1 - share, 0.0)
    return {
        "lost_run": np.maximum.reduceat(runs(lost), sizes.cumsum() - sizes), "apart": apart, "apart_best": away
    }  # fmt: skip


def _signs(said: Said, held: Held, joint: Joint) -> Columns:
    """Negation, and the manner of a claim."""
    denies = np.array([not NEGATIONS.isdisjoint(one) for one in said.words])
    best = joint.negated[held.order[0]]
    low = [text.lower() for text in said.texts]
    return {
        "denies": denies, "best_denies": best, "denial": denies != best,
        "opinion": np.array([len(OPINION.findall(text)) for text in low]),
        "hedge": np.array([len(HEDGE.findall(text)) for text in low]),
        "quote": np.array([text.count('"') > 1 for text in low]),
        "colon": np.array([text.rstrip().endswith(":") for text in low]),
    }  # fmt: skip


def _checks(seen: Sequence[Check | None]) -> Columns:
    """What the exact checks say."""
    return {
        "clash": np.array([one is not None and one.against is not None for one in seen]),
        "field": np.array([FIELDS[one.opposed[1]] if one and one.opposed else 0.0 for one in seen]),
        "nowhere": np.array([one is not None and one.nowhere is not None for one in seen]),
    }


def _trace(said: Said, held: Held, joint: Joint) -> Columns:
    """The place of a claim in its answer, and the kind of passages."""
    best, group, grounds = held.order[0], said.group, joint.grounds
    counts = np.bincount(group, minlength=len(grounds))
    place = np.arange(len(group)) - (counts.cumsum() - counts)[group]
    claims = counts[group]
    sentences = [one.index.sentences for one in grounds]
    inner = zip(group.tolist(), (best - joint.firsts[group]).tolist(), strict=True)
    whole = np.array([
        [one.denied for one in grounds], [one.records for one in grounds], [len(one.tokens) for one in grounds],
        [len(one.index.passages) for one in grounds],
    ], float)[:, group]  # fmt: skip
    return {
        "claims": claims, "ground_denies": whole[0], "keyed": whole[1], "tokens": np.log1p(whole[2]),
        "sentences": np.log1p(joint.counts[group]), "passages": whole[3],
        "place": place, "place_share": place / np.maximum(1, claims - 1), "last": place == claims - 1,
        "best_keyed": joint.keyed[best],
        "best_flag": np.array([bool(sentences[at][place].polarity) for at, place in inner]),
    }  # fmt: skip
