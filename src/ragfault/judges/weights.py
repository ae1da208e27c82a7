"""The weights of the features, fitted by training/support.py; positive speaks against support."""

BIAS = -5.22
WEIGHTS = (1.23, 1.41, -0.37, 0.88, 2.02, -0.92, 4.84, 1.21, -0.1, -0.92, 0.5, 2.48, 1.36)
