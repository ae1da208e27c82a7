"""Ablation: decide which part of a RAG system made a change by swapping parts between two systems."""
