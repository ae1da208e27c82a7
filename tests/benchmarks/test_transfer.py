"""Laws of the systems made of software of others: releases repeat, and each kind changes what it says."""

from __future__ import annotations

import pytest

from installed import skip_without

skip_without("llama_index", reason="llama-index cuts the documents")
skip_without("bm25s", reason="the extra retrieval is not installed")
skip_without("sklearn", reason="the extra cluster is not installed")

from benchmarks.faults.transfer.corpora import Corpus, Question
from benchmarks.faults.transfer.kinds import HARMLESS, KINDS, Kind
from benchmarks.faults.transfer.releases import Output, build_base, run_release

DOCUMENTS = {
    f"pier-{n}": f"The ferry to pier {n} leaves at {n} o'clock. Cabins cost {n + 40} pounds. Captain Holm sails it."
    f"\n\nDogs travel free to pier {n} on Sundays. The office is closed in March. Boats wait for {n} minutes."
    for n in range(30)
}
QUESTIONS = [
    Question(
        str(n),
        f"What do cabins on the ferry to pier {n} cost?",
        (f"Cabins cost {n + 40} pounds.",),
        references=(f"{n + 40} pounds",),
        group=f"part-{n % 2}",
    )
    for n in range(30)
]
KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
CORPUS = Corpus("clapnq", DOCUMENTS, {name: f"part-{at % 2}" for at, name in enumerate(DOCUMENTS)}, QUESTIONS)


def run_kind(kind: Kind | None) -> Output:
    base = build_base(CORPUS)
    release = base if kind is None else build_base(CORPUS, seed=1, **kind.change(base))
    return run_release(CORPUS, release, QUESTIONS)


@pytest.mark.long
def test_every_kind_runs_and_a_release_repeats():
    """The same release gives the same traces; a fault changes some, and every change leaves all queries a trace."""
    base = run_kind(None)
    assert base.traces == run_kind(None).traces
    kinds = [kind for kind in (*KINDS, *HARMLESS) if not kind.systems or "clapnq" in kind.systems]
    for kind in kinds:
        traces = run_kind(kind).traces
        assert traces if kind.name == "traffic-shift" else len(traces) == len(QUESTIONS)
        assert not kind.layers or traces != base.traces, kind.name
    assert {len(trace.chunks or ()) for trace in run_kind(KINDS_BY_NAME["one-chunk"]).traces} == {1}
    assert any(trace.error for trace in run_kind(KINDS_BY_NAME["time-outs"]).traces)
