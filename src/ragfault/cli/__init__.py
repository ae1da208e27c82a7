"""Command line of ragfault: each command is loaded when it is called; errors become messages and exit codes."""
