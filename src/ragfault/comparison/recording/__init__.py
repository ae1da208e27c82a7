"""Differences of the record: answers, chunks and citations that one run records otherwise than they were."""
