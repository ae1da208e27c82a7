"""Builders: the report document of each record of an analysis."""
