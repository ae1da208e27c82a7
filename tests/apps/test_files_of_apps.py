"""Laws of the readers of small files of the apps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragfault.apps.guard.certificate import read_certificate
from ragfault.apps.guard.policy import load_policy
from ragfault.apps.tune.adaptation import policy as adaptation
from ragfault.apps.watch.monitoring.alert_rules import load_rules
from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.errors import InputError
from ragfault.model.records import Chunk, Trace

FILES = {
    "a table of a pipeline": ("[idex]\nchunker = 'x'", "index", "stages"),
    "a key of a pipeline": ("[index]\nchunkr = 'x'", "chunker", "embedder"),
    "a key of a rule": ("[[rule]]\nmetric = 'groundedness'\nbelw = 0.5", "below", "window"),
    "a metric of a rule": ("[[rule]]\nmetric = 'groundednes'\nbelow = 0.5", "groundedness", ""),
}
"""Fault of a file → its text, the name that was meant, and another that there is."""
COMMANDS = {"pipeline": ["lint", "FILE"], "rule": ["monitor", "a", "b", "--rules", "FILE"]}
"""End of the fault → the command that reads the file."""


@pytest.mark.parametrize("read", [read_certificate, adaptation.load_policy, load_policy, load_rules])
@pytest.mark.parametrize("content", [b"\xff", b'{"judge": "\xff"}', b"[" * 100_000, b"[", None])
def test_a_file_that_cannot_be_read_is_named(
    read: Callable[[Path], object], content: bytes | None, tmp_path: Path
) -> None:
    """A file that is missing, not UTF-8, malformed or too deep is an InputError with its name, by every reader."""
    path = tmp_path / "odd.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"odd\.toml"):
        read(path)


@pytest.mark.parametrize("kind", FILES)
def test_a_typo_in_a_file_is_refused_with_what_is_meant_and_what_there_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown name ends in exit code 2, and the message offers the close one."""
    text, meant, other = FILES[kind]
    monkeypatch.chdir(tmp_path)
    trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="Ferries leave at six."),), answer="At six.")
    for name in ("a", "b"):
        evaluate([trace], tmp_path / name, judge="lexical", metrics=["groundedness"])
    (tmp_path / "given.toml").write_text(text, encoding="utf-8")
    command = next(words for part, words in COMMANDS.items() if kind.endswith(part))
    assert run_command(["given.toml" if word == "FILE" else word for word in command]) == 2
    shown = capsys.readouterr().err
    assert f'Did you mean "{meant}"?' in shown
    assert other in shown.partition("Did you mean")[2]
