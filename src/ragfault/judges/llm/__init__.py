"""The judge that asks a language model: two calls a trace, for all verdicts."""
