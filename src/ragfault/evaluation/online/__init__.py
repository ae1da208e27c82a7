"""Online evaluation: score one response at once, or every retrieval in the background."""
