"""Quotes: stretches of the recorded texts that show a fault, as they stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ragfault.comparison.investigation.records import Quotation
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import ExampleTrace
from ragfault.diagnosis.records import Diagnosis, ProblemKind
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace
from ragfault.text.sentences import split_sentences

MAX_QUOTES = 6
MIN_WORDS = 5
MAX_LENGTH = 300
"""Characters of a quote at most; a longer sentence is cut there."""

RunSide = Literal["baseline", "candidate"]


def quote_examples(paired: PairedRuns, examples: Sequence[ExampleTrace]) -> Iterator[Quotation]:
    """Yield at most six quotes of example traces: a chunk that is lost or new, and claims without support."""
    ids = [example.trace for example in examples][: MAX_QUOTES // 2]
    old_ids = paired.baseline_ids(ids)
    old_traces = {trace.id: trace for trace in paired.runs[0].traces(list(old_ids.values()))}
    diagnoses = {diagnosis.trace: diagnosis for diagnosis in diagnose_run(paired.runs[1], ids)}
    count = 0
    for after in paired.runs[1].traces(ids):
        before = old_traces.get(old_ids.get(after.id, ""))
        for quote in _quote_pair(before, after, diagnoses[after.id]):
            if count < MAX_QUOTES:
                count += 1
                yield quote


def _quote_pair(before: Trace | None, after: Trace, diagnosis: Diagnosis) -> Iterator[Quotation]:
    """Yield the first text that one side alone retrieved, from each side, and the first claim without support."""
    if before is not None:
        yield from _quote_lost_chunk(before, after, "baseline", "retrieved before, and not now")
        yield from _quote_lost_chunk(after, before, "candidate", "retrieved now, and not before")
    yield from _quote_claims(after, diagnosis)


def _quote_lost_chunk(trace: Trace, other: Trace, run: RunSide, reason: str) -> Iterator[Quotation]:
    texts = [chunk.text for chunk in other.chunks or ()]
    for chunk in trace.chunks or ():
        if chunk.text.strip() and not any(chunk.text in text for text in texts):
            start, end = _choose_sentence(chunk.text)
            yield Quotation(
                run=run, trace=trace.id, chunk=chunk.id, start=start, end=end, text=chunk.text[start:end], reason=reason
            )
            return


def _quote_claims(trace: Trace, diagnosis: Diagnosis, kind: ProblemKind | None = None) -> Iterator[Quotation]:
    """Yield the first claim of an answer that is a problem of a kind; of any kind without one."""
    for problem in diagnosis.problems:
        if problem.start is not None and problem.end is not None and trace.answer and kind in (None, problem.kind):
            end = min(problem.end, problem.start + MAX_LENGTH)
            yield Quotation(
                run="candidate",
                trace=trace.id,
                chunk=None,
                start=problem.start,
                end=end,
                text=trace.answer[problem.start : end],
                reason=problem.reason or problem.kind,
            )
            return


def quote_problems(run: Run, diagnoses: Sequence[Diagnosis], kind: ProblemKind | None) -> Iterator[Quotation]:
    """Yield at most six quotes of failing traces: a claim where the problem is one, else a sentence of the answer."""
    by_trace = {diagnosis.trace: diagnosis for diagnosis in diagnoses}
    for trace in run.traces(list(by_trace)[:MAX_QUOTES]):
        quotes = list(_quote_claims(trace, by_trace[trace.id], kind)) or list(_quote_answer(trace, kind))
        yield from quotes


def _quote_answer(trace: Trace, kind: ProblemKind | None) -> Iterator[Quotation]:
    """Yield the first sentence of an answer."""
    if trace.answer and trace.answer.strip():
        start, end = _choose_sentence(trace.answer)
        reason = f"the answer of a trace with {kind}"
        yield Quotation(
            run="candidate",
            trace=trace.id,
            chunk=None,
            start=start,
            end=end,
            text=trace.answer[start:end],
            reason=reason,
        )


def _choose_sentence(text: str) -> tuple[int, int]:
    """Return where the first sentence of at least five words stands, else the first; no longer than a quote may be."""
    sentences = split_sentences(text)
    start, end = next((span for span in sentences if len(text[slice(*span)].split()) >= MIN_WORDS), sentences[0])
    return start, min(end, start + MAX_LENGTH)
