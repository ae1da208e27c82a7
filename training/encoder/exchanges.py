"""Training pairs from passages alone: two words of a passage change places, which makes a sentence of it false.

A sentence is read beside the passage as it was written and beside the changed one, and so is the changed sentence: each
is supported by one of the two, so that neither the claim nor the shared words tell its label. A third of the sentences
are worded a little differently, true and false ones alike, so that "word for word" is no sign either.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ragfault.judges.encoder.evidence import SENTENCE_END
from training.authored.items import Item
from training.data_files import Row, iterate_rows

CONTRADICTED, NOT_SUPPORTED = 1, -1
WORDS = range(7, 46)
# Of a passage, the sentences that are drawn.
DRAWS = 3
LEAST_NOUN = 4
NAME = re.compile(r"\b[A-Z][\w'-]*[a-z\d](?: [A-Z][\w'-]+)*")
NUMBER = re.compile(r"\b\d+(?:[.,:]\d+)*\b")
PHRASE = re.compile(
    r"\b(?:the|an?|its|their|his|her|your|our|every|each|no|any)\s+((?:[a-z-]+\s+){0,2}[a-z-]{3,})", re.I
)
# A noun is a word that often stands after an article and before one of these.
NOUN = re.compile(
    r"\b(?:the|an?|every|each)\s+([a-z]{3,})(?=[.,;:]|\s(?:is|are|was|were|has|have|had|can|may|must|will|of|in|on|at|for"
    r"|to|by|with|from|and|or|that|which|who|if|when|until|after|before)\b)"
)
OPPOSITES = (
    "before/after more/less most/least higher/lower highest/lowest first/last above/below earlier/later"
    " increase/decrease"
    " increased/decreased rise/fall rose/fell rises/falls minimum/maximum with/without inside/outside always/never"
    " larger/smaller largest/smallest longer/shorter faster/slower older/younger open/closed free/paid all/none"
    " many/few up/down north/south east/west left/right early/late hot/cold warm/cool strong/weak high/low old/new"
    " long/short large/small big/small buy/sell bought/sold accept/reject allowed/forbidden required/optional"
    " mandatory/voluntary public/private internal/external success/failure won/lost begins/ends began/ended start/end"
    " monday/friday morning/evening winter/summer spring/autumn daily/weekly monthly/yearly enable/disable"
    " enabled/disabled include/exclude includes/excludes included/excluded above/under over/under better/worse"
    " must/may must/cannot can/cannot is/isn't are/aren't was/wasn't only/also both/neither"
)
OPPOSITE = {word: other for pair in OPPOSITES.split() for word, other in (pair.split("/"), pair.split("/")[::-1])}
DENIED = re.compile(r"\b(is|are|was|were|can|may|must|will|should|could|does|do|did|has|have|had)( not)?\b", re.I)
OPENING = re.compile(r"^(?:However|Also|In addition|Moreover|Then|Therefore|Here|Today|Thus|Finally|But|And),? +", re.I)
BRACKETS = re.compile(r" \([^()]{2,60}\)")
CLAUSE = re.compile(r"(?:[,;] (?:and|but|while|which|because|so|although)|;) [^,;]{12,}(?=\.?$)")
NUMBERS = "two/2 three/3 four/4 five/5 six/6 seven/7 eight/8 nine/9 ten/10 twelve/12"
SPELLED = {word: number for pair in NUMBERS.split() for word, _, number in [pair.partition("/")]}
SHORTENED = {"do not": "don't", "does not": "doesn't", "cannot": "can't", "is not": "isn't", "will not": "won't"}
Change = Callable[[str], str]


class Exchange(NamedTuple):
    """A change of a text and the class of what it makes false."""

    change: Change
    label: int


def swap(text: str, left: str, right: str) -> str:
    """Return a text with two words or phrases in each other's place.

    >>> swap("The seller rates the buyer.", "seller", "buyer")
    'The buyer rates the seller.'
    """
    return re.sub(rf"\b(?:{re.escape(left)}|{re.escape(right)})\b", lambda met: right if met[0] == left else left, text)


def replace_first(text: str, old: str, new: str) -> str:
    """Return a text with the first occurrence of a word replaced, in the same case."""

    def put(met: re.Match[str]) -> str:
        return new.capitalize() if met[0][0].isupper() else new

    return re.sub(rf"\b{re.escape(old)}\b", put, text, count=1, flags=re.IGNORECASE)


def list_nouns(texts: list[str]) -> frozenset[str]:
    """List the nouns of some texts."""
    counts = Counter(word for text in texts for word in NOUN.findall(text))
    return frozenset(word for word, count in counts.items() if count >= LEAST_NOUN)


def list_names(text: str) -> set[str]:
    """List the names that do not open a sentence, where every word has a capital."""
    return {
        met[0]
        for met in NAME.finditer(text)
        if text[: met.start()].rstrip(" \"'(*#-")[-1:] not in {"", ".", "!", "?", ":", "\n", "|"}
    }


def are_joined(text: str, left: str, right: str) -> bool:
    """Return whether two phrases are parts of one list, where their order says nothing."""
    joined = r"\s*(?:,|and|or|und|&|/|,? (?:and|or))\s*(?:the |an? )?"
    return (
        re.search(
            rf"\b(?:{re.escape(left)}{joined}{re.escape(right)}|{re.escape(right)}{joined}{re.escape(left)})\b", text
        )
        is not None
    )


def find_swaps(text: str, candidates: list[str], label: int) -> Iterator[Exchange]:
    """Yield the exchanges of two different phrases of a list."""
    names = sorted(set(candidates))
    for place, left in enumerate(names):
        for right in names[place + 1 :]:
            if left in right or right in left or are_joined(text, left, right):
                continue
            yield Exchange(partial(swap, left=left, right=right), label)


def find_exchanges(text: str, nouns: frozenset[str], chance: random.Random) -> list[list[Exchange]]:
    """List the changes that make a text false, by kind."""
    inner = list_names(text)
    words = [word for word in re.findall(r"[a-z]{3,}", text) if word in nouns]
    alike = [word for word in words if word.endswith("s")], [word for word in words if not word.endswith("s")]
    numbers = NUMBER.findall(text)
    kinds = [
        list(find_swaps(text, sorted(inner), NOT_SUPPORTED)),
        [item for group in alike for item in find_swaps(text, group, NOT_SUPPORTED)],
        list(find_swaps(text, numbers, NOT_SUPPORTED)),
        [
            Exchange(partial(replace_first, old=number, new=change_number(number, chance)), CONTRADICTED)
            for number in set(numbers)
        ],
        [
            Exchange(partial(replace_first, old=word, new=OPPOSITE[word]), CONTRADICTED)
            for word in sorted({word.lower() for word in re.findall(r"[A-Za-z']+", text)})
            if word in OPPOSITE
        ],
        [Exchange(deny, CONTRADICTED)] if DENIED.search(text) else [],
    ]
    return [kind for kind in kinds if kind]


def change_number(number: str, chance: random.Random) -> str:
    """Return a number that differs in one digit, and so is as plausible."""
    places = [place for place, letter in enumerate(number) if letter.isdigit()]
    place = chance.choice(places)
    digit = chance.choice([digit for digit in "123456789" if digit != number[place]])
    return number[:place] + digit + number[place + 1 :]


def deny(text: str) -> str:
    """Return a text with its first verb denied, or without the denial of it."""
    return DENIED.sub(lambda met: met[1] if met[2] else f"{met[1]} not", text, count=1)


def drop_clause(text: str) -> str:
    """Drop what follows after a comma."""
    return CLAUSE.sub("", text, count=1)


def spell(text: str) -> str:
    """Write small numbers the other way."""
    digits = {number: word for word, number in SPELLED.items()}
    table = SPELLED if any(re.search(rf"\b{word}\b", text) for word in SPELLED) else digits
    return re.sub(r"(?<![\d.,:])\b\w+\b(?![.,:]?\d)", lambda met: table.get(met[0], met[0]), text)


def shorten(text: str) -> str:
    """Shorten denials, or write them out."""
    for long, short in SHORTENED.items():
        if long in text:
            return text.replace(long, short)
    return text.replace("n't", " not") if "n't" in text and "can't" not in text and "won't" not in text else text


HARMLESS: tuple[Change, ...] = (
    drop_clause,
    drop_clause,
    spell,
    shorten,
    lambda text: OPENING.sub("", text)[:1].upper() + OPENING.sub("", text)[1:],
    lambda text: BRACKETS.sub("", text),
    lambda text: f"Yes, {text[0].lower()}{text[1:]}" if text.startswith(("The ", "A ", "It ")) else text,
    lambda text: f"According to the document, {text[0].lower()}{text[1:]}" if text.startswith(("The ", "A ")) else text,
    lambda text: text.replace("%", " percent"),
)


def draw_exchange(group: str, passage: str, query: str, nouns: frozenset[str], chance: random.Random) -> Iterator[Row]:
    """Yield four rows for a sentence of a passage: as it is and changed, beside the passage as it is and changed."""
    sentences = [part.strip() for part in SENTENCE_END.split(passage) if part.strip()]
    places = [place for place, part in enumerate(sentences) if len(part.split()) in WORDS]
    if not places:
        return
    place = chance.choice(places)
    size = chance.choice((1, 2, 2))
    scope = " ".join(sentences[place : place + size])
    kinds = find_exchanges(scope, nouns, chance)
    if not kinds or passage.count(sentences[place]) != 1:
        return
    exchange = chance.choice(chance.choice(kinds))
    changed_scope = exchange.change(scope)
    if scope not in passage:
        return
    other = passage.replace(scope, changed_scope)
    # The sentence is the first of the scope: what changed places with the second is false of it, too.
    claim, changed = (SENTENCE_END.split(text)[0] for text in (scope, changed_scope))
    if chance.random() < 0.6:
        harmless = chance.choice(HARMLESS)
        if harmless(claim) != harmless(changed):
            claim, changed = harmless(claim), harmless(changed)
    if claim == changed or len(claim.split()) < 4:
        return
    for text, first, label in (
        (claim, passage, 0),
        (claim, other, exchange.label),
        (changed, other, 0),
        (changed, passage, exchange.label),
    ):
        yield {"group": group, "passage": first, "query": query, "claim": text, "label": label}


def iterate_exchanges(passages: list[tuple[str, str, str]], seed: int = 23) -> Iterator[Row]:
    """Yield the rows of passages, each with its group and its query."""
    chance = random.Random(seed)
    nouns = list_nouns([text for _, text, _ in passages])
    for group, passage, query in passages:
        for _ in range(DRAWS):
            yield from draw_exchange(group, passage, query if chance.random() < 0.5 else "", nouns, chance)


def iterate_claim_exchanges(items: list[Item], seed: int = 41) -> Iterator[Row]:
    """Yield supported claims beside their passage and beside one where a word of theirs changed places with another.

    Most of them say in other words what the passage says, so that sharing its words is no sign of support.
    """
    chance = random.Random(seed)
    nouns = list_nouns([chunk for item in items for chunk in item.chunks])
    for item in items:
        passage = " ".join(item.chunks)
        if item.label != "S":
            continue
        kinds = [
            list(pairs)
            for listed in (list_names, lambda text: list_words(text, nouns), lambda text: set(NUMBER.findall(text)))
            if (pairs := pair_phrases(listed(item.claim), listed(passage), passage))
        ]
        if not kinds:
            continue
        left, right = chance.choice(chance.choice(kinds))
        other, changed = swap(passage, left, right), swap(item.claim, left, right)
        if other == passage or changed == item.claim:
            continue
        for claim, text, label in (
            (item.claim, passage, 0),
            (item.claim, other, NOT_SUPPORTED),
            (changed, other, 0),
            (changed, passage, NOT_SUPPORTED),
        ):
            yield {"group": item.unit, "passage": text, "query": item.query, "claim": claim, "label": label}


def list_words(text: str, nouns: frozenset[str]) -> set[str]:
    """List the nouns of a text."""
    return {word for word in re.findall(r"[a-z]{3,}", text) if word in nouns}


def pair_phrases(claimed: set[str], shown: set[str], passage: str) -> list[tuple[str, str]]:
    """List the pairs of a phrase of a claim and another one of its passage that may change places."""
    return [
        (left, right)
        for left in sorted(claimed & shown)
        for right in sorted(shown)
        if left not in right
        and right not in left
        and left.endswith("s") == right.endswith("s")
        and not are_joined(passage, left, right)
    ]


def iterate_other_names(items: list[Item], seed: int = 31) -> Iterator[Row]:
    """Yield claims on what their question names, beside the passage and beside one on something else of that kind.

    The claim does not repeat the name, so that only the question says what it is about.
    """
    chance = random.Random(seed)
    names: dict[str, set[str]] = {}
    for item in items:
        names.setdefault(item.domain, set()).update(list_names(" ".join(item.chunks)))
    for item in items:
        passage = " ".join(item.chunks)
        asked = [name for name in list_names(item.query) if name in passage and name not in item.claim]
        others = sorted(name for name in names[item.domain] if name not in passage and name not in item.query)
        if item.label != "S" or not asked or not others:
            continue
        name, other = chance.choice(sorted(asked)), chance.choice(others)
        yield {"group": item.unit, "passage": passage, "query": item.query, "claim": item.claim, "label": 0}
        changed = passage.replace(name, other)
        yield {"group": item.unit, "passage": changed, "query": item.query, "claim": item.claim, "label": 2}
        query = item.query.replace(name, other)
        yield {"group": item.unit, "passage": changed, "query": query, "claim": item.claim, "label": 0}
        yield {"group": item.unit, "passage": passage, "query": query, "claim": item.claim, "label": 2}


def list_public(data: Path) -> list[tuple[str, str, str]]:
    """List passages of the public sets."""
    rows: dict[str, tuple[str, str, str]] = {}
    for name in ("condaqa", "sufficient_facts", "expertqa", "contractnli"):
        for row in iterate_rows(data / "entailment_train" / f"{name}.jsonl.gz"):
            if len(row["premise"]) < 1_500:
                rows.setdefault(row["premise"], (row["source_id"], row["premise"], ""))
    return list(rows.values())
