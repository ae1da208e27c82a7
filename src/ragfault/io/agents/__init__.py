"""Logs of agents as steps of traces."""
