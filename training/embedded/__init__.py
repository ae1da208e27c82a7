"""How the weights of the embedded judge are made: `python -m training.embedded DATA`."""
