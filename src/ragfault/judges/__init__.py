"""Judges: load a judge by its name and apply a domain profile to it."""
