"""Runs: directories that hold the result of an evaluation.

    RUN/
        manifest.json       input, judge, metrics and counts
        traces.parquet      one row per trace (the columns of `ragfault.records.Trace`)
        verdicts.parquet    one row per trace (`Verdicts`)
        scores.parquet      one row per trace and metric (`Score`)

A run can be copied, committed and uploaded; nothing in it points outside.

    RUN/
        manifest.json       what was evaluated, by which judge, with which metrics; counts
        traces.parquet      one row a trace (the columns of `ragfault.records.Trace`)
        verdicts.parquet    one row a trace (`Verdicts`)
        scores.parquet      one row for every trace × metric (`Score`)

It can be copied, committed and uploaded; nothing in it points outside.
"""

from ragfault.io.runs.run import Manifest, MetricInfo, Run
from ragfault.io.runs.writer import PartialRun, RunPlan

__all__ = ["Manifest", "MetricInfo", "PartialRun", "Run", "RunPlan"]
