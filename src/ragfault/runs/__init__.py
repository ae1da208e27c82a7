"""A run: what an evaluation leaves behind, a directory that any Parquet reader can open.

    RUN/
        manifest.json       what was evaluated, by which judge, with which metrics; counts
        traces.parquet      one row a trace (the columns of `ragfault.records.Trace`)
        verdicts.parquet    one row a trace (`Verdicts`)
        scores.parquet      one row for every trace × metric (`Score`)

It can be copied, committed and uploaded; nothing in it points outside.
"""

from ragfault.runs.run import Manifest, Measure, Run
from ragfault.runs.writing import Partial, Plan

__all__ = ["Manifest", "Measure", "Partial", "Plan", "Run"]
