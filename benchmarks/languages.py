"""Measures how often the language of a short text is told: python -m benchmarks.languages.

The texts are those of `training/authored`: questions, answers, references and claims, of nine languages.
"""

from __future__ import annotations

import json
from collections import defaultdict

from ragfault.judges.checks.languages import ENGLISH, detect_language, is_foreign
from training.authored.items import FOLDER


def read_texts() -> dict[tuple[str, str], list[str]]:
    """Return the authored texts by language and kind."""
    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(FOLDER.glob("keys/*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            texts[path.name[:2], "question"].append(row["query"])
            texts[path.name[:2], "answer"] += [row["reference"], *(text for text, _ in row["answers"])]
    for path in sorted(FOLDER.glob("shorts/*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            texts[path.name[:2], "claim"] += [claim[1] for claim in row["claims"]]
            texts[path.name[:2], "passage"] += [row["a"], row["b"]]
    return texts


def main() -> None:
    """Print the shares of texts whose language is named, and of those that are seen not to be English."""
    print(f"{'':4}{'kind':10}{'texts':>7}{'named':>8}{'foreign':>9}")
    for (language, kind), texts in sorted(read_texts().items()):
        named = sum(detect_language(text) == language for text in texts) / len(texts)
        foreign = sum(map(is_foreign, texts)) / len(texts)
        share = f"{foreign:9.4f}" if language == ENGLISH else f"{foreign:9.3f}"
        print(f"{language:4}{kind:10}{len(texts):7,}{named:8.3f}{share}")


if __name__ == "__main__":
    main()
