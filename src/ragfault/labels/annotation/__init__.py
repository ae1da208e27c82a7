"""Annotation: annotators label the items of a trace one at a time."""
