"""The metrics: pure functions of (trace, verdicts), each tagged with its layer."""
