"""Numeric features of a claim against the passages."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragfault.judges.embedded.arrays import ClaimMatches, ClaimWords, PassageBatch
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.lexical.entailment import ClaimCheck
from ragfault.judges.lexical.features import OPINION_WORDS
from ragfault.text.normalization import NEGATIONS

HEDGING_WORDS = re.compile(
    r"\b(unable to answer|not (?:provide|mention|contain|specif|includ|state|clear|enough|possible)|do(?:es)? not"
    r"|cannot|no (?:information|mention)|based on (?:the|given)|according to|passages?|provided|it is important"
    r"|overall|in conclusion|additionally|please note|unfortunately)\b"
)
"""Phrases in lower case with which a claim hedges."""
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
"""Feature → one number for each claim."""


class NgramMatches:
    """The n-grams that claims share with the passages, for the words of all claims in order."""

    def __init__(self, claims: ClaimWords, batch: PassageBatch) -> None:
        self.word_counts, self.claim_numbers = claims.word_counts, claims.claim_numbers
        self.tokens: Array = _number_words(claims, batch)
        """[W] The number of each word in its group, or -1."""
        self.matched: Array = np.zeros((3, len(self.tokens)), bool)
        """[3 × W] Whether the passages have the n-gram of two, three and four words that begins at a word."""
        code, is_known = self.tokens, self.tokens >= 0
        for size in range(2, 1 + min(4, len(self.tokens))):
            code = code[:-1] * batch.radix + self.tokens[size - 1 :]
            is_known = is_known[:-1] & (self.tokens[size - 1 :] >= 0)
            is_one_claim = self.claim_numbers[: len(code)] == self.claim_numbers[size - 1 :]
            self.matched[size - 2, : len(code)] = is_known & is_one_claim & _mark_members(code, batch.get_ngrams(size))
        sizes = claims.word_counts
        self.starts: Array = sizes.cumsum() - sizes
        """[N] The first word of each claim."""
        counts = sizes - [[1], [2], [3]]
        match_counts: Array = np.add.reduceat(self.matched, self.starts, axis=1, dtype=float)
        self.match_counts = match_counts
        """[3 × N] The number of n-grams of two, three and four words that claim and passages share."""
        self.shares: Array = np.where(counts > 0, match_counts / np.maximum(counts, 1), -1.0)
        """[3 × N] The same as a share of the claim's n-grams; -1 for a claim without any."""


def _number_words(claims: ClaimWords, batch: PassageBatch) -> Array:
    if len(batch.groups) == 1:
        numbers = batch.groups[0].stem_numbers
        return np.array([numbers.get(word, -1) for word in claims.flat_words], np.int64)
    tokens: list[int] = []
    for words, group in zip(claims.words, claims.group_numbers.tolist(), strict=True):
        numbers, offset = batch.groups[group].stem_numbers, batch.word_offsets[group]
        tokens += [offset + numbers[word] if word in numbers else -1 for word in words]
    return np.array(tokens, np.int64)


def _clip_unit(values: Array) -> Array:
    unit: Array = np.minimum(np.maximum(values, 0), 1)
    return unit


def _mark_members(values: Array, members: Array) -> Array:
    """Return which values are among the known ones, which are sorted."""
    if not len(members):
        return np.zeros(len(values), bool)
    positions = members.searchsorted(values)
    is_member: Array = members.take(positions, mode="clip") == values
    return is_member


def measure_runs(hits: Array) -> Array:
    """Return, for each position of a boolean row, the length of the run of true values that ends there.

    >>> measure_runs(np.array([True, True, False, True])).tolist()
    [1, 2, 0, 1]
    """
    position = np.arange(1, len(hits) + 1)
    length: Array = position - np.maximum.accumulate(np.where(hits, 0, position)) if len(hits) else position
    return length


def compute_features(
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
    query: frozenset[str],
    checks: Sequence[ClaimCheck | None],
) -> Array:
    """Return one row of features for each claim, in the order of `FEATURE_NAMES`."""
    columns = {
        **_compute_word_columns(claims, matches, batch, query),
        **_compute_sentence_columns(claims, matches, batch),
        **_compute_ngram_columns(ngrams),
        **_compute_adjacency_columns(claims, matches),
        **_compute_style_columns(claims, matches, batch),
        **_compute_check_columns(checks),
        **_compute_trace_columns(claims, matches, batch),
    }
    denies = columns["denies"]
    columns |= {
        "no": columns["no"] * ~denies,
        "no_denied": columns["no"] * denies,
        "names": np.add.reduce(claims.is_name, axis=1),
        "names_lost": np.add.reduce(claims.is_name & ~matches.is_near, axis=1),
        "names_away": np.add.reduce(claims.is_name & ~matches.in_best[0], axis=1),
    }
    table: Array = np.concatenate([columns[name] for name in FEATURE_NAMES]).reshape(len(FEATURE_NAMES), -1)
    return table.round(5).T


def _compute_word_columns(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, query: frozenset[str]
) -> ColumnsByName:
    """Compute the features of a claim's words in all passages: sums over its content words, and maxima."""
    member, weights, is_lost = claims.has_stem, claims.stem_weights, ~matches.is_near
    lost_weights = weights * is_lost
    hard = lost_weights * (1 - _clip_unit(matches.best_similarity))
    digits = claims.is_number
    query_weight = weights * np.array([stem in query for stems in claims.stems for stem in stems])
    word_values = {
        "kinds": np.ones(len(weights)),
        "weight": weights,
        "lost_kinds": is_lost,
        "lost_total": lost_weights,
        "exact": weights * matches.is_present,
        "hard_total": hard,
        "soft": matches.best_similarity * weights,
        "numbers": digits,
        "numbers_lost": digits & is_lost,
        "asked": query_weight,
        "asked_only": query_weight * is_lost,
        "common": weights < 3,
        "rare": weights > 7,
    }
    for polarity in ("absent", "no", "yes"):
        keys = [group.record_keys[polarity] for group in batch.groups]
        word_values[polarity] = (
            np.array(
                [stem in group_keys for group_keys, stems in zip(keys, claims.stems, strict=True) for stem in stems]
            )
            if any(keys)
            else np.zeros(len(weights))
        )
    table = np.concatenate(list(word_values.values())).reshape(len(word_values), -1)
    claim_words = member.astype(float)
    columns = dict(zip(word_values, (claim_words @ table.T).T, strict=True))
    total, stem_counts = np.maximum(columns["weight"], 1e-6), np.maximum(columns["kinds"], 1)
    ranked = np.sort(claim_words * lost_weights, axis=1)
    return columns | {
        "words": claims.word_counts,
        "total": total,
        "lost_kinds": columns["lost_kinds"] > 0,
        "lost": columns["lost_total"] / total,
        "lost_most": ranked[:, -1],
        "lost_second": ranked[:, -2] if len(weights) > 1 else np.zeros(len(ranked)),
        "exact": 1 - columns["exact"] / total,
        "hard": columns["hard_total"] / total,
        "soft": columns["soft"] / total,
        "hard_most": np.maximum.reduce(claim_words * hard, axis=1),
        "soft_least": np.minimum.reduce(np.where(member, matches.best_similarity, 1.0), axis=1),
        "numbers_away": np.add.reduce(member & digits & ~matches.in_best[0], axis=1),
        "asked": columns["asked"] / total,
        "asked_only": columns["asked_only"] / total,
        "weight": columns["weight"] / stem_counts,
        "common": (columns["common"] > 0) / stem_counts,
        "rare": (columns["rare"] > 0) / stem_counts,
    }


def _compute_sentence_columns(claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch) -> ColumnsByName:
    weighted = claims.has_stem * claims.stem_weights
    total = np.maximum(np.add.reduce(weighted, axis=1), 1e-6)
    best = matches.best_sentences[0]
    reached = np.logical_or.accumulate(matches.in_best)
    best_closeness, top_closeness = matches.best_closeness[0], np.maximum.reduce(matches.best_closeness)
    parts = (reached[0], reached[:2][-1], reached[-1], best_closeness, top_closeness)
    first, second, third, nearest, nearer = np.add.reduce(np.stack(parts) * weighted, axis=2)
    least, lesser = (
        np.minimum.reduce(np.where(claims.has_stem, part, 1.0), axis=1) for part in (best_closeness, top_closeness)
    )
    claim_vectors = weighted @ matches.vectors.astype(float)
    claim_vectors /= np.sqrt(np.add.reduce(claim_vectors**2, axis=1, keepdims=True)) + 1e-9
    similarities = claim_vectors @ batch.sentence_vectors.T
    row = np.arange(len(best))
    best_similarity = similarities[row, best]
    if len(batch.groups) > 1:
        similarities[batch.group_numbers != claims.group_numbers[:, None]] = -np.inf
    ranked = np.sort(similarities, axis=1)[:, -3:]
    top_mean = np.add.reduce(np.where(ranked > -np.inf, ranked, 0.0), axis=1)
    top_mean /= np.minimum(3, batch.sentence_counts)[claims.group_numbers]
    return {
        "covered": matches.coverage[best, row],
        "covered2": second / total,
        "covered3": third / total,
        "reverse": first / np.maximum(batch.sentence_weights[best], 1e-6),
        "joint": np.maximum.reduce(matches.jaccard),
        "close": nearest / total,
        "close3": nearer / total,
        "close_least": least,
        "close3_least": lesser,
        "hard3": np.maximum.reduce((1 - _clip_unit(top_closeness)) * weighted, axis=1),
        "meaning": best_similarity,
        "meaning_most": ranked[:, -1],
        "meaning3": top_mean,
        "half": np.add.reduce(matches.coverage > 0.5),
        "best_size": batch.sizes[best],
    }


def _compute_ngram_columns(ngrams: NgramMatches) -> ColumnsByName:
    """Compute the share of a claim's n-grams in the passages, and its longest run of words there."""
    pairs, triples, quads = ngrams.shares
    longest = np.maximum.reduceat(measure_runs(ngrams.matched[1]), ngrams.starts)
    has_word = np.logical_or.reduceat(ngrams.tokens >= 0, ngrams.starts)
    run = np.where(longest > 0, longest + 2, np.where(ngrams.match_counts[0] > 0, 2, has_word))
    return {"pairs": pairs, "triples": triples, "quads": quads, "run": run, "run_share": run / ngrams.word_counts}


def _compute_adjacency_columns(claims: ClaimWords, matches: ClaimMatches) -> ColumnsByName:
    """Compute the share of neighbouring words of a claim that are in no common sentence."""
    has_content = claims.stem_numbers >= 0
    stems, owners = claims.stem_numbers[has_content], claims.claim_numbers[has_content]
    count = len(claims.texts)
    # with a gap after each claim
    is_lost = np.zeros(len(stems) + count, bool)
    is_lost[np.arange(len(stems)) + owners] = ~matches.is_present[stems]
    sizes = np.bincount(owners, minlength=count) + 1
    is_pair = owners[1:] == owners[:-1]
    left, right, owners = stems[:-1][is_pair], stems[1:][is_pair], owners[1:][is_pair]
    anywhere = np.logical_or.reduce(matches.in_sentence[:, left] & matches.in_sentence[:, right])
    inside, offset = (matches.in_best.reshape(len(matches.best_sentences), -1), owners * len(claims.stem_groups))
    in_best = np.logical_or.reduce(inside.take(offset + left, axis=1) & inside.take(offset + right, axis=1))
    pairs = sizes - 2
    share = np.array([np.bincount(owners, pair_hits, count) for pair_hits in (anywhere, in_best)]) / np.maximum(
        pairs, 1
    )
    apart, apart_best = np.where(pairs > 0, 1 - share, 0.0)
    return {
        "lost_run": np.maximum.reduceat(measure_runs(is_lost), sizes.cumsum() - sizes),
        "apart": apart,
        "apart_best": apart_best,
    }


def _compute_style_columns(claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch) -> ColumnsByName:
    negated = np.array([not NEGATIONS.isdisjoint(words) for words in claims.words])
    best_negated = batch.negated[matches.best_sentences[0]]
    texts = [text.lower() for text in claims.texts]
    return {
        "denies": negated,
        "best_denies": best_negated,
        "denial": negated != best_negated,
        "opinion": np.array([len(OPINION_WORDS.findall(text)) for text in texts]),
        "hedge": np.array([len(HEDGING_WORDS.findall(text)) for text in texts]),
        "quote": np.array([text.count('"') > 1 for text in texts]),
        "colon": np.array([text.rstrip().endswith(":") for text in texts]),
    }


def _compute_check_columns(checks: Sequence[ClaimCheck | None]) -> ColumnsByName:
    return {
        "clash": np.array([check is not None and check.contradiction is not None for check in checks]),
        "field": np.array(
            [FIELD_CODES[check.field_conflict[1]] if check and check.field_conflict else 0.0 for check in checks]
        ),
        "nowhere": np.array([check is not None and check.missing_name is not None for check in checks]),
    }


def _compute_trace_columns(claim_words: ClaimWords, matches: ClaimMatches, batch: PassageBatch) -> ColumnsByName:
    """Compute the features of a claim's position in its answer, and of its passages."""
    best, group, groups = matches.best_sentences[0], claim_words.group_numbers, batch.groups
    counts = np.bincount(group, minlength=len(groups))
    positions = np.arange(len(group)) - (counts.cumsum() - counts)[group]
    claims = counts[group]
    sentences = [passages.index.sentences for passages in groups]
    best_positions = zip(group.tolist(), (best - batch.first_sentences[group]).tolist(), strict=True)
    group_values = np.array(
        [
            [passages.negated_share for passages in groups],
            [passages.record_share for passages in groups],
            [len(passages.tokens) for passages in groups],
            [len(passages.index.passages) for passages in groups],
        ],
        float,
    )[:, group]
    return {
        "claims": claims,
        "ground_denies": group_values[0],
        "keyed": group_values[1],
        "tokens": np.log1p(group_values[2]),
        "sentences": np.log1p(batch.sentence_counts[group]),
        "passages": group_values[3],
        "place": positions,
        "place_share": positions / np.maximum(1, claims - 1),
        "last": positions == claims - 1,
        "best_keyed": batch.is_field[best],
        "best_flag": np.array([bool(sentences[number][positions].polarity) for number, positions in best_positions]),
    }
