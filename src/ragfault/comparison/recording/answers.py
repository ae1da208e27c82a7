"""Answers that one run records otherwise: clipped, in markup, encoded, or masked."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Sequence

from ragfault.comparison.comparability import LocatedMismatch
from ragfault.comparison.pairing import normalize_space
from ragfault.comparison.recording.answer_pairs import CUT_SHARE, LEAST_PAIRS, AnswerPair, is_beginning, name_mismatch
from ragfault.text.markup import MARKUP_SHARE, strip_markdown
from ragfault.text.notices import clip_notice

# of the answers that are beginnings of the other side's; some are so by chance
SAME_LENGTH_SHARE = 0.8
MASK_PATTERN = re.compile(r"[*#█•]+|X{3,}|[\[<(](?:[A-Z_ ]{3,}(?:[_ ]?\d+)?|(?i:redacted|masked|removed))[\]>)]")
# characters that one mask stands for
MAX_MASKED = 60


def find_cut_answers(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers end at one number of characters wherever the other's go on.

    A limit of tokens ends answers at different numbers of characters. Where most of them end with a sentence, a closing
    phrase that answers of one length had is gone, and nothing was clipped.
    """
    for side, name in ((1, "candidate"), (0, "baseline")):
        begun = [pair for pair in pairs if is_beginning(pair.answers[side], pair.answers[1 - side])]
        limit = max((len(pair.answers[side]) for pair in begun), default=0)
        cut = [pair for pair in begun if len(pair.answers[side]) == limit]
        answers = {pair.answers[side] for pair in cut}
        ends = [answer.rstrip()[-3:] for answer in answers]
        if sum(end.endswith((".", "!", "?", "。")) and end != "..." for end in ends) > len(answers) / 2:
            continue
        if len(answers) >= max(LEAST_PAIRS, CUT_SHARE * size) and len(cut) >= SAME_LENGTH_SHARE * len(begun):
            text = (
                f"answers of the {name} end at {limit:,} characters on {{share}} of pairs: clipped in the record, or "
                "before it"
            )
            return name_mismatch(text, [pair.place for pair in cut], size, "answer")
    return []


def find_other_form(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are in markup, URL-encoded, without punctuation or masked."""
    return find_markup(pairs, size) or find_masked_answers(pairs, size)


def find_markup(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find answers that are the same but for markup: tags, JSON, reasoning or case; Markdown is no difference.

    Or but for punctuation, of which one side has none. Where there are many, an answer with tags, in JSON or
    without punctuation is not compared with one of another form: a judge reads them as words.
    """
    same = [pair for pair in pairs if pair.is_same and operator.ne(*map(strip_markdown, pair.answers))]
    if len(same) < max(LEAST_PAIRS, MARKUP_SHARE * size):
        return []
    bare = [sum(pair.unpunctuated[side] > pair.unpunctuated[1 - side] for pair in same) for side in (0, 1)]
    side = int(bare[1] >= bare[0])
    other_form = [pair for pair in pairs if pair.wrapped[0] != pair.wrapped[1]]
    if 2 * bare[side] > len(same):
        other_form += [pair for pair in pairs if pair.unpunctuated[side] > pair.unpunctuated[1 - side]]
        name = ("baseline", "candidate")[side]
        text = f"answers of the {name} hold no punctuation on {{share}} of pairs, most of them the same words"
    else:
        text = (
            "answers differ in markup on {share} of pairs, most in nothing but tags, bullets, letter case, a full stop "
            "or the like"
        )
    return name_mismatch(text, [pair.place for pair in (*same, *other_form)], size, "answer")


def find_masked_answers(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are the other's with masks, such as [NAME], in place of words.

    No answer with more masks than the other side's is compared with it.
    """
    for side, name in ((1, "candidate"), (0, "baseline")):
        alike = sum(bool(_list_masked(pair, side)) for pair in pairs)
        if alike < max(LEAST_PAIRS, CUT_SHARE * size):
            continue
        marks = [[len(MASK_PATTERN.findall(pair.answers[at])) for at in (side, 1 - side)] for pair in pairs]
        masked = [pair.place for pair, count in zip(pairs, marks, strict=True) if count[0] > count[1]]
        shown = Counter(mark[0] for pair in pairs for mark in MASK_PATTERN.finditer(pair.answers[side]))
        text = (
            f"answers of the {name} are masked on {{share}} of pairs ({clip_notice(shown.most_common(1)[0][0])}), "
            f"{alike:,} of them the same otherwise: in the record, or before it, which would be a fault of generation"
        )
        return name_mismatch(text, masked, size, "answer", "citations")
    return []


def _list_masked(pair: AnswerPair, side: int) -> list[str]:
    """Return what the answer of one side masks of the other's; nothing where its chunks are masked as well."""
    words = find_masked(pair.answers[side], pair.answers[1 - side])
    chunks = zip(pair.chunks[side], pair.chunks[1 - side], strict=False)
    return [] if words and any(find_masked(*texts) for texts in chunks) else words


def find_masked(text: str, other: str) -> list[str]:
    """Return what a text masks of the other one; nothing where it is not the other one otherwise.

    >>> find_masked("Call ** ** from [NAME].", "Call 12 34 from Ada.")
    ['12', '34', 'Ada']
    """
    plain = normalize_space(text)
    parts = MASK_PATTERN.split(plain)
    if len(parts) < 2:
        return []
    rest = normalize_space(other)
    if not rest.startswith(parts[0]) or plain in rest:
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
