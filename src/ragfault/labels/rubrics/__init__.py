"""Rubrics in words: their agreement with labels and with themselves, and judged examples learnt from labels."""
