"""The weights of the features, fitted by training/support.py; positive speaks against support."""

BIAS = -3.72
WEIGHTS = (
    1.38,  # absent
    0.59,  # rarest
    -0.43,  # apart
    0.91,  # apart2
    2.2,  # bigrams
    -0.23,  # trigrams
    2.78,  # numbers
    0.71,  # names
    0.07,  # denied
    -0.79,  # opinion
    0.03,  # pairs
    1.54,  # size
    0.46,  # clash
    3.31,  # field
    1.21,  # nowhere
)
