"""Checks: what single traces show, and that is a fault where significantly more of them show it than before."""
