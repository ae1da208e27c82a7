"""Alerts: change detection, the scheduler that evaluates rules, and notifications."""
