"""The index of a trace's passages: which sentence holds which word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ragfault.judges.aliases import ALIASES
from ragfault.judges.passages import Sentence, read

__all__ = ["Index", "Passage"]

NONE: frozenset[str] = frozenset()
COMMON = 300
"""A word votes for at most so many sentences; beyond that it tells nothing."""


class Passage(NamedTuple):
    """A text under a name: a chunk, an answer or a reference."""

    name: str
    text: str


class Index:
    """All sentences of some passages, found by the stems they hold.

    >>> index = Index([Passage("a", "Cats sleep. Dogs bark."), Passage("b", "Dogs sleep.")])
    >>> [index.owner[place] for place in index.postings["sleep"]]
    [0, 1]
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)
        self.sentences: list[Sentence] = []
        self.owner: list[int] = []
        """For each sentence the number of its passage."""
        self.postings: defaultdict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self.passages):
            held = read(passage.text)
            self.sentences += held
            self.owner += [number] * len(held)
        for place, sentence in enumerate(self.sentences):
            for word in sentence.content:
                self.postings[word].append(place)
        self._near: dict[tuple[str, bool], bool] = {}
        self.fields = tuple(
            dict.fromkeys((one.key, one.polarity) for one in self.sentences if one.key and one.polarity)
        )
        """What records say of their keys."""

    @cached_property
    def tokens(self) -> list[str]:
        """All words in a row."""
        return [word for sentence in self.sentences for word in sentence.tokens]

    @cached_property
    def bigrams(self) -> frozenset[tuple[str, str]]:
        """All pairs of neighbours."""
        return frozenset(pairwise(self.tokens))

    @cached_property
    def known(self) -> frozenset[str]:
        """All words."""
        return frozenset(self.tokens)

    @cached_property
    def trigrams(self) -> frozenset[tuple[str, str, str]]:
        """All runs of three."""
        return frozenset(zip(self.tokens, self.tokens[1:], self.tokens[2:], strict=False))

    @cached_property
    def prefixes(self) -> frozenset[str]:
        """How the long words begin."""
        return frozenset([stem[:6] for stem in self.postings if len(stem) >= 6 and stem.isalpha()])

    def source(self, place: int) -> str:
        """The text of a sentence as its passage has it."""
        sentence = self.sentences[place]
        return self.passages[self.owner[place]].text[sentence.start : sentence.end]

    def near(self, word: str, *, name: bool = False) -> bool:
        """Whether a word not in the index is there in another form: as an alias, derived, or in two words."""
        known = self._near.get((word, name))
        if known is None:
            known = self._near[word, name] = self._formed(word, name)
        return known

    def _formed(self, word: str, name: bool) -> bool:
        if not ALIASES.get(word, NONE).isdisjoint(self.postings):
            return True
        if not word.isalpha():
            return False
        if not name and len(word) >= 6 and word[:6] in self.prefixes:
            return True
        known = self.known
        return any(
            word[:cut] in known and word[cut:] in known and (word[:cut], word[cut:]) in self.bigrams
            for cut in range(1 if len(word) < 4 else 2, min(len(word) - 1, 12))
        )

    def beside(self, one: str, two: str) -> bool:
        """Whether two words stand side by side somewhere; alone, whether the first is there."""
        return (one, two) in self.bigrams or (not two and one in self.postings)

    def votes(self, weights: dict[str, float]) -> dict[int, float]:
        """For each sentence that shares a word with the weights, the weight it shares."""
        votes: defaultdict[int, float] = defaultdict(float)
        for word, weight in weights.items():
            for place in self.postings.get(word, ())[:COMMON]:
                votes[place] += weight
        return votes
