"""File formats and record shapes: JSON, tables, Arrow, TREC, and the shapes of other evaluation tools."""
