"""Adapt selection and reranking per route from feedback: a bandit that keeps to a floor, evaluated off-policy first."""
