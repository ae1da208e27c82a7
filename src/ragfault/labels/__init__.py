"""Agreement of judges with human labels, and of judges and annotators with each other."""
