"""Answers that one run records with a notice, such as a greeting, a disclaimer or the number of a ticket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragfault.comparison.comparability import ASYMMETRY_ALPHA, FULL_ANSWER, LocatedMismatch
from ragfault.comparison.pairing import holds_all_chunks
from ragfault.comparison.recording.answer_pairs import CUT_SHARE, AnswerPair, cover_words, mark_places, strip_markup
from ragfault.comparison.recording.answers import find_other_form
from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.sentence_kinds import is_talk
from ragfault.stats.significance import mcnemar_test
from ragfault.text.markup import is_wrapped
from ragfault.text.normalization import split_content_words
from ragfault.text.notices import Stretch, clip_notice, cut_stretches, locate_added_lines, locate_notices

# answers; in fewer, one sentence may be the answer to all
LEAST_NOTICES = 15
# of the answers with a notice keep the words of the other side's; a refusal with a notice does not
NOTED_SHARE = 0.5
# of the answers with a notice; a sentence that is all of more of them is an answer
ALONE_SHARE = 0.1
# of the words of an answer
REPEATED_COVER = 0.5
# of the words of the other answer; a sentence that holds more of them is part of the answer
NOTICE_COVER = 0.1
NOTICE_DOUBT = "a notice or a claim, which is not judged; if it is a false claim, generation broke"


def find_added_notices(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers hold a notice beside most of what the other side's answers say.

    What is neither the notice nor about the answer as a whole is compared without it, unless the rest is in another
    form as well. What an answer that repeats its prompt begins with is no notice.
    """
    pairs = [pair for pair in pairs if not any(map(holds_all_chunks, pair.answers, pair.chunks))]
    for side in (1, 0):
        texts = list(dict.fromkeys(pair.answers[side] for pair in pairs))
        if len(texts) < LEAST_NOTICES:
            continue
        others = dict.fromkeys(text for pair in pairs for text in (pair.answers[1 - side], *pair.chunks[side]))
        located = dict(zip(texts, locate_notices(texts, list(others)), strict=True))
        noted = {pair.place: located[pair.answers[side]] for pair in pairs if located[pair.answers[side]]}
        mismatches = _describe_notices(pairs, size, side, noted)
        if mismatches:
            return mismatches
    return _find_added_lines(pairs, size)


def _find_added_lines(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find lines that surround some of the answers, on one side far more often than on the other.

    Where both sides hold them, those of both are not compared.
    """
    least = max(LEAST_NOTICES, round(CUT_SHARE * size))
    sides: list[dict[int, tuple[Stretch, ...]]] = []
    for side in (0, 1):
        beside = [(pair.answers[1 - side], *pair.chunks[side]) for pair in pairs]
        located = locate_added_lines([pair.answers[side] for pair in pairs], beside, least)
        sides.append({pair.place: spans for pair, spans in zip(pairs, located, strict=True) if spans})
    if mcnemar_test(len(sides[0].keys() - sides[1].keys()), len(sides[1].keys() - sides[0].keys())) > ASYMMETRY_ALPHA:
        return []
    first = int(len(sides[1]) >= len(sides[0]))
    mismatches = _describe_notices(pairs, size, first, sides[first])
    return [*mismatches, *(_describe_notices(pairs, size, 1 - first, sides[1 - first]) if mismatches else [])]


def _describe_notices(
    pairs: Sequence[AnswerPair], size: int, side: int, noted: Mapping[int, tuple[Stretch, ...]]
) -> list[LocatedMismatch]:
    """Return the mismatch of the notices of one side, and that of the rests; none where they are the answers."""
    noted_pairs = [pair for pair in pairs if pair.place in noted]
    rests = [_without_notice(pair, side, noted[pair.place]) for pair in noted_pairs]
    unchanged = sum(_holds_words(rest, pair, side) for rest, pair in zip(rests, noted_pairs, strict=True))
    alone = sum(not rest.answers[side] for rest in rests)
    if not rests or unchanged < NOTED_SHARE * len(rests) or alone > ALONE_SHARE * len(rests):
        return []
    mask = mark_places(list(noted), size)
    quotes = [pair.answers[side][start:end] for pair in pairs for start, end in noted.get(pair.place, ())]
    varied = len(set(quotes)) > max(map(len, noted.values()))
    are_courtesies = not any(extract_claims(quote) or not is_talk(quote) for quote in set(quotes))
    text = (
        f"answers of the {('baseline', 'candidate')[side]} repeat a text on {{share}} of pairs, the same"
        f"{' but for names, numbers or a few wordings' if varied else ''} ({clip_notice(max(quotes, key=len))}): "
        + ("a courtesy, which states nothing" if are_courtesies else NOTICE_DOUBT)
    )
    left_out = {FULL_ANSWER: mask}
    notice = LocatedMismatch(
        kind="texts", text=text, pairs=mask, left_out=left_out, side=side, stretches=noted, blocks=not are_courtesies
    )
    return [notice, *find_other_form(rests, size)]


def _without_notice(pair: AnswerPair, side: int, stretches: Sequence[Stretch]) -> AnswerPair:
    """Return a pair with the answer of one side without its notice."""
    rest = cut_stretches(pair.answers[side], stretches)
    words, wrapped = strip_markup(rest), is_wrapped(rest)
    if side:
        return pair._replace(
            answers=(pair.answers[0], rest), words=(pair.words[0], words), wrapped=(pair.wrapped[0], wrapped)
        )
    return pair._replace(
        answers=(rest, pair.answers[1]), words=(words, pair.words[1]), wrapped=(wrapped, pair.wrapped[1])
    )


def _holds_words(rest: AnswerPair, pair: AnswerPair, side: int) -> bool:
    """Return whether the rest of an answer holds half of the words of the other side's, and the notice few of them.

    Or whether it is a part of the other side's answer, as of an answer that is cut short under its greeting.
    """
    words, left = (frozenset(split_content_words(text)) for text in (pair.answers[1 - side], rest.answers[side]))
    if not words:
        return False
    without, full = (cover_words(words, (part.answers[side],)) for part in (rest, pair))
    return (without >= REPEATED_COVER or (without > 0 and left <= words)) and full - without <= NOTICE_COVER
