"""What the report of a run shows of its replays."""

from __future__ import annotations

from ragfault.apps.replay.experiments.experiment_report import (
    build_change_body,
    build_fix_body,
    summarize_change,
    summarize_fix,
)
from ragfault.apps.replay.records import ChangeReplay, FixReplay, ReplayReport
from ragfault.apps.replay.report import build_proofs, describe_asking, describe_usage, summarize_proofs
from ragfault.apps.replay.store import load_result
from ragfault.io.runs.run import Run
from ragfault.report.document import Block, Paragraph, build_section


def build_sections(run: Run) -> list[Block]:
    """Build the sections on the replays of a run; nothing where it has none."""
    blocks: list[Block] = []
    causes, fix, change = load_result(run, ReplayReport), load_result(run, FixReplay), load_result(run, ChangeReplay)
    if causes is not None and causes.counts:
        lead = (Paragraph(summarize_proofs(causes.counts)), Paragraph(describe_asking(causes), "note"))
        blocks += build_section("Replayed causes", *lead, *build_proofs(causes))
    if fix is not None:
        lead = (Paragraph(summarize_fix(fix)), Paragraph(describe_usage(fix.model, fix.usage), "note"))
        blocks += build_section("Replayed fix", *lead, *build_fix_body(fix))
    if change is not None:
        lead = (Paragraph(summarize_change(change)), Paragraph(describe_usage(change.model, change.usage), "note"))
        blocks += build_section("Replayed change", *lead, *build_change_body(change))
    return blocks
