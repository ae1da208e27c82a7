"""The judge encoder: a small model that reads a claim with its evidence, its question and the turns before."""
