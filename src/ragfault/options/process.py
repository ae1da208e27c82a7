"""What the command line and its options agree on: exit codes for git, and text that steers no terminal."""

from __future__ import annotations

GIT_OPTION = "--git"

# the exit code by which `git bisect run` skips a commit; 128 and above would end it
GIT_SKIP = 125


def clean_output(text: str) -> str:
    """Clean text that may come from a trace, without what would steer a terminal."""
    return "".join(character if character == "\n" or character.isprintable() else "�" for character in text)
