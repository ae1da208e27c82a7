"""A judge that looks through a lens: what it says, held against the identifiers and thresholds of a domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragfault.judges.assemble import HOLDS, OFFERS, assemble
from ragfault.judges.claims import bare
from ragfault.judges.identifiers import Conflict, conflict, disagreement, respelled
from ragfault.judges.lens import Lens
from ragfault.judges.relevance import TASK
from ragfault.judges.scorer import Entailment, Group, Passage, Reading, Relevance, Scorer
from ragfault.ports import Part
from ragfault.records import Trace, Verdicts

__all__ = ["Lensed"]

LOWER, BELOW = 0.4, 0.05
"""What speaks about something else keeps this share of its relevance, and stays so far below the lowest level."""
BAR, UNDER = 0.5, 0.01
"""A claim that does not hold has a probability below this, and below the bar of the lens, by so much."""
AGAINST = 0.5
"""How much less likely a contradicted claim is than one that is not borne out."""


class Lensed:
    """A scorer seen through a lens: what names another thing is lowered, what names the same in other words is not.

    Identifiers reach the scorer in the spelling of the passages; beyond that a lens never raises anything.

    >>> from ragfault.judges import load_judge
    >>> from ragfault.judges.lens import load_lens
    >>> from ragfault.records import Chunk
    >>> judge = Lensed(load_judge("lexical"), load_lens("medical"))
    >>> chunk = Chunk(id="a", text="The starting dose of digoxin is 125 mcg once daily.")
    >>> trace = Trace(id="1", query="What is the dose of digoxin?", chunks=(chunk,), answer="It is 125 mg once daily.")
    >>> judge.observe([trace])[0].claim[0].support
    'contradicted'
    """

    def __init__(self, scorer: Scorer, lens: Lens) -> None:
        self.scorer, self.lens = scorer, lens

    @property
    def offers(self) -> frozenset[Part]:
        """What every judge offers that is assembled from a scorer."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """That of the scorer, and the lens by name and digest."""
        return f"{self.scorer.fingerprint} lens={self.lens.name}:{self.lens.digest}"

    def read(self, query: str = "") -> Through:
        """Begin the reading of one trace."""
        return Through(self.scorer.read(query), self.lens, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self, self.lens.levels) for trace in traces]


class Through:
    """A reading of one trace through a lens."""

    def __init__(self, reading: Reading, lens: Lens, query: str = "") -> None:
        self._reading, self._lens, self._query = reading, lens, query
        self._lowered: set[Entailment] = set()

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """As the scorer says, but for passages that speak about something else than the query asks for."""
        return self._speaks(self._reading.relevance, query, passages)

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """As the scorer says, but for texts that speak about something else than the query asks for."""
        return self._speaks(self._reading.coverage, query, passages)

    def expect(self, groups: Sequence[Group]) -> None:
        """Tell the scorer."""
        self._reading.expect(groups)

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """As the scorer says, but for claims that name another thing than the passages."""
        texts = [passage.text for passage in passages]
        seen = list(self._reading.entailment(claims, passages))
        said = {place: respelled(self._lens, claim, texts) for place, claim in enumerate(claims)}
        other = [place for place, claim in enumerate(claims) if said[place] != claim]
        again = self._reading.entailment([said[place] for place in other], passages) if other else ()
        for place, one in zip(other, again, strict=True):
            seen[place] = max(seen[place], one, key=_sure)
        return [self._borne(claim, texts, one) for claim, one in zip(claims, seen, strict=True)]

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:
        """As the scorer says, and no more probable than a claim that the lens lowered."""
        sure = self._reading.grounded(answer, claims, seen)
        return min([sure, *(one.p for one in seen if one in self._lowered)])

    def similarity(self, left: str, right: str) -> float:
        """As the scorer says."""
        return self._reading.similarity(left, right)

    def _speaks(
        self,
        tell: Callable[[str, Sequence[Passage]], Sequence[Relevance]],
        query: str,
        passages: Sequence[Passage],
    ) -> list[Relevance]:
        """What the scorer tells, asked in the spelling of each passage too, and held against the lens."""
        seen = list(tell(query, passages))
        if TASK.match(query):
            return seen
        for place, passage in enumerate(passages):
            asked = respelled(self._lens, query, [passage.text])
            if asked != query:
                seen[place] = max(seen[place], tell(asked, [passage])[0], key=_value)
        return [self._about(query, passage, one) for passage, one in zip(passages, seen, strict=True)]

    def _about(self, query: str, passage: Passage, seen: Relevance) -> Relevance:
        reason = disagreement(self._lens, query, passage.text)
        if reason is None:
            return seen
        low = self._lens.levels.low
        value = seen.value if seen.value < low else max(0.0, min(LOWER * seen.value, low - BELOW))
        return Relevance(value, reason, other=True)

    def _borne(self, claim: str, texts: Sequence[str], seen: Entailment) -> Entailment:
        if seen.support not in HOLDS:
            return seen
        bars = self._lens.support
        found = conflict(self._lens, bare(claim), texts, self._query)
        if found is None and seen.p < bars.inferred:
            found = Conflict(
                f"p = {seen.p:.2f} is below {bars.inferred:g}, the bar of the lens", direct=False
            )
        if found is None:
            if seen.support == "inferred" or seen.p >= bars.supported:
                return seen
            return seen._replace(
                support="inferred", reason=f"p is below {bars.supported:g}, the bar of the lens"
            )
        p = min(seen.p, max(bars.inferred, BAR) - UNDER) * (AGAINST if found.direct else 1.0)
        lowered = seen._replace(
            support="contradicted" if found.direct else "unsupported", p=p, reason=found.reason, unsure=False
        )
        self._lowered.add(lowered)
        return lowered


def _value(seen: Relevance) -> float:
    return seen.value


def _sure(seen: Entailment) -> float:
    return seen.p
