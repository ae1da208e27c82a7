"""Text checks that several judges share: claims, passages, queries, answers, contradictions."""
