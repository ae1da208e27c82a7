"""Comparison of runs: paired tests, regression checks, bisection and run histories."""
