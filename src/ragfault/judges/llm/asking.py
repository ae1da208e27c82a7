"""Asking: other uses of a model, the questions that an answer answers and the relevance of passages in quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from ragfault.judges.lexical import Lexical
from ragfault.judges.llm.calls import Caller, CallFailed
from ragfault.judges.llm.conversing import Said, converse, together
from ragfault.judges.llm.fences import Fenced
from ragfault.judges.llm.hidden import clear
from ragfault.judges.llm.matter import numbered
from ragfault.judges.llm.merging import settled
from ragfault.judges.llm.planning import room
from ragfault.judges.llm.prompts import Prompts
from ragfault.judges.llm.requests import Request
from ragfault.judges.llm.settings import Settings
from ragfault.judges.llm.sizes import entries, packed, pieces, weight

__all__ = ["Reversed", "likened", "questions", "relevance", "reversing"]


class Reversed(NamedTuple):
    """How relevant an answer is, by the questions that it answers."""

    relevance: float
    """The mean likeness of the questions to the query, in [0, 1]; 0 for an answer that commits itself to nothing."""
    spread: float | None
    """The standard deviation over the votes; None where there was one."""
    questions: tuple[str, ...]
    """Those of one vote."""


async def questions(
    query: str,
    answer: str,
    caller: Caller,
    settings: Settings,
    prompts: Prompts,
    similarity: Callable[[str, str], float] | None = None,
) -> Reversed:
    """How relevant an answer is: how like the questions that it answers are to the query, unseen by the model.

    Three questions and their mean cosine, as the answer relevance of Es et al. 2023 (RAGAS). `similarity` is that
    cosine; without it, that of the lexical judge, of rare words and letters. Raises CallFailed where the model says
    nothing of use.
    """
    alike = similarity or Lexical().read(query).similarity
    request = reversing(answer, settings, prompts)
    votes = await together([converse(request, caller, prompts, vote) for vote in range(settings.votes)])
    said = settled([likened(query, one, alike) for one in votes])
    if "relevance" not in said.free:
        raise CallFailed(f"no questions that the answer answers: {_why(said.lost)}")
    return Reversed(said.free["relevance"], said.spread.get("relevance"), said.free.get("questions", ()))


def reversing(answer: str, settings: Settings, prompts: Prompts) -> Request:
    """The request for the questions that an answer answers. Raises CallFailed where it is too long for the model."""
    part = Fenced("answer", answer)
    room("questions", [part], settings, prompts)
    return Request("questions", {"questions": (), "noncommittal": ()}, (part,))


async def relevance(
    query: str, texts: Sequence[str], caller: Caller, settings: Settings, prompts: Prompts
) -> list[float]:
    """How much each text helps to answer a query, in [0, 1], in quick: one call for many, no reasons, no votes.

    A text without a word has 0. Raises CallFailed where the model leaves some of them out in spite of a repair request.
    """
    parts = [part for part in numbered("p", texts) if clear(part.text).strip()]
    if not parts:
        return [0.0] * len(texts)
    head = Fenced("query", query)
    left = room("relevance", [head], settings, prompts)
    cut = [piece for part in parts for piece in pieces(part, left.request)]
    sizes = [max(weight(piece) / left.request, entries(["passages"]) / left.reply) for piece in cut]
    said = await together(
        [converse(_quick(head, group), caller, prompts) for group in packed(cut, sizes, 1.0)]
    )
    values = _best(said)
    lost = [part.name for part in parts if part.name not in values]
    if lost:
        why = next(filter(None, (_why(one.lost) for one in said)), "")
        raise CallFailed(f"no relevance of the passages {', '.join(lost)}: {why}")
    return [values.get(f"p{place}", 0.0) for place in range(1, len(texts) + 1)]


def _quick(head: Fenced, group: Sequence[Fenced]) -> Request:
    """The request for some passages."""
    names = tuple(dict.fromkeys(piece.name.split()[0] for piece in group))
    return Request("relevance", {"passages": names}, (head, *group))


def _best(said: Sequence[Said]) -> dict[str, float]:
    """Name of a passage → the relevance of its best piece, where none was lost."""
    values: dict[str, float] = {}
    for one in said:
        for name, item in one.items.get("passages", {}).items():
            values[name] = max(values.get(name, 0.0), item.relevance)
    lost = {name for one in said for name in one.lost.get("passages", {})}
    return {name: value for name, value in values.items() if name not in lost}


def likened(query: str, said: Said, alike: Callable[[str, str], float]) -> Said:
    """What one vote said, and with it the relevance: how like the questions that it names are to the query."""
    asked = [one for one in said.free.get("questions", ()) if one]
    if said.free.get("noncommittal"):
        return said._replace(free=said.free | {"relevance": 0.0})
    if asked:
        mean = fmean(min(1.0, max(0.0, alike(one, query))) for one in asked)
        return said._replace(free=said.free | {"relevance": mean})
    lost = {"": _why(said.lost) or "the model names no question that the answer answers"}
    return said._replace(lost=said.lost | {"relevance": lost})


def _why(lost: Mapping[str, Mapping[str, str]]) -> str:
    """The first reason for which something was lost."""
    return next((why for reasons in lost.values() for why in reasons.values()), "")
