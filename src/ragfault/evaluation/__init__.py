"""Evaluation: traces × judge × metrics → run."""
