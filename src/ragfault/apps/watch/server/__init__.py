"""Server that stores live traces, scores them, raises alerts and serves the dashboard (extra `server`)."""
