"""Judges that read a claim and its evidence together, with the weights of a small language model.

`minilm` is the judge, `evidence` chooses what it reads, `encoding` turns that into tokens, `encoder` runs the
graph on the `weights`, and `calibration` makes probabilities of what comes out. Needs the extra `nli`.
"""
