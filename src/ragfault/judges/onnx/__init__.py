"""Judges from ONNX models that others trained and exported."""
