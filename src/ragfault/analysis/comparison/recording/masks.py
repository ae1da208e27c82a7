"""Answers and texts that one run records with masks, such as [NAME], in place of words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ragfault.analysis.comparison.comparability import LocatedMismatch
from ragfault.analysis.comparison.pairing import normalize_space
from ragfault.analysis.comparison.recording.answer_pairs import CUT_SHARE, LEAST_PAIRS, AnswerPair, mark_places
from ragfault.io.runs import Run
from ragfault.text.notices import clip_notice

MASK_PATTERN = re.compile(r"[*#█•]+|X{3,}|[\[<(](?:[A-Z_ ]{3,}(?:[_ ]?\d+)?|(?i:redacted|masked|removed))[\]>)]")
RULE_SHARE = 0.8  # of the occurrences of what is masked somewhere; a recogniser of names overlooks some
MAX_RULE_WORDS = 300
MAX_MASKED = 60  # characters that one mask stands for


def find_masked_answers(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are the other's with masks, such as [NAME], in place of words.

    A rule masks words wherever they stand in the answers that it is applied to, which may be a part of them; a model
    that writes masks does so now and then. Where a rule is seen, no answer with more masks than the other side's is
    compared with it; elsewhere all are, and the masks are said.
    """
    for side, name in ((1, "candidate"), (0, "baseline")):
        masked = {pair: _list_masked(pair, side) for pair in pairs}
        words = Counter(word for pair_words in masked.values() for word in pair_words)
        alike = sum(map(bool, masked.values()))
        if alike < max(LEAST_PAIRS, CUT_SHARE * size):
            continue
        marks = [[len(MASK_PATTERN.findall(pair.answers[at])) for at in (side, 1 - side)] for pair in pairs]
        mask = mark_places([pair.place for pair, count in zip(pairs, marks, strict=True) if count[0] > count[1]], size)
        shown = Counter(mark[0] for pair in pairs for mark in MASK_PATTERN.finditer(pair.answers[side]))
        text = (
            f"answers of the {name} are masked on {{share}} of pairs ({clip_notice(shown.most_common(1)[0][0])}), "
            f"{alike:,} of them the same otherwise: "
        )
        if not _masks_by_rule(runs[side], words):
            text += "others show these words; if it is the record that masks them now and then, that is no fault"
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, blocks=False)]
        text += "in the record, or before it, which would be a fault of generation"
        return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask, "citations": mask})]
    return []


def _list_masked(pair: AnswerPair, side: int) -> list[str]:
    """Return what the answer of one side masks of the other's; nothing where its chunks are masked as well."""
    words = find_masked(pair.answers[side], pair.answers[1 - side])
    chunks = zip(pair.chunks[side], pair.chunks[1 - side], strict=False)
    return [] if words and any(find_masked(*texts) for texts in chunks) else words


def _masks_by_rule(run: Run, words: Counter[str]) -> bool:
    """Return whether hardly any of the words that some answers mask stand in answers with masks.

    The most frequent of them show it.
    """
    frequent = dict(words.most_common(MAX_RULE_WORDS))
    names = "|".join(map(re.escape, sorted(frequent, key=len, reverse=True)))
    pattern, masked = re.compile(rf"(?<!\w)(?:{names})(?!\w)"), sum(frequent.values())
    answers = run.to_arrow("traces", ["answer"])["answer"].to_pylist()
    with_masks = (normalize_space(answer) for answer in answers if answer and MASK_PATTERN.search(answer))
    shown = sum(len(pattern.findall(answer)) for answer in with_masks)
    return masked >= RULE_SHARE * (masked + shown)


def find_masked(text: str, other: str) -> list[str]:
    """Return what a text masks of the other one; nothing where it is not the other one otherwise.

    >>> find_masked("Call ** ** from [NAME].", "Call 12 34 from Ada.")
    ['12', '34', 'Ada']
    """
    parts, rest = MASK_PATTERN.split(normalize_space(text)), normalize_space(other)
    if len(parts) < 2 or not rest.startswith(parts[0]) or normalize_space(text) in rest:
        return []
    rest, masked = rest[len(parts[0]) :], []
    for part in parts[1:-1]:
        at = rest.find(part, 1, MAX_MASKED + len(part))
        if at < 0:
            return []
        masked.append(rest[:at])
        rest = rest[at + len(part) :]
    size = len(rest) - len(parts[-1])
    return [*masked, rest[:size]] if 0 < size <= MAX_MASKED and rest.endswith(parts[-1]) else []
