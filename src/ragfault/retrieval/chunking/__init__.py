"""Chunking: split documents into chunks, each with its character offsets in the document."""
