"""Commands of the monitor and the server."""
