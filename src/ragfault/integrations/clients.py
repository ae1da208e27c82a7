"""Coding agents that may call the MCP server: where each reads its servers and skills from, and writing that."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ragfault.model.errors import InputError


class CodingAgent(NamedTuple):
    """A coding agent, and its files within a project."""

    servers: str
    """File of its MCP servers."""
    key: str
    """Key of that file under which the servers are."""
    skill: str = ""
    """Folder of its skill, if it reads skills."""


CODING_AGENTS = {
    "claude": CodingAgent(".mcp.json", "mcpServers", ".claude/skills/ragfault"),
    "cursor": CodingAgent(".cursor/mcp.json", "mcpServers"),
    "gemini": CodingAgent(".gemini/settings.json", "mcpServers"),
    "vscode": CodingAgent(".vscode/mcp.json", "servers"),
}


def install_server(name: str, folder: Path) -> list[Path]:
    """Write the MCP server into the settings of a coding agent for a project, and its skill; return the files.

    Other servers and settings of the file stay. Raises InputError if the file is not a JSON object.

    >>> import tempfile
    >>> [path.name for path in install_server("cursor", Path(tempfile.mkdtemp()))]
    ['mcp.json']
    """
    agent = CODING_AGENTS[name]
    path = folder / agent.servers
    settings = _read_settings(path)
    settings.setdefault(agent.key, {})["ragfault"] = {"command": "ragfault", "args": ["mcp", "."]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    written = [path]
    if agent.skill:
        skill = folder / agent.skill / "SKILL.md"
        skill.parent.mkdir(parents=True, exist_ok=True)
        skill.write_text(read_skill(), encoding="utf-8")
        written.append(skill)
    return written


def read_skill() -> str:
    """Read the skill: how an agent finds and proves the fault of a RAG system."""
    return files("ragfault.integrations").joinpath("skill/SKILL.md").read_text(encoding="utf-8")


def _read_settings(path: Path) -> dict[str, dict[str, object]]:
    """Read the settings of a coding agent; none if there is no file."""
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): repair it, or move it away.") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} is not a JSON object: repair it, or move it away.")
    return settings
