"""Recorded requests: where their chunks stand, and the same requests with others."""
