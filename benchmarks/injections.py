"""Measure the scanner of injections on texts that are harder than those of its card: python -m benchmarks.injections.

Two sets of 40 orders to a model, each in a passage, and of 80 benign texts full of orders to people, of prompts and of
quoted attacks (injections.toml). The score of a text is that of its worst sentence, 1 where a pattern matches.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from ragfault.apps.guard.scanning.ngrams import load_classifier, score_sentences
from ragfault.apps.guard.scanning.scanners import make_scanner
from ragfault.stats.classification import auroc


def score_text(text: str) -> float:
    """Return the score of a text: of its worst sentence, or 1."""
    findings = make_scanner("injection", {"threshold": 1.1})(text)
    sentences = score_sentences(load_classifier("injection"), text)
    return 1.0 if findings else max((sentence.p for sentence in sentences), default=0.0)


def main() -> None:
    """Print figures of each set, and the shares that are flagged by kind."""
    threshold = load_classifier("injection").threshold
    sets = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for name, texts in sets.items():
        passages, scores = texts["passages"], dict[str, list[float]]()
        number = 0
        for kind, sentences in texts["orders"].items():
            for sentence in sentences:
                passage = passages[number % len(passages)].replace("{}", sentence)
                scores.setdefault(f"order: {kind}", []).append(score_text(passage))
                number += 1
        scores |= {f"benign: {kind}": [score_text(text) for text in part] for kind, part in texts["benign"].items()}
        values = np.concatenate(list(scores.values()))
        is_order = np.repeat([kind.startswith("order") for kind in scores], [len(part) for part in scores.values()])
        flagged = values >= threshold
        print(
            f"{name}: AUROC {auroc(values, is_order):.3f}, recall {flagged[is_order].mean():.3f} of {is_order.sum()}, "
            f"benign flagged {flagged[~is_order].mean():.3f} of {(~is_order).sum()}"
        )
        for kind, part in scores.items():
            print(f"  {kind:32} flagged {np.sum(np.array(part) >= threshold)} of {len(part)}")


if __name__ == "__main__":
    main()
