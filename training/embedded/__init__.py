"""Training of the weights of the embedded judge: `python -m training.embedded DATA`."""
