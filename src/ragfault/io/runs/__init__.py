"""Runs: directories that hold the result of an evaluation.

    RUN/
        manifest.json       input, judge, metrics, counts and checksums
        traces.parquet      one row per trace (the columns of `ragfault.model.records.Trace`)
        verdicts.parquet    one row per trace (`Verdicts`)
        scores.parquet      one row per trace and metric (`Score`)

A run can be copied, committed and uploaded; nothing in it points outside.
"""
