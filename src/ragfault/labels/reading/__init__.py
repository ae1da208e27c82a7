"""Files of labels: their rows, the traces that they belong to, and the verdicts and scores that they state."""
