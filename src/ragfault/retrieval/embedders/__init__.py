"""Embedders: texts as vectors, by a model fitted on the corpus, a local model, or an embedding service."""
