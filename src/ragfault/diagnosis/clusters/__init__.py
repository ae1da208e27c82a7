"""Clusters of failing traces: named, tracked over runs, and promoted to cases of an evaluation set."""
