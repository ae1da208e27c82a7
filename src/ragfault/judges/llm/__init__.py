"""LLM judge: two calls to a language model per trace, for all verdicts."""
