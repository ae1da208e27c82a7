"""The gate: thresholds on a run, and drops beside a baseline."""
