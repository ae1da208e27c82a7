"""Runs for the tests: real ones, evaluated from traces with verdicts written by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.protocols import VERDICT_KINDS, VerdictKind
from ragfault.model.records import (
    AnswerVerdict,
    Chunk,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    FactVerdict,
    Gold,
    Trace,
    TruthVerdict,
    UseVerdict,
    Verdicts,
)

RELEVANCE = {"high": 0.9, "medium": 0.6, "low": 0.3, "none": 0.1}

Pair = tuple[Trace, Verdicts]


class FixedJudge:
    """A judge that returns the verdicts that it was given, and none on other traces."""

    fingerprint = "told/1"
    offers: frozenset[VerdictKind] = frozenset(VERDICT_KINDS)

    def __init__(self, verdicts: Sequence[Verdicts]) -> None:
        self._verdicts = {item.trace: item for item in verdicts}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [self._verdicts.get(trace.id) or Verdicts(trace=trace.id) for trace in traces]


def evaluate_pairs(place: Path, pairs: Sequence[Pair], metrics: str | Sequence[str] = "default") -> Run:
    """Evaluate these traces with these verdicts."""
    return evaluate(
        [trace for trace, _ in pairs], place / "run", judge=FixedJudge([seen for _, seen in pairs]), metrics=metrics
    )


def pair(
    name: str,
    levels: str = "",
    supports: str = "",
    *,
    used: str = "",
    missing: tuple[str, ...] | None = (),
    relevance: float = 1.0,
    **fields: object,
) -> Pair:
    """Build a trace and its verdicts: a letter for each chunk's level, each claim's support, each use.

    h, m, l, n: high, medium, low, none; s, i, u, c: supported, inferred, unsupported, contradicted; y: used.
    """
    chunks = tuple(Chunk(id=f"{name}-{at}", text=f"Text {at} of {name}.") for at in range(len(levels)))
    answer = " ".join(f"Claim {at} holds." for at in range(len(supports))) or "An answer."
    trace = Trace(id=name, query=f"What of {name}?", chunks=chunks, answer=answer)
    full = {word[0]: word for word in (*RELEVANCE, "supported", "inferred", "unsupported", "contradicted")}
    claims = tuple(
        ClaimVerdict(claim=f"Claim {at} holds.", start=15 * at, end=15 * at + 14, support=full[sign])
        for at, sign in enumerate(supports)
    )
    seen = Verdicts(
        trace=name,
        chunk=tuple(
            ChunkVerdict(chunk=chunk.id, relevance=RELEVANCE[full[sign]], level=full[sign])
            for chunk, sign in zip(chunks, levels, strict=True)
        ),
        use=tuple(
            UseVerdict(chunk=chunk.id, used=sign == "y")
            for chunk, sign in zip(chunks, used or "y" * len(levels), strict=True)
        ),
        missing=missing,
        claim=claims,
        answer=AnswerVerdict(relevance=relevance),
    )
    return replace(trace, **fields), seen


SYSTEM_METRICS = (
    "context_relevance",
    "recall@3",
    "groundedness",
    "factual_accuracy",
    "completeness",
    "chunk_attribution",
    "chunk_utilization",
    "answer_relevance",
    "latency",
)


def evaluate_system(place: Path, pairs: Sequence[Pair], metrics: Sequence[str] = SYSTEM_METRICS) -> Run:
    """Evaluate a system's traces with the verdicts written for them."""
    return evaluate([t for t, _ in pairs], place, judge=FixedJudge([v for _, v in pairs]), metrics=metrics)


def make_verdicts(n: int, seed: int, **faults: float) -> list[Pair]:
    """Build the verdicts on n traces of a system with these rates of faults, on top of a small rate of its own.

    Of the answers that contradict the key, `source` changes the texts of the chunks too, `contradiction` does not.
    """
    rng = random.Random(seed)

    def bad(name: str, base: float = 0.05) -> bool:
        return rng.random() < base + faults.get(name, 0.0)

    contradicting = "contradiction" if "contradiction" in faults else "source"
    comparison = []
    for number in range(n):
        lost = bad("retrieval")
        levels = ("n" if lost else "h") + "mn" + "n" * int(faults.get("extra", 0))
        supports = "".join("u" if bad("grounding") else "s" for _ in range(3))
        trace, seen = pair(f"t{number}", levels, supports, relevance=0.3 if bad("wander") else 0.9)
        best = f"t{number}-lost" if lost else f"t{number}-0"
        if lost:
            trace = replace(trace, chunks=(Chunk(id=best, text=f"Nothing of t{number}."), *(trace.chunks or ())[1:]))
            seen = replace(seen, chunk=(replace(seen.chunk[0], chunk=best), *seen.chunk[1:]))
        cited = CitationVerdict(chunk=best, claim="c", supports=not bad("citing"))
        facts = tuple(FactVerdict(fact=f"f{at}", present=not bad("truncation")) for at in range(4))
        truth = tuple(
            TruthVerdict(claim=claim.claim, status="contradicted" if bad(contradicting) else "supported")
            for claim in seen.claim or ()
        )
        if "source" in faults and any(verdict.status == "contradicted" for verdict in truth):
            trace = replace(trace, chunks=tuple(replace(c, text=f"{c.text} Now 9.") for c in trace.chunks or ()))
        trace = replace(
            trace,
            answer=f"{trace.answer} The pier of version {seed} is open.",
            gold=Gold(chunks={f"t{number}-0": 1.0}),
            facts=tuple(f.fact for f in facts),
            citations=(Citation(chunk=best),),
            reference="r",
        )
        comparison.append((trace, replace(seen, citation=(cited,), fact=facts, truth=truth)))
    return comparison
