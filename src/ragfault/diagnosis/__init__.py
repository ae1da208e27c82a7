"""Analysis of runs: what the scores and verdicts mean, each figure with its counts and its interval."""
