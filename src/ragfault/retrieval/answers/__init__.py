"""Stages after generation: checks of an answer, the cache of answers, and their registry."""
