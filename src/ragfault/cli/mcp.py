"""`ragfault mcp`."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["mcp"]


@click.command(
    epilog="""\b
Examples:
  ragfault mcp
  ragfault mcp evaluations

\b
In the settings of a coding agent:
  {"mcpServers": {"ragfault": {"command": "ragfault", "args": ["mcp", "/path/to/project"]}}}"""
)
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
def mcp(folder: Path) -> None:
    """Let a coding agent evaluate, compare, bisect and explain the traces in FOLDER, by the Model Context Protocol.

    It speaks over standard input and output, reads and writes within FOLDER alone, asks no model, and listens nowhere.
    """
    from ragfault.plugins.mcp import server

    server(folder).run()
