"""Exact checks for contradictions: antonyms, negation, swapped words, quantities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ragfault.judges.checks.passages import PassageSentence
from ragfault.text import NEGATIONS, STOP_WORDS, extract_literals, stem_word

ANTONYM_PAIRS = """
increase decrease|increase reduce|raise lower|rise fall|grow shrink|gain lose|gain loss|win lose|
higher lower|high low|large small|big little|long short|fast slow|strong weak|rich poor|hot cold|warm cool|wet dry
first last|early late|earlier later|old new|young old|begin end|start end|start stop|start finish
open close|open shut|enable disable|allow forbid|allow prohibit|allow ban|permit forbid|permit prohibit|accept reject
accept refuse|approve reject|approve deny|grant deny|confirm deny|agree disagree|support oppose|include exclude
import export|buy sell|lend borrow|give take|send receive|enter leave|arrive depart|join leave|add remove
legal illegal|lawful unlawful|possible impossible|likely unlikely|available unavailable|able unable|safe dangerous
safe unsafe|true false|right wrong|correct incorrect|positive negative|success failure|succeed fail|pass fail
present absent|alive dead|live die|male female|man woman|men women|boy girl|father mother|brother sister|husband wife
son daughter|north south|east west|northern southern|eastern western|top bottom|upper lower
above below|inside outside|internal external|major minor|maximum minimum|best worst|better worse|good bad
always never|majority minority|mandatory optional|required optional|public private|temporary permanent
innocent guilty|healthy sick|expensive cheap|simple complex|easy hard|easy difficult|love hate|friend enemy
rise fell|rose fall|rose fell|risen fallen|grew shrank|grew fall|grew fell|won lost|began end
bought sold|gave took|sent receive|allow forbidden|permit forbidden|permit ban|rose decline|rise decline
increase decline|increase drop|increase fall|rise drop|grow decline|rose drop|grew decline|day night|morning evening
summer winter|full empty|strengthen weaken|expand contract|improve worsen
encourage discourage|love hate
prevent cause|prevent promote|accelerate slow|employed unemployed|paid unpaid|married single
"""
ANTONYMS: dict[str, frozenset[str]] = {}
for _pair in ANTONYM_PAIRS.replace("\n", "|").split("|"):
    if _pair:
        _left, _right = map(stem_word, _pair.split())
        ANTONYMS[_left] = ANTONYMS.get(_left, frozenset()) | {_right}
        ANTONYMS[_right] = ANTONYMS.get(_right, frozenset()) | {_left}
NEGATING_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non")
DENIAL_WORDS = NEGATIONS | frozenset(
    map(stem_word, ("avoid", "unable", "fail", "lack", "refuse", "refrain", "decline", "instead", "rather"))
)
"""Negations, and verbs that deny."""
AUXILIARIES = frozenset({"was", "were", "is", "are", "be", "been", "being", "got"})


AdjacencyCheck = Callable[[str, str], bool]
MIN_OVERLAP = 0.5
"""The share of the sentence that the claim must say for a difference to be meant of the same thing."""
NEAR_IDENTICAL_OVERLAP = 0.75
"""The share from which claim and sentence say the same but for one point."""


def detect_contradiction(
    text: str,
    tokens: Sequence[str],
    sentence: PassageSentence,
    source: str,
    are_adjacent: AdjacencyCheck | None,
) -> str | None:
    """Why a claim contradicts a sentence it is well aligned with, stems in <>; None where it does not.

    `known` tells whether two words stand side by side in any passage: a number that the passages
    give elsewhere is no contradiction unless claim and sentence say the same otherwise.

    >>> from ragfault.judges.checks.passages import split_passage
    >>> source = "Aspirin reduces the risk of stroke."
    >>> claim = ("aspirin", "increas", "the", "risk", "of", "stroke")
    >>> detect_contradiction("", claim, split_passage(source)[0], source, lambda one, two: False)
    '<increas> against <reduc>'
    """
    same = measure_overlap(tokens, sentence)
    if same < MIN_OVERLAP:
        return None
    turned, denied = _detect_antonym(tokens, sentence), _detect_negation_mismatch(tokens, sentence)
    if turned and denied:
        return None
    swapped = (
        _detect_swap(tokens, sentence.tokens) if same >= NEAR_IDENTICAL_OVERLAP and not sentence.key else None
    )
    are_adjacent = are_adjacent if same < NEAR_IDENTICAL_OVERLAP else None
    return (
        turned or denied or swapped or _detect_quantity_mismatch(text, tokens, sentence, source, are_adjacent)
    )


def measure_overlap(tokens: Sequence[str], sentence: PassageSentence) -> float:
    """The share of the sentence's words of content that the claim has too; opposites and numbers left out."""
    held = sentence.content.difference(select_contested(sentence.content))
    return len(held.intersection(tokens)) / len(held) if held else 0.0


def select_contested(words: Iterable[str]) -> list[str]:
    """The words that may be the very point of a contradiction, and so no part of the alignment."""
    return [word for word in words if word in ANTONYMS or word[0].isdigit()]


def get_neighbors(tokens: Sequence[str], word: str) -> set[str]:
    """The neighbours of a word among the words of content, told apart by side."""
    held = [token for token in tokens if token == word or token not in STOP_WORDS]
    at = held.index(word)
    before, after = held[at - 1] if at else "", held[at + 1] if at + 1 < len(held) else ""
    return {f"<{before}"} - {"<"} | {f">{after}"} - {">"}


def _detect_antonym(tokens: Sequence[str], sentence: PassageSentence) -> str | None:
    """A word of the claim whose opposite stands in the sentence in its stead."""
    held = frozenset(sentence.tokens)
    claimed = frozenset(tokens)
    for word in tokens:
        if word in held or word in STOP_WORDS or len(word) < 3:
            continue
        against = ANTONYMS.get(word, frozenset()) & held - claimed
        for prefix in NEGATING_PREFIXES:
            if len(word) > 3 and prefix + word in held:
                against |= {prefix + word}
            if word.startswith(prefix) and len(word) > len(prefix) + 3 and word[len(prefix) :] in held:
                against |= {word[len(prefix) :]}
        if against and any(
            _get_context(tokens, word) & _get_context(sentence.tokens, other) for other in against
        ):
            return f"<{word}> against <{min(against)}>"
    return None


def _get_context(tokens: Sequence[str], word: str) -> set[str]:
    """The words of content around a word."""
    held = [token for token in tokens if token == word or token not in STOP_WORDS]
    at = held.index(word)
    return set(held[max(0, at - 2) : at + 3]) - {word}


def _detect_negation_mismatch(tokens: Sequence[str], sentence: PassageSentence) -> str | None:
    """A word that one side denies and the other affirms."""
    if sentence.polarity:
        return None
    ours, theirs = collect_negated_words(tokens), collect_negated_words(sentence.tokens)
    if bool(ours) == bool(theirs):
        return None
    held = frozenset(sentence.tokens) if ours else frozenset(tokens)
    for word in sorted((ours or theirs) & held):
        if get_neighbors(tokens, word) & get_neighbors(sentence.tokens, word):
            return f"<{word}> is denied on one side only"
    return None


def collect_negated_words(tokens: Sequence[str], reach: int = 1) -> frozenset[str]:
    """The words of content that negations reach.

    >>> sorted(collect_negated_words(("it", "does", "not", "offer", "wifi"), reach=2))
    ['offer', 'wifi']
    """
    reached = set()
    left = 0
    for word in tokens:
        if word in DENIAL_WORDS:
            left = reach
        elif left and word not in STOP_WORDS:
            reached.add(word)
            left -= 1
    return frozenset(reached)


def _detect_swap(claim: Sequence[str], source: Sequence[str]) -> str | None:
    """Two words that have changed places around a third, as in "dog bites man" and "man bites dog"."""
    if _is_passive(claim) != _is_passive(source):
        return None
    ours = [word for word in claim if word not in STOP_WORDS]
    theirs = [word for word in source if word not in STOP_WORDS]
    if not 3 <= len(ours) <= 40 or len(theirs) > 80 or not set(ours) <= set(theirs):
        return None
    for at, verb in enumerate(ours[1:-1], 1):
        if theirs.count(verb) != 1 or ours.count(verb) != 1 or verb[0].isdigit():
            continue
        there = theirs.index(verb)
        left, right = _drop_numbers(ours[max(0, at - 2) : at]), _drop_numbers(ours[at + 1 : at + 3])
        before, after = (
            _drop_numbers(theirs[max(0, there - 2) : there]),
            _drop_numbers(theirs[there + 1 : there + 3]),
        )
        if left & after and right & before and not (left & before or right & after):
            return f"<{min(left & after)}> and <{min(right & before)}> have changed places"
    return None


def _drop_numbers(around: Sequence[str]) -> set[str]:
    return {word for word in around if not word[0].isdigit()}


def _is_passive(tokens: Sequence[str]) -> bool:
    return "by" in tokens and not AUXILIARIES.isdisjoint(tokens)


def _detect_quantity_mismatch(
    text: str,
    tokens: Sequence[str],
    sentence: PassageSentence,
    source: str,
    are_adjacent: AdjacencyCheck | None,
) -> str | None:
    """A number, date or amount in the place of another of its kind."""
    if not _has_new_number(tokens, sentence.tokens, are_adjacent):
        return None
    ours, theirs = extract_literals(text), extract_literals(source)
    stock = frozenset(form for forms in theirs.values() for form in forms)
    claimed = frozenset(form for forms in ours.values() for form in forms)
    for item in sorted(ours.keys() - stock):
        for other in sorted(theirs.keys() - claimed):
            if _is_same_slot(item, other, tokens, sentence.tokens):
                return f"{item} against {other}"
    return None


def _is_same_slot(item: str, other: str, tokens: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one quantity stands in the place of another: of one kind, a bare number also in one place."""
    kind = _classify_quantity(item)
    if kind != _classify_quantity(other):
        return _extract_amount(item) == _extract_amount(other) != "" and "°" not in item + other
    if kind not in {"", "year"}:
        return True
    return (
        item in tokens
        and other in others
        and bool(get_neighbors(tokens, item) & get_neighbors(others, other))
    )


def _has_new_number(
    tokens: Sequence[str], others: Sequence[str], are_adjacent: AdjacencyCheck | None
) -> bool:
    """Whether a number of the claim, with the word after it, is not in the sentence, nor known otherwise."""
    held = frozenset(others)
    for at, word in enumerate(tokens):
        if not word[0].isdigit():
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        strange = word not in held or (after and after not in held)
        if strange and not (are_adjacent and are_adjacent(word, after)):
            return True
    return False


def _extract_amount(item: str) -> str:
    """The bare number of a quantity that has a unit."""
    value, _, unit = item.partition(" ")
    return value if unit and value.replace(".", "").lstrip("-").isdigit() else ""


def are_rival_quantities(item: str, other: str) -> bool:
    """Whether two quantities are different values of one kind.

    >>> are_rival_quantities("1921", "1922"), are_rival_quantities("5 kg", "2024-03-14")
    (True, False)
    """
    return item != other and _classify_quantity(item) == _classify_quantity(other)


def _classify_quantity(item: str) -> str:
    """What an item counts: its form with every number left out, years and days apart from amounts."""
    if len(item) == 4 and item.isdigit() and item[0] in "12":
        return "year"
    if item[:2] == "--" or (item[4:5] == "-" and item[:4].isdigit()):
        return "date"
    return "".join(sign for sign in item if not (sign.isdigit() or sign in ".-"))
