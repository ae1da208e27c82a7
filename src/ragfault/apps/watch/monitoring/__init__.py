"""Monitoring of live traffic: roll-ups, rolling means, change detection, drift and alerts."""
