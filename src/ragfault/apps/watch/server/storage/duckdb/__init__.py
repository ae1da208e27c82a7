"""The embedded store: DuckDB in one file, owned by one process."""
