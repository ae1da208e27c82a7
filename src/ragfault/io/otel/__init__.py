"""OpenTelemetry spans: decode them, collect them by trace, and build RAG traces from them."""
