"""Evaluation sets: questions with gold spans made from a corpus, checked, described, and kept valid as it changes."""
