"""Judges from ONNX models that others trained and exported. Needs the extra `nli`."""
