"""Time the chunkers: megabytes of text a second of the processor, for each kind, on one document.

    python benchmarks/chunking.py --megabytes 10 [FILE]

FILE is a text to repeat until it is so long; without it the text is the handbook of the demo. The last rows are texts
that patterns are slow on where they look at everything twice.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.model.records import Document
from ragfault.retrieval.chunking.chunker import CHUNKER_KINDS, load_chunker
from ragfault.retrieval.chunking.token_spans import count_tokens

REPEATED_UNITS = {
    "spaces": " ",
    "one word": "a",
    "empty lines": "\n",
    "small sentences": "a. ",
    "open quotes": '"',
    "pipes": "| ",
    "table": "| a | b |\n|---|---|\n",
    "headings": "# a\n",
    "open code": "```\n\n",
    "open brackets": "[",
    "numbers": "1.1 A\n",
    "turns": "a: b\n",
    "questions": "a?\n\n",
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--size", type=int, default=400)
    return parser.parse_args()


def time_chunker(name: str, document: Document) -> tuple[float, int]:
    """Return the processor seconds of a chunker on a document, and the number of chunks."""
    cut = load_chunker(name)
    start = time.process_time()
    chunks = cut(document)
    return time.process_time() - start, len(chunks)


def main() -> None:
    options = parse_arguments()
    text = options.file.read_text() if options.file else "\n\n".join(load_handbook().documents.values())
    size = int(options.megabytes * 1e6)
    document = Document(id="long", text=(text * (size // len(text) + 1))[:size])
    print(f"{size / 1e6:g} million characters, {count_tokens(document.text):,} tokens\n")
    print("| chunker | seconds | MB/s | chunks |\n|---|---|---|---|")
    for kind in CHUNKER_KINDS:
        load_chunker(kind)(Document(id="short", text="Warm up."))
        name = f"{kind}({options.size}, overlap={options.size // 8})"
        seconds, chunks = time_chunker(name, document)
        print(f"| `{name}` | {seconds:.2f} | {size / 1e6 / seconds:.1f} | {chunks:,} |", flush=True)
    print("\n| a million characters of | slowest chunker | seconds |\n|---|---|---|")
    for name, unit in REPEATED_UNITS.items():
        document = Document(id="hard", text="x " + unit * (1_000_000 // len(unit)))
        slowest = max((time_chunker(f"{kind}(400, overlap=50)", document)[0], kind) for kind in CHUNKER_KINDS)
        print(f"| {name} | {slowest[1]} | {slowest[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
