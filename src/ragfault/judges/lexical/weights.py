"""Weights of the lexical features, fitted by training/support.py; positive values speak against support."""

BIAS = -3.72
WEIGHTS = (
    1.4,  # absent
    0.59,  # rarest
    -0.45,  # apart
    0.9,  # apart2
    2.19,  # bigrams
    -0.23,  # trigrams
    2.96,  # numbers
    0.78,  # names
    0.07,  # denied
    -0.79,  # opinion
    0.05,  # pairs
    1.54,  # size
    0.36,  # clash
    3.31,  # field
    1.14,  # nowhere
)
