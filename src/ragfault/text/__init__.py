"""Text processing without a model: words, sentences, entities, quantities and similarity."""
