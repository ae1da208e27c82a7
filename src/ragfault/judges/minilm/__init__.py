"""The MiniLM judge: a small language model reads a claim with its evidence. Needs the extra `nli`.

`judge` has the judge, `evidence` chooses the text to read, `encoder` tokenizes it and runs the model, and
`calibration` turns its output into probabilities.
"""
