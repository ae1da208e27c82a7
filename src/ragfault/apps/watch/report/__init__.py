"""Reports of the monitor."""
