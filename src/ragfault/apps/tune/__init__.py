"""Tuning: search for the best retrieval pipeline and prove its gain on held-out questions."""
