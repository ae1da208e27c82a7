"""The labels of a run: its traces with what people said of them, and its verdicts as those of a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.agreement.overlay import Reading
from ragfault.agreement.records import Task
from ragfault.errors import InputError
from ragfault.ports import PARTS, Part
from ragfault.records import Trace, Verdicts
from ragfault.runs import Run
from ragfault.runs.labels import BLIND, Key, Settled, Word, fingerprint, read_labels, settled

__all__ = ["Kept", "OfRun", "of_run"]

BAD = ("unsupported", "contradicted")


class Kept:
    """A judge that says again what it said in a run; of other traces it says nothing.

    >>> kept = Kept("told/1", [Verdicts(trace="1", missing=("the year",))])
    >>> [seen.missing for seen in kept.observe([Trace(id="1", query="When?"), Trace(id="2", query="Who?")])]
    [('the year',), None]
    """

    offers: frozenset[Part] = frozenset(PARTS)

    def __init__(self, fingerprint: str, verdicts: Sequence[Verdicts]) -> None:
        self.fingerprint = fingerprint
        self._verdicts = {each.trace: each for each in verdicts}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [self._verdicts.get(trace.id) or Verdicts(trace=trace.id) for trace in traces]


class OfRun(NamedTuple):
    """What people said of a run."""

    traces: list[Trace]
    """Those with labels, which stand in their metadata as `claims` and `grades`."""
    words: Mapping[str, Reading]
    judge: Kept
    task: Task
    notes: list[str]


def of_run(run: str | Path | Run, labels: str | Path, task: Task | None) -> OfRun:
    """The labels that `ragfault label` wrote on a run, in the form that a measurement takes.

    Words on another answer than that of the run are left out, save those on the retrieval. Raises InputError where
    no label is on a trace of the run, or none is on a claim or a chunk; RunError where there is no run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    said = settled(read_labels(labels))
    traces, words, other = [], {}, 0
    for trace in run.traces(list(said)):
        mine = _words(said[trace.id], trace)
        other += len(mine) < len(said[trace.id].words)
        words[trace.id] = Reading(mine, said[trace.id].looked)
        traces.append(replace(trace, metadata={**trace.metadata, **_columns(mine)}))
    kinds = {key[0] for each in words.values() for key in each.words}
    if not kinds & {"claim", "chunk"}:
        raise InputError(
            f"{labels} holds no label of a claim or a chunk of {run.path}. Make some with: ragfault label {run.path}"
        )
    disputed = sum(each.disputed for each in said.values())
    notes = [
        text
        for count, text in (
            (len(said) - len(traces), "labels are of no trace of the run"),
            (other, "traces have another answer now: only what was said of the retrieval counts"),
            (
                disputed,
                "words are disputed among people: the majority counts, and none where there is no majority",
            ),
        )
        if count
        for text in [f"{count:,} {text}"]
    ]
    told: Task = task or ("support" if "claim" in kinds else "relevance")
    return OfRun(traces, words, Kept(run.manifest.judge, list(run.verdicts(list(words)))), told, notes)


def _words(said: Settled, trace: Trace) -> dict[Key, Word]:
    """What holds of the words with the answer that the trace has."""
    same = said.answer in (None, fingerprint(trace))
    return {key: word for key, word in said.words.items() if same or key[0] in BLIND}


def _columns(words: Mapping[Key, Word]) -> dict[str, Any]:
    """The words on claims and chunks as columns beside a trace."""
    claims = [
        {"start": key[1], "end": key[2], "label": "unsupported" if word in BAD else "supported"}
        for key, word in words.items()
        if key[0] == "claim"
    ]
    grades = {key[1]: word for key, word in words.items() if key[0] == "chunk" and key[2] == "level"}
    return {"claims": claims or None, "grades": grades or None}
