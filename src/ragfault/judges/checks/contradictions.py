"""Exact checks for contradictions: antonyms, negation, swapped words, quantities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ragfault.judges.checks.passages import PassageSentence
from ragfault.text.entities import extract_literals
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, stem_word

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
"""The share of the sentence that the claim must repeat for a difference to be about the same thing."""
NEAR_IDENTICAL_OVERLAP = 0.75
"""From this share on, claim and sentence are the same except for one point."""


def detect_contradiction(
    text: str, tokens: Sequence[str], sentence: PassageSentence, source: str, are_adjacent: AdjacencyCheck | None
) -> str | None:
    """Return why a claim contradicts a sentence that it is well aligned with, stems in <>; None if it does not.

    `are_adjacent` tells if two words are neighbours in any passage: a number that the passages give elsewhere
    is no contradiction unless claim and sentence are the same otherwise.

    >>> from ragfault.judges.checks.passages import split_passage
    >>> source = "Aspirin reduces the risk of stroke."
    >>> claim = ("aspirin", "increas", "the", "risk", "of", "stroke")
    >>> detect_contradiction("", claim, split_passage(source)[0], source, lambda left, right: False)
    '<increas> against <reduc>'
    """
    overlap = measure_overlap(tokens, sentence)
    if overlap < MIN_OVERLAP:
        return None
    antonym, negation = _detect_antonym(tokens, sentence), _detect_negation_mismatch(tokens, sentence)
    if antonym and negation:
        return None
    swap = _detect_swap(tokens, sentence.tokens) if overlap >= NEAR_IDENTICAL_OVERLAP and not sentence.key else None
    are_adjacent = are_adjacent if overlap < NEAR_IDENTICAL_OVERLAP else None
    return antonym or negation or swap or _detect_quantity_mismatch(text, tokens, sentence, source, are_adjacent)


def measure_overlap(tokens: Sequence[str], sentence: PassageSentence) -> float:
    """Return the share of the sentence's content words that the claim has; opposites and numbers are left out."""
    words = sentence.content.difference(select_contested(sentence.content))
    return len(words.intersection(tokens)) / len(words) if words else 0.0


def select_contested(words: Iterable[str]) -> list[str]:
    """Return the words that may themselves be the contradiction, and so do not count as alignment."""
    return [word for word in words if word in ANTONYMS or word[0].isdigit()]


def get_neighbors(tokens: Sequence[str], word: str) -> set[str]:
    """Return the content words next to a word, marked by side."""
    words = [token for token in tokens if token == word or token not in STOP_WORDS]
    position = words.index(word)
    before, after = (words[position - 1] if position else "", words[position + 1] if position + 1 < len(words) else "")
    return {f"<{before}"} - {"<"} | {f">{after}"} - {">"}


def _detect_antonym(tokens: Sequence[str], sentence: PassageSentence) -> str | None:
    """Return a word of the claim with its opposite in the sentence, where both have a common context."""
    sentence_words = frozenset(sentence.tokens)
    claim_words = frozenset(tokens)
    for word in tokens:
        if word in sentence_words or word in STOP_WORDS or len(word) < 3:
            continue
        opposites = ANTONYMS.get(word, frozenset()) & sentence_words - claim_words
        for prefix in NEGATING_PREFIXES:
            if len(word) > 3 and prefix + word in sentence_words:
                opposites |= {prefix + word}
            if word.startswith(prefix) and len(word) > len(prefix) + 3 and word[len(prefix) :] in sentence_words:
                opposites |= {word[len(prefix) :]}
        if opposites and any(_get_context(tokens, word) & _get_context(sentence.tokens, rival) for rival in opposites):
            return f"<{word}> against <{min(opposites)}>"
    return None


def _get_context(tokens: Sequence[str], word: str) -> set[str]:
    words = [token for token in tokens if token == word or token not in STOP_WORDS]
    position = words.index(word)
    return set(words[max(0, position - 2) : position + 3]) - {word}


def _detect_negation_mismatch(tokens: Sequence[str], sentence: PassageSentence) -> str | None:
    """Return a word that only one side negates."""
    if sentence.polarity:
        return None
    claim_negated, sentence_negated = collect_negated_words(tokens), collect_negated_words(sentence.tokens)
    if bool(claim_negated) == bool(sentence_negated):
        return None
    other_words = frozenset(sentence.tokens) if claim_negated else frozenset(tokens)
    for word in sorted((claim_negated or sentence_negated) & other_words):
        if get_neighbors(tokens, word) & get_neighbors(sentence.tokens, word):
            return f"<{word}> is denied on one side only"
    return None


def collect_negated_words(tokens: Sequence[str], reach: int = 1) -> frozenset[str]:
    """Return the content words within `reach` of a negation.

    >>> sorted(collect_negated_words(("it", "does", "not", "offer", "wifi"), reach=2))
    ['offer', 'wifi']
    """
    reached = set()
    start = 0
    for word in tokens:
        if word in DENIAL_WORDS:
            start = reach
        elif start and word not in STOP_WORDS:
            reached.add(word)
            start -= 1
    return frozenset(reached)


def _detect_swap(claim: Sequence[str], source: Sequence[str]) -> str | None:
    """Return two words that have changed places around a third, as in "dog bites man" and "man bites dog"."""
    if _is_passive(claim) != _is_passive(source):
        return None
    claim_words = [word for word in claim if word not in STOP_WORDS]
    source_words = [word for word in source if word not in STOP_WORDS]
    if not 3 <= len(claim_words) <= 40 or len(source_words) > 80 or not set(claim_words) <= set(source_words):
        return None
    for position, verb in enumerate(claim_words[1:-1], 1):
        if source_words.count(verb) != 1 or claim_words.count(verb) != 1 or verb[0].isdigit():
            continue
        source_position = source_words.index(verb)
        left, right = (
            _drop_numbers(claim_words[max(0, position - 2) : position]),
            _drop_numbers(claim_words[position + 1 : position + 3]),
        )
        before, after = (
            _drop_numbers(source_words[max(0, source_position - 2) : source_position]),
            _drop_numbers(source_words[source_position + 1 : source_position + 3]),
        )
        if left & after and right & before and not (left & before or right & after):
            return f"<{min(left & after)}> and <{min(right & before)}> have changed places"
    return None


def _drop_numbers(around: Sequence[str]) -> set[str]:
    return {word for word in around if not word[0].isdigit()}


def _is_passive(tokens: Sequence[str]) -> bool:
    return "by" in tokens and not AUXILIARIES.isdisjoint(tokens)


def _detect_quantity_mismatch(
    text: str, tokens: Sequence[str], sentence: PassageSentence, source: str, are_adjacent: AdjacencyCheck | None
) -> str | None:
    """Return a number, date or amount in the place of another of its kind."""
    if not _has_new_number(tokens, sentence.tokens, are_adjacent):
        return None
    claim_literals, source_literals = extract_literals(text), extract_literals(source)
    source_forms = frozenset(form for forms in source_literals.values() for form in forms)
    claim_forms = frozenset(form for forms in claim_literals.values() for form in forms)
    for item in sorted(claim_literals.keys() - source_forms):
        for other in sorted(source_literals.keys() - claim_forms):
            if _is_same_slot(item, other, tokens, sentence.tokens):
                return f"{item} against {other}"
    return None


def _is_same_slot(item: str, rival: str, tokens: Sequence[str], source: Sequence[str]) -> bool:
    """Return whether two quantities are of one kind; bare numbers and years must have the same neighbours, too."""
    kind = _classify_quantity(item)
    if kind != _classify_quantity(rival):
        return _extract_amount(item) == _extract_amount(rival) != "" and "°" not in item + rival
    if kind not in {"", "year"}:
        return True
    return item in tokens and rival in source and bool(get_neighbors(tokens, item) & get_neighbors(source, rival))


def _has_new_number(tokens: Sequence[str], source: Sequence[str], are_adjacent: AdjacencyCheck | None) -> bool:
    """Return whether a number of the claim, with the word after it, is not in the sentence nor known otherwise."""
    sentence_words = frozenset(source)
    for position, word in enumerate(tokens):
        if not word[0].isdigit():
            continue
        after = tokens[position + 1] if position + 1 < len(tokens) else ""
        is_new = word not in sentence_words or (after and after not in sentence_words)
        if is_new and not (are_adjacent and are_adjacent(word, after)):
            return True
    return False


def _extract_amount(item: str) -> str:
    """Return the bare number of a quantity with a unit, "" without."""
    value, _, unit = item.partition(" ")
    return value if unit and value.replace(".", "").lstrip("-").isdigit() else ""


def are_rival_quantities(item: str, rival: str) -> bool:
    """Return whether two quantities are different values of one kind.

    >>> are_rival_quantities("1921", "1922"), are_rival_quantities("5 kg", "2024-03-14")
    (True, False)
    """
    return item != rival and _classify_quantity(item) == _classify_quantity(rival)


def _classify_quantity(item: str) -> str:
    """Return the kind of a quantity: its form without numbers; years and dates are kinds of their own."""
    if len(item) == 4 and item.isdigit() and item[0] in "12":
        return "year"
    if item[:2] == "--" or (item[4:5] == "-" and item[:4].isdigit()):
        return "date"
    return "".join(character for character in item if not (character.isdigit() or character in ".-"))
