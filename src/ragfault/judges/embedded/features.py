"""Numeric features of a claim against the passages."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragfault.judges.embedded.claim_arrays import ClaimMatches, ClaimWords
from ragfault.judges.embedded.passage_arrays import PassageBatch
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.lexical.entailment import ClaimCheck
from ragfault.judges.lexical.features import OPINION_WORDS
from ragfault.text import NEGATIONS

HEDGING_WORDS = re.compile(
    r"\b(unable to answer|not (?:provide|mention|contain|specif|includ|state|clear|enough|possible)|do(?:es)? not"
    r"|cannot|no (?:information|mention)|based on (?:the|given)|according to|passages?|provided|it is important"
    r"|overall|in conclusion|additionally|please note|unfortunately)\b"
)
"""What a claim in lower case holds that qualifies it."""
FIELD_CODES = {"absent": 1.0, "no": 2.0, "yes": 3.0}
FEATURE_LIST = """
words kinds total lost_kinds lost lost_total lost_most lost_second exact hard hard_most hard_total soft soft_least
covered covered2 covered3 reverse joint close close3 close_least close3_least hard3 meaning meaning_most meaning3
pairs triples quads run run_share lost_run apart apart_best
numbers numbers_lost numbers_away names names_lost names_away
denies best_denies denial ground_denies absent no no_denied yes opinion hedge quote colon
place place_share last claims asked asked_only clash field nowhere keyed sentences tokens passages best_keyed best_flag
half best_size weight common rare
"""
FEATURE_NAMES = tuple(FEATURE_LIST.split())
"""The features in order."""
FEATURE_COLUMNS = {name: number for number, name in enumerate(FEATURE_NAMES)}
ColumnsByName = dict[str, Array]
"""By name, one number for each claim."""
STYLE_FEATURES = (
    "words",
    "kinds",
    "place",
    "place_share",
    "last",
    "claims",
    "hedge",
    "opinion",
    "quote",
    "colon",
)
"""Those that tell who wrote an answer rather than what it says: its length and its manner."""


class NgramMatches:
    """The runs of words that claims share with the passages, for all claims in one row of words."""

    def __init__(self, claims: ClaimWords, batch: PassageBatch) -> None:
        self.word_counts, self.claim_numbers = claims.word_counts, claims.claim_numbers
        self.tokens: Array = _number_words(claims, batch)
        """[W] The number of each word in its ground, or -1."""
        self.matched: Array = np.zeros((3, len(self.tokens)), bool)
        """For runs of two, three and four words, whether the one that begins at a word is in the passages."""
        code, known = self.tokens, self.tokens >= 0
        for size in range(2, 1 + min(4, len(self.tokens))):
            code = code[:-1] * batch.radix + self.tokens[size - 1 :]
            known = known[:-1] & (self.tokens[size - 1 :] >= 0)
            one = self.claim_numbers[: len(code)] == self.claim_numbers[size - 1 :]
            self.matched[size - 2, : len(code)] = known & one & _mark_members(code, batch.get_ngrams(size))


def _number_words(claims: ClaimWords, batch: PassageBatch) -> Array:
    if len(batch.groups) == 1:
        number = batch.groups[0].stem_numbers
        return np.array([number.get(word, -1) for word in claims.flat_words], np.int64)
    tokens: list[int] = []
    for one, group in zip(claims.words, claims.group_numbers.tolist(), strict=True):
        number, first = batch.groups[group].stem_numbers, batch.word_offsets[group]
        tokens += [first + number[word] if word in number else -1 for word in one]
    return np.array(tokens, np.int64)


def _clip_unit(values: Array) -> Array:
    """Values, with what is below 0 or above 1 at the end of that range."""
    unit: Array = np.minimum(np.maximum(values, 0), 1)
    return unit


def _mark_members(values: Array, known: Array) -> Array:
    """Whether each value is among the known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    at = known.searchsorted(values)
    hit: Array = known.take(at, mode="clip") == values
    return hit


def measure_runs(hits: Array) -> Array:
    """For each place of a row of truth values, how long the run of true ones that ends here is.

    >>> measure_runs(np.array([True, True, False, True])).tolist()
    [1, 2, 0, 1]
    """
    place = np.arange(1, len(hits) + 1)
    length: Array = place - np.maximum.accumulate(np.where(hits, 0, place)) if len(hits) else place
    return length


def compute_features(
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
    query: frozenset[str],
    checks: Sequence[ClaimCheck | None],
) -> Array:
    """One row for each claim, in the order of NAMES."""
    told = {
        **_compute_word_columns(claims, matches, batch, query),
        **_compute_sentence_columns(claims, matches, batch),
        **_compute_ngram_columns(ngrams),
        **_compute_adjacency_columns(claims, matches),
        **_compute_style_columns(claims, matches, batch),
        **_compute_check_columns(checks),
        **_compute_trace_columns(claims, matches, batch),
    }
    denies = told["denies"]
    told |= {
        "no": told["no"] * ~denies, "no_denied": told["no"] * denies,
        "names": np.add.reduce(claims.is_name, axis=1), "names_lost": np.add.reduce(claims.is_name & ~matches.is_near, axis=1),
        "names_away": np.add.reduce(claims.is_name & ~matches.in_best[0], axis=1),
    }  # fmt: skip
    table: Array = np.concatenate([told[name] for name in FEATURE_NAMES]).reshape(len(FEATURE_NAMES), -1)
    return table.round(5).T


def _compute_word_columns(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, query: frozenset[str]
) -> ColumnsByName:
    """What of a claim is in the passages at all: sums over its words of content, and the greatest of them."""
    member, weights, lost = claims.has_stem, claims.stem_weights, ~matches.is_near
    gone = weights * lost
    hard = gone * (1 - _clip_unit(matches.best_similarity))
    digits = claims.is_number
    asked = weights * np.array([kind in query for kinds in claims.stems for kind in kinds])
    each = {
        "kinds": np.ones(len(weights)), "weight": weights, "lost_kinds": lost, "lost_total": gone,
        "exact": weights * matches.is_present, "hard_total": hard, "soft": matches.best_similarity * weights, "numbers": digits,
        "numbers_lost": digits & lost, "asked": asked, "asked_only": asked * lost,
        "common": weights < 3, "rare": weights > 7,
    }  # fmt: skip
    for polarity in ("absent", "no", "yes"):
        keys = [one.record_keys[polarity] for one in batch.groups]
        each[polarity] = (
            np.array(
                [kind in stems for stems, kinds in zip(keys, claims.stems, strict=True) for kind in kinds]
            )
            if any(keys)
            else np.zeros(len(weights))
        )
    table = np.concatenate(list(each.values())).reshape(len(each), -1)
    part = member.astype(float)
    told = dict(zip(each, (part @ table.T).T, strict=True))
    total, many = np.maximum(told["weight"], 1e-6), np.maximum(told["kinds"], 1)
    most = np.sort(part * gone, axis=1)
    return told | {
        "words": claims.word_counts, "total": total, "lost_kinds": told["lost_kinds"] > 0, "lost": told["lost_total"] / total,
        "lost_most": most[:, -1], "lost_second": most[:, -2] if len(weights) > 1 else np.zeros(len(most)),
        "exact": 1 - told["exact"] / total, "hard": told["hard_total"] / total, "soft": told["soft"] / total,
        "hard_most": np.maximum.reduce(part * hard, axis=1),
        "soft_least": np.minimum.reduce(np.where(member, matches.best_similarity, 1.0), axis=1),
        "numbers_away": np.add.reduce(member & digits & ~matches.in_best[0], axis=1),
        "asked": told["asked"] / total, "asked_only": told["asked_only"] / total,
        "weight": told["weight"] / many, "common": (told["common"] > 0) / many, "rare": (told["rare"] > 0) / many,
    }  # fmt: skip


def _compute_sentence_columns(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch
) -> ColumnsByName:
    """How much of a claim its best sentences say."""
    weighted = claims.has_stem * claims.stem_weights
    total = np.maximum(np.add.reduce(weighted, axis=1), 1e-6)
    best = matches.best_sentences[0]
    reached = np.logical_or.accumulate(matches.in_best)
    one, three = matches.best_closeness[0], np.maximum.reduce(matches.best_closeness)
    parts = (reached[0], reached[:2][-1], reached[-1], one, three)
    first, second, third, near, nearer = np.add.reduce(np.stack(parts) * weighted, axis=2)
    least, lesser = (np.minimum.reduce(np.where(claims.has_stem, part, 1.0), axis=1) for part in (one, three))
    meaning = weighted @ matches.vectors.astype(float)
    meaning /= np.sqrt(np.add.reduce(meaning**2, axis=1, keepdims=True)) + 1e-9
    meant = meaning @ batch.sentence_vectors.T
    row = np.arange(len(best))
    nearest = meant[row, best]
    if len(batch.groups) > 1:
        meant[batch.group_numbers != claims.group_numbers[:, None]] = -np.inf
    ranked = np.sort(meant, axis=1)[:, -3:]
    three_meant = np.add.reduce(np.where(ranked > -np.inf, ranked, 0.0), axis=1)
    three_meant /= np.minimum(3, batch.sentence_counts)[claims.group_numbers]
    return {
        "covered": matches.coverage[best, row], "covered2": second / total, "covered3": third / total,
        "reverse": first / np.maximum(batch.sentence_weights[best], 1e-6), "joint": np.maximum.reduce(matches.jaccard),
        "close": near / total, "close3": nearer / total, "close_least": least, "close3_least": lesser,
        "hard3": np.maximum.reduce((1 - _clip_unit(three)) * weighted, axis=1), "meaning": nearest,
        "meaning_most": ranked[:, -1], "meaning3": three_meant,
        "half": np.add.reduce(matches.coverage > 0.5), "best_size": batch.sizes[best],
    }  # fmt: skip


def _compute_ngram_columns(ngrams: NgramMatches) -> ColumnsByName:
    """How much of a claim stands in the passages word by word; -1 where it is shorter than a run."""
    sizes = ngrams.word_counts
    starts = sizes.cumsum() - sizes
    found, many = np.add.reduceat(ngrams.matched, starts, axis=1, dtype=float), sizes - [[1], [2], [3]]
    pairs, triples, quads = np.where(many > 0, found / np.maximum(many, 1), -1.0)
    longest = np.maximum.reduceat(measure_runs(ngrams.matched[1]), starts)
    one = np.logical_or.reduceat(ngrams.tokens >= 0, starts)
    run = np.where(longest > 0, longest + 2, np.where(found[0] > 0, 2, one))
    return {"pairs": pairs, "triples": triples, "quads": quads, "run": run, "run_share": run / sizes}


def _compute_adjacency_columns(claims: ClaimWords, matches: ClaimMatches) -> ColumnsByName:
    """Whether the words of a claim that stand side by side do so in a sentence, too."""
    kept = claims.stem_numbers >= 0
    kind, owner = claims.stem_numbers[kept], claims.claim_numbers[kept]
    count = len(claims.texts)
    lost = np.zeros(len(kind) + count, bool)  # with a gap after each claim
    lost[np.arange(len(kind)) + owner] = ~matches.is_present[kind]
    sizes = np.bincount(owner, minlength=count) + 1
    beside = owner[1:] == owner[:-1]
    left, right, owner = kind[:-1][beside], kind[1:][beside], owner[1:][beside]
    anywhere = np.logical_or.reduce(matches.in_sentence[:, left] & matches.in_sentence[:, right])
    inside, at = matches.in_best.reshape(len(matches.best_sentences), -1), owner * len(claims.stem_groups)
    best = np.logical_or.reduce(inside.take(at + left, axis=1) & inside.take(at + right, axis=1))
    pairs = sizes - 2
    share = np.array([np.bincount(owner, hits, count) for hits in (anywhere, best)]) / np.maximum(pairs, 1)
    apart, away = np.where(pairs > 0, 1 - share, 0.0)
    return {
        "lost_run": np.maximum.reduceat(measure_runs(lost), sizes.cumsum() - sizes), "apart": apart, "apart_best": away
    }  # fmt: skip


def _compute_style_columns(claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch) -> ColumnsByName:
    """Negation, and the manner of a claim."""
    denies = np.array([not NEGATIONS.isdisjoint(one) for one in claims.words])
    best = batch.negated[matches.best_sentences[0]]
    low = [text.lower() for text in claims.texts]
    return {
        "denies": denies, "best_denies": best, "denial": denies != best,
        "opinion": np.array([len(OPINION_WORDS.findall(text)) for text in low]),
        "hedge": np.array([len(HEDGING_WORDS.findall(text)) for text in low]),
        "quote": np.array([text.count('"') > 1 for text in low]),
        "colon": np.array([text.rstrip().endswith(":") for text in low]),
    }  # fmt: skip


def _compute_check_columns(checks: Sequence[ClaimCheck | None]) -> ColumnsByName:
    """What the exact checks say."""
    return {
        "clash": np.array([one is not None and one.contradiction is not None for one in checks]),
        "field": np.array(
            [FIELD_CODES[one.field_conflict[1]] if one and one.field_conflict else 0.0 for one in checks]
        ),
        "nowhere": np.array([one is not None and one.missing_name is not None for one in checks]),
    }


def _compute_trace_columns(
    claim_words: ClaimWords, matches: ClaimMatches, batch: PassageBatch
) -> ColumnsByName:
    """The place of a claim in its answer, and the kind of passages."""
    best, group, grounds = matches.best_sentences[0], claim_words.group_numbers, batch.groups
    counts = np.bincount(group, minlength=len(grounds))
    place = np.arange(len(group)) - (counts.cumsum() - counts)[group]
    claims = counts[group]
    sentences = [one.index.sentences for one in grounds]
    inner = zip(group.tolist(), (best - batch.first_sentences[group]).tolist(), strict=True)
    whole = np.array([
        [one.negated_share for one in grounds], [one.record_share for one in grounds], [len(one.tokens) for one in grounds],
        [len(one.index.passages) for one in grounds],
    ], float)[:, group]  # fmt: skip
    return {
        "claims": claims, "ground_denies": whole[0], "keyed": whole[1], "tokens": np.log1p(whole[2]),
        "sentences": np.log1p(batch.sentence_counts[group]), "passages": whole[3],
        "place": place, "place_share": place / np.maximum(1, claims - 1), "last": place == claims - 1,
        "best_keyed": batch.is_field[best],
        "best_flag": np.array([bool(sentences[at][place].polarity) for at, place in inner]),
    }  # fmt: skip
