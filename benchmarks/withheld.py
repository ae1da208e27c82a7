"""Reject questions about withheld passages where a copy of the passage, in more or less other words, is in the corpus.

    python -m benchmarks.withheld --data ../shared/data

For each accepted question the document of its passage is put back with a share of its plain words (no names, no
numbers, no small words) replaced by the nearest word of the corpus by word vectors: the check should reject it then.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

from benchmarks.testsets import CORPORA
from ragfault.apps.testsets.making.filters import DraftFilter
from ragfault.apps.testsets.making.withheld import make_withheld
from ragfault.apps.testsets.making.wording import is_content, is_name
from ragfault.apps.testsets.passages import WORD, CorpusIndex
from ragfault.model.records import Document
from ragfault.text.normalization import stem_word

SHARES = (0.0, 0.3, 0.6, 1.0)


def replace_words(text: str, share: float, index: CorpusIndex, rng: random.Random) -> str:
    """Replace a share of the plain words of a text by the nearest words of the corpus."""

    def replace(match: re.Match[str]) -> str:
        word = match.group()
        if not is_content(word) or is_name(word) or rng.random() > share:
            return word
        related = index.list_related(stem_word(word.lower()))
        return related[0][0] if related else word

    return WORD.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", action="append", choices=list(CORPORA))
    parser.add_argument("-n", type=int, default=150)
    parser.add_argument("--share", type=float, default=0.08)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| corpus | accepted | rejected | " + " | ".join(f"{share:.0%} replaced" for share in SHARES) + " |")
    for name in options.corpus or ("squad2", "clapnq"):
        documents, _ = CORPORA[name](options.data)
        texts = {document.id: document.text for document in documents}
        result = make_withheld(documents, options.n, share=options.share, seed=options.seed)
        index, rng = CorpusIndex(documents), random.Random(options.seed)
        cells = []
        for share in SHARES:
            places = [item.metadata["withheld"] for item in result.items]
            copies = [
                Document(id=f"copy{i}", text=replace_words(texts[place["document"]], share, index, rng))
                for i, place in enumerate(places)
            ]
            checks = DraftFilter(CorpusIndex([*result.documents, *copies]))
            rejected = sum(
                checks.reject_withheld(item.query, place["quote"], place["answer"]) is not None
                for item, place in zip(result.items, places, strict=True)
            )
            cells.append(f"{rejected} of {len(places)}")
        print(f"| {name} | {len(result.items)} | {len(result.rejected)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
