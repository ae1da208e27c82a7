"""Commands that tune: retrieval, generators, and what follows from them."""
