"""Judges exported to ONNX: any cross-encoder of the Hugging Face hub that classifies pairs or tokens.

`scorer` is the judge, `hub` finds the files, `config` says what kind of model they hold, `windows` cuts
long passages, `session` runs it. Needs the extra `nli`.
"""
