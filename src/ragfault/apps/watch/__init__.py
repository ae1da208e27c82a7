"""Watching live traffic: the monitor, and the server with its alerts and dashboard."""
