"""Judges made of judges: a jury that asks all of them, and a cascade whose second judge sees what the first doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec.structs import asdict, replace

from ragfault.judges.assembly import grade_relevance, observe_traces
from ragfault.judges.domain.profile import RelevanceLevels
from ragfault.judges.llm.estimates import CostEstimate
from ragfault.judges.pooling import estimate_groundedness, pool_verdicts, shorten_fingerprint
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Judge, MeteredJudge, VerdictKind
from ragfault.model.records import MemberVerdicts, Trace, Usage, Verdicts

VERSION = 1
DEFAULT_CERTAINTY = 0.64
"""A cascade asks its second judge if the first is less certain of an answer than this, as `judge measure` counts it."""
AUDIT_SHARE = 0.1
"""Share of the answers of which the first judge is certain that the second one sees too: they correct the means."""


class CombinedJudge:
    """A judge made of others: a jury, or with a `certainty` a cascade.

    A jury asks all `members` about each trace and pools what they say (`pool_verdicts`). A cascade asks the second one
    about the answers that the first calls right or wrong with less than this `certainty` (from 0.5 to 1); it decides
    those. It also sees `AUDIT_SHARE` of the others, drawn by their content: there the first judge's verdict stands, and
    the second's corrects the means. The verdicts of each judge are kept in `Verdicts.members`.

    Raises UsageError for fewer than two judges, for equal ones, or a certainty out of its range.
    """

    def __init__(self, members: Sequence[Judge], certainty: float | None = None) -> None:
        self.members, self.certainty = tuple(members), certainty
        kind = "jury" if certainty is None else "cascade"
        names = [member.fingerprint for member in self.members]
        if len(set(names)) < max(2, len(names)) or (certainty is not None and len(names) > 2):
            count = "two different judges" if certainty is not None else "two or more different judges"
            listed = ", ".join(map(shorten_fingerprint, names))
            raise UsageError(f"a {kind} is made of {count}, such as {kind}:embedded,lexical; these are: {listed}.")
        if certainty is not None and not 0.5 <= certainty <= 1:
            raise UsageError(f"the certainty of a cascade is a number from 0.5 to 1, not {certainty:g}.")
        terms = "" if certainty is None else f" certainty={certainty:g} audit={AUDIT_SHARE:g}"
        self._fingerprint = (
            f"{kind}/{VERSION}:{'+'.join(map(shorten_fingerprint, names))}{terms} of {' | '.join(names)}"
        )

    @property
    def offers(self) -> frozenset[VerdictKind]:
        return frozenset().union(*(member.offers for member in self.members))

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def settings(self) -> Any:
        """Settings of the first member that has some."""
        own = (getattr(item, "settings", None) for item in self.members)
        return next((settings for settings in own if settings is not None), None)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace, in order; raises what the judges raise."""
        if self.certainty is None:
            return [self._combine(seen, 1.0) for seen in zip(*self._ask_members(traces), strict=True)]
        opinions = [[verdicts] for verdicts in observe_traces(self.members[0], traces)]
        chances = [self._find_chance(first) for (first,) in opinions]
        asked = _choose_asked(traces, chances)
        second = observe_traces(self.members[1], [traces[number] for number in asked]) if asked else []
        for number, verdicts in zip(asked, second, strict=True):
            opinions[number].append(verdicts)
        return [self._combine(seen, chance) for seen, chance in zip(opinions, chances, strict=True)]

    def _ask_members(self, traces: Sequence[Trace]) -> list[list[Verdicts]]:
        """Ask every judge about all traces: those that wait for a network at once, and the others meanwhile."""
        waiting = [number for number, member in enumerate(self.members) if isinstance(member, MeteredJudge)]
        with ThreadPoolExecutor(max(1, len(waiting))) as pool:
            asked = {number: pool.submit(observe_traces, self.members[number], traces) for number in waiting}
            computed = {
                number: observe_traces(member, traces)
                for number, member in enumerate(self.members)
                if number not in asked
            }
            return [asked[at].result() if at in asked else computed[at] for at in range(len(self.members))]

    def _find_chance(self, first: Verdicts) -> float:
        """Return the probability with which the second judge sees a trace, from the first one's verdicts only."""
        if first.failures:
            return 1.0
        grounded = estimate_groundedness(first)
        is_certain = grounded is None or max(grounded, 1 - grounded) >= (self.certainty or 0.0)
        return AUDIT_SHARE if is_certain else 1.0

    def _combine(self, seen: Sequence[Verdicts], chance: float) -> Verdicts:
        members = tuple(map(_strip_members, seen))
        if self.certainty is None:
            parts = pool_verdicts(members)
            parts["chunk"] = parts["chunk"] and tuple(
                replace(chunk, level=grade_relevance(chunk.relevance, self._levels)) for chunk in parts["chunk"]
            )
            return Verdicts(trace=seen[0].trace, judge=self.fingerprint, members=members, **parts)
        decided = seen[0] if chance < 1 else _fill_parts(seen[-1], seen[0])
        return replace(decided, judge=self.fingerprint, members=members, chance=chance)

    @property
    def _levels(self) -> RelevanceLevels:
        return getattr(self.members[0], "levels", RelevanceLevels())


class CombinedMeteredJudge(CombinedJudge):
    """A judge made of others of which some cost money."""

    @property
    def _metered(self) -> list[MeteredJudge]:
        return [cast("MeteredJudge", member) for member in self.members if isinstance(member, MeteredJudge)]

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        for number, member in enumerate(self._metered):
            # Each has a share of the budget, and an account of its own: the usage of a shared one would count twice.
            member.begin(f"{budget_id} judge {number}" if number else budget_id, fresh=fresh)

    @property
    def usage(self) -> Usage:
        total = Usage()
        for member in self._metered:
            total = total.combine(member.usage)
        return total

    def end(self) -> None:
        for member in self._metered:
            member.end()

    def estimate(self, traces: Iterable[Trace]) -> CostEstimate:
        """Estimate calls and cost of each judge that calls a model; sends nothing.

        The second judge of a cascade is asked about what the first is unsure of if that one computes here, and is
        counted with all traces if the first one calls a model, too.
        """
        listed = list(traces)
        first, *others = self.members
        asked = listed
        if self.certainty is not None and not isinstance(first, MeteredJudge):
            chances = [self._find_chance(verdicts) for verdicts in observe_traces(first, listed)]
            asked = [listed[number] for number in _choose_asked(listed, chances)]
        estimates = [first.estimate(listed)] if isinstance(first, MeteredJudge) else []  # type: ignore[attr-defined]
        estimates += [member.estimate(asked) for member in others if isinstance(member, MeteredJudge)]  # type: ignore[attr-defined]
        too_long = max(item.too_long for item in estimates)
        return CostEstimate(len(listed), (), too_long, judge=self.fingerprint, members=tuple(estimates))


def combine_judges(members: Sequence[Judge], certainty: float | None = None) -> CombinedJudge:
    """Combine judges into a jury, or with a certainty into a cascade; raises what `CombinedJudge` raises.

    >>> from ragfault.judges.loading import load_judge
    >>> combine_judges([load_judge("embedded"), load_judge("lexical")]).fingerprint.split()[0]
    'jury/1:embedded/7+lexical/8'
    """
    metered = any(isinstance(member, MeteredJudge) for member in members)
    return (CombinedMeteredJudge if metered else CombinedJudge)(members, certainty)


def list_second_verdicts(verdicts: Verdicts) -> Iterator[Verdicts]:
    """Yield what the second judge of a cascade observed, if it saw the trace, with what only the first judges."""
    if verdicts.chance is not None and len(verdicts.members) > 1:
        first, second = verdicts.members[:2]
        yield Verdicts(**asdict(_fill_parts(second, first)))


def _fill_parts(verdicts: Any, others: MemberVerdicts) -> Any:
    """Return verdicts with the parts of others that they lack and did not fail on."""
    lacking = {
        name: part
        for name in others.__struct_fields__
        if name not in verdicts.failures
        and "*" not in verdicts.failures
        and getattr(verdicts, name) is None
        and (part := getattr(others, name)) is not None
    }
    return replace(verdicts, **lacking)


def _strip_members(verdicts: Verdicts) -> MemberVerdicts:
    return MemberVerdicts(**{name: getattr(verdicts, name) for name in MemberVerdicts.__struct_fields__})


def _choose_asked(traces: Sequence[Trace], chances: Sequence[float]) -> list[int]:
    """Return the places of the traces that the second judge sees, each with its chance."""
    pairs = enumerate(zip(traces, chances, strict=True))
    return [number for number, (trace, chance) in pairs if chance == 1 or _draw_number(trace) < chance]


def _draw_number(trace: Trace) -> float:
    """Draw a number in [0, 1) from what judges see of a trace."""
    content = msgspec.json.encode((trace.query, trace.answer, [chunk.text for chunk in trace.chunks or ()]))
    return int.from_bytes(blake2b(content, digest_size=7).digest()) / 2**56
