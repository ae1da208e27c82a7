"""Scanners of texts: patterns, classifiers of character n-grams, ONNX classifiers, and moderation services."""
