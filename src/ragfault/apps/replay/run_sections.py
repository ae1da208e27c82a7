"""What the report of a run shows of its replays."""

from __future__ import annotations

from ragfault.apps.replay.report import build_proofs, describe_asking, summarize_proofs
from ragfault.apps.replay.store import load_replay
from ragfault.io.runs.run import Run
from ragfault.report.document import Block, Paragraph, build_section


def build_sections(run: Run) -> list[Block]:
    """Build the section on the replays of a run; nothing where it has none."""
    report = load_replay(run)
    if report is None or not report.counts:
        return []
    lead = (Paragraph(summarize_proofs(report.counts)), Paragraph(describe_asking(report), "note"))
    return build_section("Replayed causes", *lead, *build_proofs(report))
