"""Renderers: a report document for a terminal, as Markdown and as HTML."""
