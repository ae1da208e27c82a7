"""Judges from ONNX models that others trained and exported. Needs the extra `nli`.

`judge` has the judge, `model_files` finds the files and reads their configuration, `session` loads and runs the model.
"""
