"""Judging: a trace, asked about in at most two calls (but for long traces, votes and repairs), and its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ragfault.judges.lexical import Lexical
from ragfault.judges.llm.asking import likened, reversing
from ragfault.judges.llm.calls import Call, Caller, CallFailed
from ragfault.judges.llm.conversing import Said, converse, lose, together
from ragfault.judges.llm.fences import Fenced, Line
from ragfault.judges.llm.injection import injections
from ragfault.judges.llm.matter import Matter, matter
from ragfault.judges.llm.merging import joined, settled
from ragfault.judges.llm.planning import everything, generation, retrieval
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.reading import Wanted
from ragfault.judges.llm.requests import Request, call
from ragfault.judges.llm.settings import Settings
from ragfault.judges.llm.verdicts import failures, generated, retrieved
from ragfault.records import Trace, Verdicts

__all__ = ["judged", "planned"]

SO_FAR = "Missing after other chunks; name what of it is missing still:"

T = TypeVar("T")


class Plan(NamedTuple):
    """What is asked about a trace."""

    matter: Matter
    chains: list[list[Request]]
    """On what was retrieved: requests that follow on each other."""
    requests: list[Request]
    """On what was generated."""
    above: list[Said]
    """What cannot be asked of the one, with the reason."""
    below: list[Said]
    """And of the other."""


async def judged(
    trace: Trace, caller: Caller, settings: Settings, prompts: Prompts, fingerprint: str
) -> Verdicts:
    """The verdicts on one trace.

    What a call was to say and did not is named in `failures`, with its reason; Stopped passes through. Where
    `settings.context` is None no limit is known, and only what a reply has no room for is split.
    """
    plan = _plan(trace, settings, prompts)
    count = range(settings.votes)
    votes = await together([_voted(plan, caller, settings, prompts, vote) for vote in count])
    upper, lower = settled([one for one, _ in votes]), settled([one for _, one in votes])
    parts = retrieved(plan.matter, upper, prompts.lens) | generated(plan.matter, lower, prompts.lens)
    return Verdicts(
        trace=trace.id,
        judge=fingerprint,
        **parts,
        injections=injections(trace),
        failures=failures(upper, lower),
    )


def planned(trace: Trace, settings: Settings, prompts: Prompts) -> list[Call]:
    """The calls that judging a trace will make, all votes and splits among them, and no repairs.

    Of a chain, later calls are as they would be were nothing missing.
    """
    plan = _plan(trace, settings, prompts)
    each = [request for chain in plan.chains for request in chain] + plan.requests
    return [call(request, prompts, vote) for request in each for vote in range(settings.votes)]


def _plan(trace: Trace, settings: Settings, prompts: Prompts) -> Plan:
    """What is asked about a trace, and what cannot be."""
    asked = matter(trace, settings)
    upper, lower = everything(asked, settings)
    chains, above = _tried(lambda: retrieval(asked, settings, prompts), upper)
    requests, below = _tried(lambda: generation(asked, settings, prompts), lower)
    if requests and settings.reverse:
        wanted: Wanted = {"questions": (), "noncommittal": ()}
        further, unasked = _tried(lambda: [reversing(trace.answer or "", settings, prompts)], wanted)
        requests, below = [*requests, *further], [*below, *unasked]
    unseen = [one.name for one in asked.chunks or () if one.unseen]
    if unseen:
        lost = {name: f"{name} is an image that is not sent (settings: images)" for name in unseen}
        above = [*above, Said({}, {}, {"chunks": lost})]
        below = [*below, Said({}, {}, {"used": lost})] if lower else below
    return Plan(asked, chains, requests, above, below)


def _tried(made: Callable[[], list[T]], wanted: Wanted) -> tuple[list[T], list[Said]]:
    """Requests, or what is lost because there can be none."""
    try:
        return made(), []
    except CallFailed as error:
        return [], [lose(wanted, str(error))]


async def _voted(
    plan: Plan, caller: Caller, settings: Settings, prompts: Prompts, vote: int
) -> tuple[Said, Said]:
    """What one vote says on what was retrieved, and on what was generated."""
    chains = [*plan.chains, *([request] for request in plan.requests)]
    said = await together([_chain(chain, caller, prompts, vote) for chain in chains])
    count = len(plan.chains)
    above = joined([*plan.above, *(one for each in said[:count] for one in each)])
    below = joined([*plan.below, *(one for each in said[count:] for one in each)])
    if settings.reverse and plan.requests:
        query = plan.matter.trace.query
        below = likened(query, below, Lexical().read(query).similarity)
    return above, below


async def _chain(chain: Sequence[Request], caller: Caller, prompts: Prompts, vote: int) -> list[Said]:
    """What is said group by group, each told what is missing after those before it."""
    said: list[Said] = []
    for request in chain:
        known = said[-1].free.get("missing", ()) if said else ()
        if known and "missing" in request.wanted:
            so_far = (Line(SO_FAR), Fenced("missing", "\n".join(known)))
            request = request._replace(parts=(*request.parts, *so_far))  # noqa: PLW2901
        said.append(await converse(request, caller, prompts, vote))
    return said
