"""Exact checks: what turns a near match into a contradiction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ragfault.judges.passages import Sentence
from ragfault.text import NEGATIONS, STOP, figures, stem

__all__ = ["clash", "contested", "follows", "mutual", "rivals", "scope"]

PAIRS = """
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
OPPOSITES: dict[str, frozenset[str]] = {}
for _pair in PAIRS.replace("\n", "|").split("|"):
    if _pair:
        _left, _right = map(stem, _pair.split())
        OPPOSITES[_left] = OPPOSITES.get(_left, frozenset()) | {_right}
        OPPOSITES[_right] = OPPOSITES.get(_right, frozenset()) | {_left}
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non")
DENIALS = NEGATIONS | frozenset(
    map(stem, ("avoid", "unable", "fail", "lack", "refuse", "refrain", "decline", "instead", "rather"))
)
"""Negations, and verbs that deny."""
AUXILIARY = frozenset({"was", "were", "is", "are", "be", "been", "being", "got"})


Known = Callable[[str, str], bool]
ALIKE = 0.5
"""The share of the sentence that the claim must say for a difference to be meant of the same thing."""
EQUAL = 0.75
"""The share from which claim and sentence say the same but for one point."""


def clash(
    text: str, tokens: Sequence[str], sentence: Sentence, source: str, known: Known | None
) -> str | None:
    """Why a claim contradicts a sentence it is well aligned with, stems in <>; None where it does not.

    `known` tells whether two words stand side by side in any passage: a number that the passages
    give elsewhere is no contradiction unless claim and sentence say the same otherwise.

    >>> from ragfault.judges.passages import read
    >>> source = "Aspirin reduces the risk of stroke."
    >>> claim = ("aspirin", "increas", "the", "risk", "of", "stroke")
    >>> clash("", claim, read(source)[0], source, lambda one, two: False)
    '<increas> against <reduc>'
    """
    same = mutual(tokens, sentence)
    if same < ALIKE:
        return None
    turned, denied = _opposite(tokens, sentence), _denied(tokens, sentence)
    if turned and denied:
        return None
    swapped = _swapped(tokens, sentence.tokens) if same >= EQUAL and not sentence.key else None
    known = known if same < EQUAL else None
    return turned or denied or swapped or _quantity(text, tokens, sentence, source, known)


def mutual(tokens: Sequence[str], sentence: Sentence) -> float:
    """The share of the sentence's words of content that the claim has too; opposites and numbers left out."""
    held = sentence.content.difference(contested(sentence.content))
    return len(held.intersection(tokens)) / len(held) if held else 0.0


def contested(words: Iterable[str]) -> list[str]:
    """The words that may be the very point of a contradiction, and so no part of the alignment."""
    return [word for word in words if word in OPPOSITES or word[0].isdigit()]


def follows(tokens: Sequence[str], word: str) -> set[str]:
    """The neighbours of a word among the words of content, told apart by side."""
    held = [token for token in tokens if token == word or token not in STOP]
    at = held.index(word)
    before, after = held[at - 1] if at else "", held[at + 1] if at + 1 < len(held) else ""
    return {f"<{before}"} - {"<"} | {f">{after}"} - {">"}


def _opposite(tokens: Sequence[str], sentence: Sentence) -> str | None:
    """A word of the claim whose opposite stands in the sentence in its stead."""
    held = frozenset(sentence.tokens)
    claimed = frozenset(tokens)
    for word in tokens:
        if word in held or word in STOP or len(word) < 3:
            continue
        against = OPPOSITES.get(word, frozenset()) & held - claimed
        for prefix in PREFIXES:
            if len(word) > 3 and prefix + word in held:
                against |= {prefix + word}
            if word.startswith(prefix) and len(word) > len(prefix) + 3 and word[len(prefix) :] in held:
                against |= {word[len(prefix) :]}
        if against and any(_beside(tokens, word) & _beside(sentence.tokens, other) for other in against):
            return f"<{word}> against <{min(against)}>"
    return None


def _beside(tokens: Sequence[str], word: str) -> set[str]:
    """The words of content around a word."""
    held = [token for token in tokens if token == word or token not in STOP]
    at = held.index(word)
    return set(held[max(0, at - 2) : at + 3]) - {word}


def _denied(tokens: Sequence[str], sentence: Sentence) -> str | None:
    """A word that one side denies and the other affirms."""
    if sentence.polarity:
        return None
    ours, theirs = scope(tokens), scope(sentence.tokens)
    if bool(ours) == bool(theirs):
        return None
    held = frozenset(sentence.tokens) if ours else frozenset(tokens)
    for word in sorted((ours or theirs) & held):
        if follows(tokens, word) & follows(sentence.tokens, word):
            return f"<{word}> is denied on one side only"
    return None


def scope(tokens: Sequence[str], reach: int = 1) -> frozenset[str]:
    """The words of content that negations reach.

    >>> sorted(scope(("it", "does", "not", "offer", "wifi"), reach=2))
    ['offer', 'wifi']
    """
    reached = set()
    left = 0
    for word in tokens:
        if word in DENIALS:
            left = reach
        elif left and word not in STOP:
            reached.add(word)
            left -= 1
    return frozenset(reached)


def _swapped(claim: Sequence[str], source: Sequence[str]) -> str | None:
    """Two words that have changed places around a third, as in "dog bites man" and "man bites dog"."""
    if _passive(claim) != _passive(source):
        return None
    ours = [word for word in claim if word not in STOP]
    theirs = [word for word in source if word not in STOP]
    if not 3 <= len(ours) <= 40 or len(theirs) > 80 or not set(ours) <= set(theirs):
        return None
    for at, verb in enumerate(ours[1:-1], 1):
        if theirs.count(verb) != 1 or ours.count(verb) != 1 or verb[0].isdigit():
            continue
        there = theirs.index(verb)
        left, right = _nouns(ours[max(0, at - 2) : at]), _nouns(ours[at + 1 : at + 3])
        before, after = _nouns(theirs[max(0, there - 2) : there]), _nouns(theirs[there + 1 : there + 3])
        if left & after and right & before and not (left & before or right & after):
            return f"<{min(left & after)}> and <{min(right & before)}> have changed places"
    return None


def _nouns(around: Sequence[str]) -> set[str]:
    return {word for word in around if not word[0].isdigit()}


def _passive(tokens: Sequence[str]) -> bool:
    return "by" in tokens and not AUXILIARY.isdisjoint(tokens)


def _quantity(
    text: str, tokens: Sequence[str], sentence: Sentence, source: str, known: Known | None
) -> str | None:
    """A number, date or amount in the place of another of its kind."""
    if not _differs(tokens, sentence.tokens, known):
        return None
    ours, theirs = figures(text), figures(source)
    stock = frozenset(form for forms in theirs.values() for form in forms)
    claimed = frozenset(form for forms in ours.values() for form in forms)
    for item in sorted(ours.keys() - stock):
        for other in sorted(theirs.keys() - claimed):
            if _place(item, other, tokens, sentence.tokens):
                return f"{item} against {other}"
    return None


def _place(item: str, other: str, tokens: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one quantity stands in the place of another: of one kind, a bare number also in one place."""
    kind = _kind(item)
    if kind != _kind(other):
        return _measures(item) == _measures(other) != "" and "°" not in item + other
    if kind not in {"", "year"}:
        return True
    return item in tokens and other in others and bool(follows(tokens, item) & follows(others, other))


def _differs(tokens: Sequence[str], others: Sequence[str], known: Known | None) -> bool:
    """Whether a number of the claim, with the word after it, is not in the sentence, nor known otherwise."""
    held = frozenset(others)
    for at, word in enumerate(tokens):
        if not word[0].isdigit():
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        strange = word not in held or (after and after not in held)
        if strange and not (known and known(word, after)):
            return True
    return False


def _measures(item: str) -> str:
    """The bare number of a quantity that has a unit."""
    value, _, unit = item.partition(" ")
    return value if unit and value.replace(".", "").lstrip("-").isdigit() else ""


def rivals(item: str, other: str) -> bool:
    """Whether two quantities are different values of one kind.

    >>> rivals("1921", "1922"), rivals("5 kg", "2024-03-14")
    (True, False)
    """
    return item != other and _kind(item) == _kind(other)


def _kind(item: str) -> str:
    """What an item counts: its form with every number left out, years and days apart from amounts."""
    if len(item) == 4 and item.isdigit() and item[0] in "12":
        return "year"
    if item[:2] == "--" or (item[4:5] == "-" and item[:4].isdigit()):
        return "date"
    return "".join(sign for sign in item if not (sign.isdigit() or sign in ".-"))
