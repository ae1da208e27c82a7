"""Replay: failing traces are asked again on the user's own model, with one cause removed at a time."""
