"""Training of the weights of the judge minilm: pairs.py, bases.py, distillation.py, then training/pack.py."""
