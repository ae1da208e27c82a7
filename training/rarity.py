"""Count in how many texts each stem occurs, and write the background table of the lexical judge.

    python training/rarity.py DATA_FOLDER

DATA_FOLDER holds gzipped JSON lines (and plain texts below it). Only counts are kept.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragfault.text import STOP_WORDS, split_words

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/checks/rarity.txt.gz"
PIECE = 1500
"""Texts longer than this many characters count as several."""
MOST = 30_000
LEAST = 3
STEP = 8
"""Levels per unit of the natural logarithm."""


def texts(folder: Path) -> Iterator[str]:
    """Yield every text of the folder that a retriever could have returned, once."""
    digests: set[int] = set()
    for path in sorted(folder.rglob("*")):
        for text in read(path):
            for index in range(0, len(text), PIECE):
                piece = text[index : index + PIECE]
                if hash(piece) not in digests:
                    digests.add(hash(piece))
                    yield piece


def read(path: Path) -> Iterator[str]:
    """Yield the texts of one file."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from passages(json.loads(line))
    elif path.suffix in {".md", ".txt"} and path.name != "README.md":
        yield path.read_text(encoding="utf-8", errors="replace")


def passages(record: dict[str, Any]) -> Iterator[str]:
    """Yield the passages of one record, whatever the file calls them."""
    yield from record.get("contexts") or ()
    yield from (record[name] for name in ("passage", "text") if isinstance(record.get(name), str))


def main(folder: Path) -> None:
    """Count, quantise and write."""
    counts: Counter[str] = Counter()
    total = 0
    for text in texts(folder):
        total += 1
        counts.update({word for word in split_words(text) if word not in STOP_WORDS and len(word) <= 24})
    retained = [(word, n) for word, n in counts.most_common(MOST) if n >= LEAST]
    levels: dict[int, list[str]] = {}
    for word, n in retained:
        levels.setdefault(round(STEP * math.log(total / n)), []).append(word)
    lines = [f"{level} {' '.join(sorted(levels[level]))}" for level in sorted(levels)]
    body = f"step {STEP} texts {total} unseen {round(STEP * math.log(total / (LEAST - 1)))}\n" + "\n".join(lines)
    TARGET.write_bytes(gzip.compress(body.encode(), compresslevel=9, mtime=0))
    print(f"{total:,} texts, {len(retained):,} stems, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
