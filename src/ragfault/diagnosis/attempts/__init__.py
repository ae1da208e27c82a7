"""Attempts of queries: how reliable a system is, and whose noise its scores have."""
