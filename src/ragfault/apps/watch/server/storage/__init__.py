"""Storage of live traces, scores, roll-ups, marks, alerts, labels and tokens, in DuckDB or ClickHouse."""
