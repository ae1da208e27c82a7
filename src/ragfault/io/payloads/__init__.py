"""Payloads of files: lines, rows and documents, before anything is known of their fields."""
