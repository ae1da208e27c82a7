"""Truth of claims by a trusted corpus: each claim against its nearest passages, whatever the system retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from ragfault.io.documents import read_documents
from ragfault.judges.assembly import observe_traces
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Judge, MeteredJudge, MeteredWrapper, VerdictKind
from ragfault.model.records import Chunk, ClaimVerdict, Trace, TruthVerdict, Verdicts
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query
from ragfault.retrieval.pipeline_config import PipelineConfig, build_index

TRUSTED_CHUNKER = "sentences(128)"
PASSAGES_PER_CLAIM = 3
MAX_PASSAGES = 30
"""Passages of the trusted corpus that the claims of one answer are judged against at most."""


def load_trusted_corpus(location: str | Path | ChunkIndex) -> ChunkIndex:
    """Load a trusted corpus: documents, cut into passages of about 128 tokens and searched by words, or an index.

    Raises InputError where there is no document, MissingExtra without the extra `retrieval`.
    """
    if isinstance(location, ChunkIndex):
        return location
    return build_index(PipelineConfig(chunker=TRUSTED_CHUNKER), read_documents(str(location)))


class TrustedJudge:
    """Judge that adds the truth of claims by a trusted corpus to the verdicts of another judge.

    The passages nearest to each claim are put together, and the judge judges the answer against them as if they had
    been retrieved: a supported or inferred claim is true, a contradicted one false, of any other the corpus says
    nothing. Traces with a reference or facts keep the truth by these. Where the judge made no claims, since no chunks
    were recorded, the truth is of the claims that it makes of the answer beside the trusted passages.

    >>> from ragfault.judges.loading import load_judge
    >>> index = ChunkIndex.build([Chunk(id="a", text="The harbour office opens at 7:30 on weekdays.")])
    >>> judge = TrustedJudge(load_judge("lexical"), index)
    >>> trace = Trace(id="1", query="When does it open?", answer="The harbour office opens at 7:30 on weekdays.")
    >>> [claim.status for claim in judge.observe([trace])[0].truth]
    ['supported']
    """

    def __init__(self, judge: Judge, index: ChunkIndex, passages: int = PASSAGES_PER_CLAIM) -> None:
        if "claim" not in judge.offers:
            raise UsageError(
                f'the judge "{judge.fingerprint}" judges no claims, and a trusted corpus checks nothing else. '
                "Choose another judge, such as embedded."
            )
        self._judge, self._index, self._passages = judge, index, passages
        self._search = index.retrieve("sparse", passages)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._judge, self._index, self._passages)

    @property
    def offers(self) -> frozenset[VerdictKind]:
        return self._judge.offers | {"truth"}

    @property
    def fingerprint(self) -> str:
        """Return the judge's, with the digest of the corpus and the number of passages for a claim."""
        return f"{self._judge.fingerprint} trusted={self._index.manifest.corpus[:8]}:{self._passages}"

    @property
    def settings(self) -> Any:
        """Settings of the judge, if it has some."""
        return getattr(self._judge, "settings", None)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace, in order; where nothing is checked, the judge's own."""
        verdicts = list(self._judge.observe(traces))
        beside = [self._place_beside(trace, observed) for trace, observed in zip(traces, verdicts, strict=True)]
        augmented = [trace for trace in beside if trace is not None]
        replies = iter(observe_traces(self._judge, augmented) if augmented else ())
        return [
            replace(item if trace is None else _merge_truth(item, next(replies)), judge=self.fingerprint)
            for item, trace in zip(verdicts, beside, strict=True)
        ]

    def _place_beside(self, trace: Trace, observed: Verdicts) -> Trace | None:
        """Return the answer with the passages nearest to its claims in place of its chunks; None without any."""
        if not (trace.answer or "").strip() or trace.references or trace.facts:
            return None
        texts = [claim.claim for claim in observed.claim or ()] or [trace.answer or ""]
        passages: dict[str, Chunk] = {}
        for text in texts:
            for hit in self._search(Query(text=text), ()).hits:
                if len(passages) < MAX_PASSAGES:
                    passages.setdefault(hit.id, hit)
        if not passages:
            return None
        return Trace(id=trace.id, query=trace.query, answer=trace.answer, chunks=tuple(passages.values()))


class TrustedMeteredJudge(MeteredWrapper, TrustedJudge):
    """Judge that costs money, with a trusted corpus: each answer is judged twice."""


def trust_corpus(judge: Judge, location: str | Path | ChunkIndex | None) -> Judge:
    """Return the judge with a trusted corpus; None changes nothing."""
    if location is None:
        return judge
    index = load_trusted_corpus(location)
    return TrustedMeteredJudge(judge, index) if isinstance(judge, MeteredJudge) else TrustedJudge(judge, index)


def _merge_truth(observed: Verdicts, beside: Verdicts) -> Verdicts:
    """Return the verdicts with the truth by the trusted passages."""
    failures = {kind: beside.failures[kind] for kind in ("*", "claim") if kind in beside.failures}
    if failures:
        return replace(observed, failures={**observed.failures, "truth": next(iter(failures.values()))})
    by_place = {(claim.start, claim.end): claim for claim in beside.claim or ()}
    claims = observed.claim if observed.claim is not None else beside.claim or ()
    truth = tuple(
        TruthVerdict(claim=claim.claim, status=_find_status(by_place.get((claim.start, claim.end)))) for claim in claims
    )
    return replace(observed, truth=truth)


def _find_status(claim: ClaimVerdict | None) -> Literal["supported", "contradicted", "unknown"]:
    if claim is None or claim.support == "unsupported":
        return "unknown"
    return "contradicted" if claim.support == "contradicted" else "supported"
