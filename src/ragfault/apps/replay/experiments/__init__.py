"""Fixes and changes: queries are asked in several configurations of a system."""
