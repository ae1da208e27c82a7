"""Command `mcp`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click


@click.command(
    epilog="""\b
Examples:
  ragfault mcp
  ragfault mcp evaluations
  ragfault mcp --install claude
  RAGFAULT_TOKEN=… ragfault mcp --server http://127.0.0.1:4318

\b
--install writes this into the settings of a coding agent for the project in FOLDER:
  {"mcpServers": {"ragfault": {"command": "ragfault", "args": ["mcp", "."]}}}"""
)
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--server", metavar="URL", help="Server whose incidents the agent may read; RAGFAULT_TOKEN is its token.")
@click.option(
    "--install",
    type=click.Choice(["claude", "cursor", "gemini", "vscode"]),
    help="Write the server into the settings of this coding agent, for the project in FOLDER, and its skill.",
)
def mcp(folder: Path, server: str | None, install: str | None) -> None:
    """Let a coding agent evaluate, compare, bisect and explain the traces in FOLDER, by the Model Context Protocol.

    It speaks over standard input and output, reads and writes only within FOLDER, asks no model, and listens nowhere.
    With --server it reads the incidents of that server, too.
    """
    if install is not None:
        from ragfault.integrations.clients import install_server

        for path in install_server(install, folder):
            click.echo(path)
        return
    from ragfault.integrations.mcp import build_server

    fetch = None
    if server is not None:
        from ragfault.http.client import fetch_incidents

        fetch = partial(fetch_incidents, server, os.environ.get("RAGFAULT_TOKEN"))
    build_server(folder, fetch).run()
