"""Ingest of traces, deployment marks and OTLP spans."""
