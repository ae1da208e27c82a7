"""Reports of evaluation sets."""
