"""Count in how many texts each stem occurs, and write the background table of the lexical judge.

    python training/rarity.py DATA_FOLDER

DATA_FOLDER holds gzipped JSON lines (and plain texts below it). Only counts are kept.
"""

from __future__ import annotations

import gzip
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_files import Row, iterate_rows

from ragfault.text.normalization import STOP_WORDS, split_words

TARGET = Path(__file__).parents[1] / "src/ragfault/judges/checks/rarity.txt.gz"
MAX_PIECE_LENGTH = 1500
"""Texts of more characters are cut into pieces that count as texts of their own."""
MAX_STEMS = 30_000
MIN_TEXTS = 3
"""Texts in which a stem must occur to enter the table."""
LEVELS_PER_UNIT = 8
"""Levels of rarity per unit of the natural logarithm."""


def iterate_pieces(folder: Path) -> Iterator[str]:
    """Yield each distinct piece of the passages in a folder once."""
    digests: set[int] = set()
    for path in sorted(folder.rglob("*")):
        for text in read_texts(path):
            for index in range(0, len(text), MAX_PIECE_LENGTH):
                piece = text[index : index + MAX_PIECE_LENGTH]
                if hash(piece) not in digests:
                    digests.add(hash(piece))
                    yield piece


def read_texts(path: Path) -> Iterator[str]:
    """Yield the passages of one file."""
    if path.suffix == ".gz":
        for row in iterate_rows(path):
            yield from extract_passages(row)
    elif path.suffix in {".md", ".txt"} and path.name != "README.md":
        yield path.read_text(encoding="utf-8", errors="replace")


def extract_passages(record: Row) -> Iterator[str]:
    """Yield the passages of one record: `contexts`, `passage` and `text`."""
    yield from record.get("contexts") or ()
    yield from (record[name] for name in ("passage", "text") if isinstance(record.get(name), str))


def main(folder: Path) -> None:
    """Count the texts of each stem, quantize rarity into levels, and write the table."""
    counts: Counter[str] = Counter()
    total = 0
    for text in iterate_pieces(folder):
        total += 1
        counts.update({word for word in split_words(text) if word not in STOP_WORDS and len(word) <= 24})
    frequent_stems = [(word, n) for word, n in counts.most_common(MAX_STEMS) if n >= MIN_TEXTS]
    levels: dict[int, list[str]] = {}
    for word, n in frequent_stems:
        levels.setdefault(round(LEVELS_PER_UNIT * math.log(total / n)), []).append(word)
    lines = [f"{level} {' '.join(sorted(levels[level]))}" for level in sorted(levels)]
    body = (
        f"step {LEVELS_PER_UNIT} texts {total} unseen {round(LEVELS_PER_UNIT * math.log(total / (MIN_TEXTS - 1)))}\n"
        + "\n".join(lines)
    )
    TARGET.write_bytes(gzip.compress(body.encode(), compresslevel=9, mtime=0))
    print(f"{total:,} texts, {len(frequent_stems):,} stems, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
