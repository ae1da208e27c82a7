"""Runs for the tests of the HTML report: fair traces, a hostile one, and an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragfault.diagnosis.causes.storage import tabulate_causes
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.io.runs.writer import PartialRun, RunPlan, encode_part
from ragfault.metrics.catalog import compute_score_table
from ragfault.metrics.selection import select_metrics
from ragfault.model.records import (
    AnswerVerdict,
    Aspect,
    Chunk,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    Evidence,
    Latency,
    Trace,
    UseVerdict,
    Verdicts,
)

HOSTILE = (
    "</script><script>window.pwned=1</script>"
    "<img src=x onerror='window.pwned=2'><a href='javascript:window.pwned=3'>go</a>"
    "<iframe src='https://example.invalid/'></iframe>\u2028{{script}} &lt;b&gt; "
    "\x1b[31mred \u202etxt.exe\u202c ]]> <!-- "
)


def build_run(out: Path, pairs: Sequence[tuple[Trace, Verdicts]], judge: str = "by hand") -> Run:
    """Build a run of traces and verdicts with the scores of all default metrics."""
    metrics = select_metrics("default")

    def end(value: float) -> float | None:
        return value if abs(value) != float("inf") else None

    measures = tuple(
        MetricInfo(str(m), m.definition.layer, m.definition.better, *map(end, m.definition.range)) for m in metrics
    )
    plan = RunPlan(
        ragfault="0", judge=judge, metrics=measures, fingerprint="f", traces=len(pairs), source=(HOSTILE,), batch=500
    )
    partial = PartialRun.begin(out, plan)
    for number in range(0, len(pairs), 500):
        part = pairs[number : number + 500]
        traces, verdicts = [trace for trace, _ in part], [seen for _, seen in part]
        scores = compute_score_table(metrics, traces, verdicts, "ignore")
        partial.write_blobs(
            number // 500, encode_part(traces, verdicts, tabulate_causes(traces, verdicts, "ignore"), scores)
        )
    return partial.finish()


def build_fair_trace(name: str, route: str = "help") -> tuple[Trace, Verdicts]:
    """Build a trace with a supported claim, an unsupported one, and an emoji before the evidence."""
    text = f"🚢 The {name} sails at nine. 🚢 It carries cars."
    at = text.index("It carries")
    answer = f"The {name} sails at nine. It also serves soup."
    cut = answer.index("It also")
    trace = Trace(
        id=name,
        query=f"When does the {name} sail?",
        chunks=(Chunk(id="timetable", text=text, document="t.md"), Chunk(id="other", text="Nothing of note.")),
        answer=answer,
        citations=(Citation(chunk="timetable", quote="sails at nine"),),
        route=route,
        latency=Latency(total=120.0),
    )
    seen = Verdicts(
        trace=name,
        chunk=(
            ChunkVerdict(chunk="timetable", relevance=0.9, level="high", reason="names it"),
            ChunkVerdict(chunk="other", relevance=0.1, level="none"),
        ),
        missing=("the day of the week",),
        use=(UseVerdict(chunk="timetable", used=True), UseVerdict(chunk="other", used=False)),
        claim=(
            ClaimVerdict(
                claim=answer[: cut - 1],
                start=0,
                end=cut - 1,
                support="supported",
                p=0.97,
                evidence=(Evidence(chunk="timetable", start=2, end=at - 3),),
            ),
            ClaimVerdict(
                claim=answer[cut:],
                start=cut,
                end=len(answer),
                support="unsupported",
                reason="no soup",
                unsupported_spans=((cut + 4, cut + 9),),
            ),
        ),
        citation=(CitationVerdict(chunk="timetable", claim=answer[: cut - 1], supports=True),),
        answer=AnswerVerdict(relevance=0.8, aspects=(Aspect(text="the time", answered=True),)),
    )
    return trace, seen


def build_hostile_trace() -> tuple[Trace, Verdicts]:
    """Build a trace in which every text is an attack."""
    n = len(HOSTILE)
    trace = Trace(
        id=HOSTILE,
        query=HOSTILE,
        chunks=(Chunk(id=HOSTILE, text=HOSTILE * 2, document=HOSTILE, metadata={HOSTILE: HOSTILE}),),
        answer=HOSTILE,
        citations=(Citation(chunk=HOSTILE, quote=HOSTILE, claim=HOSTILE),),
        reference=HOSTILE,
        facts=(HOSTILE,),
        route=HOSTILE,
        model=HOSTILE,
        conversation=HOSTILE,
        error=HOSTILE,
        metadata={HOSTILE: [HOSTILE], "url": "javascript:alert(1)"},
    )
    seen = Verdicts(
        trace=HOSTILE,
        chunk=(ChunkVerdict(chunk=HOSTILE, relevance=0.1, level="none", reason=HOSTILE),),
        missing=(HOSTILE,),
        use=(UseVerdict(chunk=HOSTILE, used=True),),
        claim=(
            ClaimVerdict(
                claim=HOSTILE,
                start=0,
                end=n,
                support="contradicted",
                evidence=(Evidence(chunk=HOSTILE, start=3, end=2 * n + 99),),
                reason=HOSTILE,
                unsupported_spans=((2, n // 2), (n // 2 + 3, 2 * n)),
            ),
        ),
        citation=(CitationVerdict(chunk=HOSTILE, claim=HOSTILE, supports=False),),
        answer=AnswerVerdict(relevance=0.2, aspects=(Aspect(text=HOSTILE, answered=False),)),
        failures={"truth": HOSTILE},
    )
    return trace, seen


def build_mixed_run(place: Path) -> Run:
    """Build twelve fair traces of two routes, a hostile one, and an empty one."""
    pairs = [build_fair_trace(f"ship-{n}", "help" if n % 3 else "sales") for n in range(12)]
    bare = (Trace(id="bare", query="", chunks=()), Verdicts(trace="bare"))
    return build_run(place / "<b>harbour", [*pairs, build_hostile_trace(), bare], judge=HOSTILE)
