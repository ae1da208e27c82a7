"""Demo data: a ferry handbook, questions about it, and the traces of two versions of a RAG system."""
