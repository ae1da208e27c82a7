"""Judges from ONNX models that others trained and exported. Needs the extra `nli`.

`scorer` is the judge, `hub` finds the files, `config` says what kind of model they hold, `windows` cuts
long passages, `session` runs it. Needs the extra `nli`.
"""
