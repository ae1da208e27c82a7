"""The lexical judge: word statistics and exact checks, without a model."""
