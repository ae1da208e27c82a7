"""Making of evaluation sets from a corpus: questions, their wording, checks, and queries of logs."""
