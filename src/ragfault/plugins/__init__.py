"""Plugins: doors to other tools, each loaded by the tool it belongs to."""
