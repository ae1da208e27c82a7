"""Ways in for coding agents: the settings that are written for them, and a scripted agent that follows the skill."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ragfault.cli.commands import COMMANDS, run_command
from ragfault.integrations.clients import CODING_AGENTS, read_skill

MOST_CALLS = 15


@pytest.mark.parametrize("name", CODING_AGENTS)
def test_other_servers_and_settings_stay(name: str, tmp_path: Path):
    """The server is added to what the file has, and a second time changes nothing."""
    agent = CODING_AGENTS[name]
    path = tmp_path / agent.servers
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({agent.key: {"other": {"command": "x"}}, "theme": "dark"}), "utf-8")
    for _ in range(2):
        assert run_command(["mcp", str(tmp_path), "--install", name]) == 0
    settings = json.loads(path.read_text("utf-8"))
    assert settings["theme"] == "dark"
    assert set(settings[agent.key]) == {"other", "ragfault"}
    assert settings[agent.key]["ragfault"]["args"] == ["mcp", "."]
    assert not agent.skill or (tmp_path / agent.skill / "SKILL.md").read_text("utf-8") == read_skill()


def test_broken_settings_are_not_replaced(tmp_path: Path):
    """A file that is not JSON is an error, and stays as it is."""
    (tmp_path / ".mcp.json").write_text("{", "utf-8")
    assert run_command(["mcp", str(tmp_path), "--install", "claude"]) == 2
    assert (tmp_path / ".mcp.json").read_text("utf-8") == "{"


def test_the_skill_names_real_commands_and_tools():
    """Its front matter has a name and a description, and each command and tool that it names exists."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from ragfault.integrations.mcp import TOOL_NAMES

    skill = read_skill()
    front, _, body = skill.removeprefix("---\n").partition("\n---\n")
    assert re.findall(r"^(\w+):", front, re.MULTILINE) == ["name", "description"]
    assert set(re.findall(r"`ragfault (\w+)", body)) <= set(COMMANDS)
    rows = [line.split("|")[2] for line in body.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert {tool for row in rows for tool in re.findall(r"`(\w+)`", row)} <= set(TOOL_NAMES)


@pytest.mark.long
def test_a_scripted_agent_finds_and_proves_the_planted_fault(tmp_path: Path):
    """It follows the steps of the skill over the protocol: layer, evidence, fix and proof in at most 15 calls."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    assert run_command(["demo", str(tmp_path / "handbook")]) == 0
    report = anyio.run(follow_skill, tmp_path)
    assert report["layer"] == "Retrieval"
    assert "chunker" in report["stage"]
    assert report["evidence"]
    assert report["gate"].startswith("PASS") or "pass" in report["gate"].splitlines()[0].lower()
    assert "fault" not in report["after"].splitlines()[0].lower().replace("no fault", "")
    assert report["calls"] <= MOST_CALLS


async def follow_skill(folder: Path) -> dict[str, Any]:
    """Call the tools step by step, each by what the one before it returned."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    calls = 0
    started = StdioServerParameters(command=sys.executable, args=["-m", "ragfault", "mcp", str(folder)])
    async with stdio_client(started) as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def call(tool: str, **given: Any) -> str:
            nonlocal calls
            calls += 1
            answer = await session.call_tool(tool, given)
            printed = "\n".join(part.text for part in answer.content)
            assert not answer.is_error, printed
            return printed

        for version in ("v1", "v2"):
            await call("evaluate", traces=f"handbook/traces-{version}.jsonl", out=version, judge="embedded")
        printed = await call("bisect", baseline="v1", candidate="v2")
        layer = re.search(r"(\w+) broke", printed)
        assert layer is not None, printed
        examples = re.findall(r"\b[a-z]+-\d\d\b", printed)
        evidence = await call("explain", run="v2", traces=examples[:2])
        # The user's system answers again with the chunker of before: in the demo these are the traces of version 1.
        await call("evaluate", traces="handbook/traces-v1.jsonl", out="fixed", judge="embedded")
        gate = await call("gate", run="fixed", thresholds=["context_recall>=0.8"], baseline="v1")
        after = await call("bisect", baseline="v2", candidate="fixed")
    return {"layer": layer[1], "stage": printed, "evidence": evidence, "gate": gate, "after": after, "calls": calls}
