"""How the weights of the judge minilm are made: pairs.py, bases.py, distillation.py, then training/pack.py."""
