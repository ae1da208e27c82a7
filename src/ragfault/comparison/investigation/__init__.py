"""Investigation of a run: hypotheses tested with the package's own analyses, quotes, a fix and a test for it."""
