"""Background lexicon: inverse document frequency of stems, spelling variants, and discourse markers."""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ragfault.text.normalization import stem_word

ALIAS_PAIRS = """
alabama al|alaska ak|arizona az|arkansas ar|california ca|california calif|colorado co|connecticut ct|delaware de
florida fl|georgia ga|hawaii hi|idaho id|illinois il|indiana in|iowa ia|kansas ks|kentucky ky|louisiana la
maine me|maryland md|massachusetts ma|michigan mi|minnesota mn|mississippi ms|missouri mo|montana mt|nebraska ne
nevada nv|ohio oh|oklahoma ok|oregon or|pennsylvania pa|tennessee tn|texas tx|utah ut|vermont vt|virginia va
washington wa|wisconsin wi|wyoming wy|governor gov|senator sen|doctor dr|street st|avenue ave|road rd|boulevard blvd
mount mt|saint st|january jan|february feb|august aug|september sept|september sep|october oct|november nov
december dec|monday mon|tuesday tue|tuesday tues|wednesday wed|thursday thu|thursday thur|friday fri|saturday sat
sunday sun|television tv|television tvs|company co|corporation corp|incorporated inc|limited ltd|number no
kilogram kg|kilometer km|kilometre km|meter m|centimeter cm|millimeter mm|gram g|milligram mg|liter l|pound lb
pound lbs|ounce oz|foot ft|feet ft|inch in|mile mi|hour hr|minute min|second sec|percent percentage|okay ok
versus vs|photograph photo|telephone phone|examination exam|automobile car|approximate about
united us|united usa|states us|states usa|america us|america usa|britain uk|kingdom uk|vietnam viet
"""
ALIASES: dict[str, frozenset[str]] = {}
for _alias_pair in ALIAS_PAIRS.replace("\n", "|").split("|"):
    if _alias_pair:
        _first, _second = map(stem_word, _alias_pair.split())
        ALIASES[_first] = ALIASES.get(_first, frozenset()) | {_second}
        ALIASES[_second] = ALIASES.get(_second, frozenset()) | {_first}

LINKING_WORDS = """
additionally also altogether besides consequently essentially finally firstly furthermore generally hence
however importantly indeed instead interestingly lastly likewise meanwhile moreover namely nevertheless
nonetheless notably otherwise overall particularly secondly similarly specifically subsequently thereby
therefore thirdly thus ultimately according including include based given provide provided mention mentioned passage
note noted following example respectively
"""
LINKING_STEMS = frozenset(map(stem_word, LINKING_WORDS.split()))
"""Stems of discourse markers and of words about the passage, which assert no fact."""


class IdfTable(NamedTuple):
    """Rarity (inverse document frequency) of stems: the natural logarithm of all texts / texts with the stem."""

    rarities: dict[str, float]
    default: float
    """The rarity of a stem that is not in the table."""
    digest: str
    """Identifies the table in a judge's fingerprint."""

    def __call__(self, stem: str) -> float:
        return self.rarities.get(stem, self.default)

    def sum_rarity(self, stems: Iterable[str]) -> float:
        get, unseen = self.rarities.get, self.default
        return sum([get(stem, unseen) for stem in stems])


@cache
def load_idf() -> IdfTable:
    """Load the packaged table, once.

    >>> table = load_idf()
    >>> table("peopl") < table("glacier") < table("xyzzy")
    True
    """
    data = files(__package__).joinpath("rarity.txt.gz").read_bytes()
    head, *lines = gzip.decompress(data).decode().split("\n")
    facts = dict(zip(head.split()[::2], map(float, head.split()[1::2]), strict=True))
    levels = {
        sys.intern(stem): int(level) / facts["step"]
        for level, _, stems in (line.partition(" ") for line in lines)
        for stem in stems.split(" ")
    }
    return IdfTable(levels, facts["unseen"] / facts["step"], hashlib.sha256(data).hexdigest()[:8])
