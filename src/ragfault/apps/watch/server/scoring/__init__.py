"""Scoring of stored traces, spot checks by a stronger judge, and export of scores."""
