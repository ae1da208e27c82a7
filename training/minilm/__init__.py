"""How the weights of the judge minilm are made: `python -m training.minilm DATA -o support.pt`."""
