"""The MiniLM judge: a small language model reads a claim with its evidence. Needs the extra `nli`.

`minilm` is the judge, `evidence` chooses what it reads, `encoding` turns that into tokens, `encoder` runs the
graph on the `weights`, and `calibration` makes probabilities of what comes out. Needs the extra `nli`.
"""
