"""Run a tool that makes a set in a process of its own: python -m benchmarks.costs.make_TOOL FOLDER URL COUNT.

The tools' tokenizer is fetched from another host at the first use; here four characters are a token.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.costs.running import block_remote_hosts


class FourCharacterTokenizer:
    """A tokenizer that replaces that of tiktoken, with a token for each four characters."""

    name = "four characters"

    def __init__(self) -> None:
        self.pieces: dict[str, int] = {}

    def encode(self, text: str, **_: Any) -> list[int]:
        """Return the number of each piece of four characters."""
        cut = [text[i : i + 4] for i in range(0, len(text), 4)]
        return [self.pieces.setdefault(piece, len(self.pieces)) for piece in cut]

    encode_ordinary = encode

    def decode(self, numbers: list[int], **_: Any) -> str:
        """Return the text of numbers."""
        pieces = list(self.pieces)
        return "".join(pieces[number] for number in numbers)


def replace_tokenizer() -> None:
    """Let tiktoken, where it is installed, return the tokenizer of four characters."""
    try:
        import tiktoken
    except ImportError:
        return
    tokenizer = FourCharacterTokenizer()
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_, **__: tokenizer


def measure_tool(make_queries: Callable[[str, Path, int], tuple[str, list[str]]]) -> None:
    """Make a set; print its queries, the seconds it took, and the error that ended it."""
    folder, url, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    refused_hosts = block_remote_hosts()
    replace_tokenizer()
    out = os.dup(1)
    os.dup2(2, 1)  # what the tools print does not belong to the result
    start, cpu_start = time.perf_counter(), time.process_time()
    version, queries, error = "", [], ""
    try:
        version, queries = make_queries(f"{url}/v1", folder, count)
    except Exception as raised:  # noqa: BLE001 - every error of a tool is a result
        error = f"{type(raised).__name__}: {str(raised)[:300]}"
    result = {
        "version": version,
        "queries": queries,
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu_start,
        "error": error,
        "refused": dict(refused_hosts),
    }
    with os.fdopen(out, "w", encoding="utf-8") as file:
        file.write(json.dumps(result))
    os._exit(0)  # some leave threads behind that wait
