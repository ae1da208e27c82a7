"""Stages of the pipeline that a fault may lie in: evidence on the pairs, and their ranking."""
