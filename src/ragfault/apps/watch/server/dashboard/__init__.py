"""Dashboard: HTML pages and forms rendered on the server."""
