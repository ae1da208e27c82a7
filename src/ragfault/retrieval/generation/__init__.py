"""Generation: the generator of a pipeline as settings, and the call that answers a question from chunks."""
