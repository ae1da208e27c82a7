"""Integrations with other tools; each module is loaded by the tool it belongs to."""
