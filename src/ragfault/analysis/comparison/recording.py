"""Answers and chunks that one run records otherwise than they were: clipped, masked, in markup, or not what was read.

Such pairs are mismatches like those of `comparability`: what rests on the field is left out there.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ragfault.analysis.comparison.comparability import ASPECTS, CHUNK_ORDER, CHUNK_TEXT, MAX_TEXTS, LocatedMismatch
from ragfault.analysis.comparison.pairing import Mask, RunContents, TracePairing, load_texts, normalize_space
from ragfault.analysis.languages import ENGLISH_JUDGES
from ragfault.io.runs import Run
from ragfault.records import Chunk, Trace
from ragfault.rules import quote_matches
from ragfault.text import split_content_words, split_words
from ragfault.text.normalization import ENGLISH_WORDS, MIN_ENGLISH_SHARE, fold_case
from ragfault.text.notices import clip_notice, cut_notices, find_notices

LEAST_PAIRS = 5  # fewer pairs show no habit of a logger
MARKUP_SHARE = 0.1  # of the pairs; answers of a model that is asked twice seldom differ in markup alone
CUT_SHARE = 0.02  # of the pairs
SAME_LENGTH_SHARE = 0.8  # of the answers that are beginnings of the other side's; some are so by chance
MOVED_COVER = 0.3  # an answer that loses more of its words with the chunks that are gone was drawn from these
CARRIED_COVER = 0.6  # the share of its words that the best chunk of an answer holds
LEAST_WORDS = 5  # a shorter answer may be known by heart
JOINED_SHARE = 0.8  # of the joined text; headings and separators are the rest
CITED_SHARE = 0.9  # of the pairs with citations
UNCHANGED_SHARE = 0.5  # of the answers whose chunk is gone, so many are the same where the generator read it still
REWRITTEN_SHARE = 0.02  # of the pairs; a model that is asked again words more answers anew
LEAST_OTHER_FIRST = 15  # fewer pairs with another first chunk, or without, show nothing
SAME_ANSWER_SHARE = 0.6  # of the answers where another chunk is first are the same
SAME_ANSWER_LOSS = 0.1  # by so much at most their share is smaller than elsewhere
MASKED_SHARE = 0.9  # of the chunk texts that differ under one id
MAX_MASKED = 60  # characters that one mask stands for
SORTED_SHARES = (0.98, 0.5)  # of the lists of the side in the order of ids, at least; of the other side, at most
LEAST_SORTED = 3  # a list of two is in the order of its ids by chance
LEAST_NOTICES = 15  # answers; in fewer, one sentence may be the answer to all
NOTED_SHARE = 0.8  # of the answers with a notice keep the words of the other side's; a refusal with a notice does not
REPEATED_COVER = 0.5  # of the words of an answer
FOREIGN_SHARE = 0.02  # of the pairs; fewer answers in another language hardly move a mean
UNKNOWN_SHARE = 0.3  # of the words of an answer in another language; names and numbers are the same in both
TAG_PATTERN = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")
REASONING_PATTERN = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
MARK_PATTERN = re.compile(r"(?m)^\s*(?:[-*+•]|\d{1,2}[.)])\s+|^#{1,6}\s|[*_`]{1,3}|\|")
MASK_PATTERN = re.compile(r"[*#█•]+|X{3,}|[\[<(][A-Z_ ]{3,}[\]>)]")
SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
SOURCE_MARK = re.compile(r"^\s*(?:[-*•]\s+)?(?:[^\W\d_]+:\s+)?(?:[\[(]?\d{1,3}[\]).:]\s*)?")
SOURCE_HEADING = re.compile(r"^\W*[^\W\d_]+(?: [^\W\d_]+)?\W*:?\W*$")


class AnswerPair(NamedTuple):
    """The answers of a pair that differ in the record or rest on other chunks."""

    place: int
    """Of the pair in the pairing."""
    answers: tuple[str, str]
    chunks: tuple[tuple[str, ...], tuple[str, ...]]
    words: tuple[str, str]
    """Of the answers without markup and the list of their sources."""
    wrapped: tuple[bool, bool]
    """Whether the answers hold tags, are JSON objects or end with a list of sources."""

    @property
    def is_same(self) -> bool:
        """Return whether the answers say the same words."""
        return self.words[0] == self.words[1]


def find_recording_mismatches(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing
) -> tuple[LocatedMismatch, ...]:
    """Find the pairs on which the record of one side differs, and not what happened.

    Answers that one run cuts at one number of characters, answers that differ in markup alone, and chunks that cannot
    be those that were read: answers that rest on a chunk of the other side are the same without it. Citations that name
    chunks by their number or document are no fault either.
    """
    pairs = _read_pairs(runs, contents, pairing)
    size = len(pairing)
    answered = int((~contents[0].blank[pairing.baseline] & ~contents[1].blank[pairing.candidate]).sum())
    return (
        *_find_masked_texts(runs, contents, pairing, pairs),
        *_find_cut_answers(pairs, size),
        *_find_other_language(runs, pairs, size),
        *(_find_markup(pairs, size) or _find_added_notices(pairs, size)),
        *_find_other_cuts(pairs, size),
        *(
            _find_other_chunks(pairs, size)
            or _find_ignored_chunks(pairs, size, answered)
            or _find_sorted_chunks(contents, pairing, pairs)
        ),
        *_find_other_names(runs, pairing),
    )


def _read_pairs(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing
) -> list[AnswerPair]:
    """Read the answers and chunk texts of the pairs that differ and are answered on both sides."""
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    differ = ~(pairing.same_answers & pairing.same_chunks) & ~old.blank[left] & ~new.blank[right]
    places = np.flatnonzero(differ)
    sides = []
    for run, rows in ((runs[0], left[places].tolist()), (runs[1], right[places].tolist())):
        chosen = set(rows)
        texts = {row: _read_answer(trace) for row, trace in enumerate(run.traces()) if row in chosen}
        sides.append([texts[row] for row in rows])
    return [
        AnswerPair(place, *zip(before, after, strict=True))
        for place, before, after in zip(places.tolist(), *sides, strict=True)
    ]


def _read_answer(trace: Trace) -> tuple[str, tuple[str, ...], str, bool]:
    """Return the answer of a trace, its chunk texts, the words of the answer, and whether markup surrounds them."""
    answer, chunks = trace.answer or "", trace.chunks or ()
    plain = _strip_sources(answer, chunks)
    return answer, tuple(chunk.text for chunk in chunks), _strip_markup(plain), _is_wrapped(answer) or plain != answer


def _mark(places: Sequence[int], size: int) -> Mask:
    mask: Mask = np.zeros(size, dtype=bool)
    mask[list(places)] = True
    return mask


def _find_cut_answers(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers end at one number of characters wherever the other's go on.

    A limit of tokens ends answers at different numbers of characters. Where most of them end with a sentence, a closing
    phrase that answers of one length had is gone, and nothing was clipped.
    """
    for side, name in ((1, "candidate"), (0, "baseline")):
        begun = [pair for pair in pairs if _is_beginning(pair.answers[side], pair.answers[1 - side])]
        limit = max((len(pair.answers[side]) for pair in begun), default=0)
        cut = [pair for pair in begun if len(pair.answers[side]) == limit]
        answers = {pair.answers[side] for pair in cut}
        if sum(map(_ends_sentence, answers)) > len(answers) / 2:
            continue
        if len(answers) >= max(LEAST_PAIRS, CUT_SHARE * size) and len(cut) >= SAME_LENGTH_SHARE * len(begun):
            mask = _mark([pair.place for pair in cut], size)
            text = (
                f"answers of the {name} end at {limit:,} characters on {{share}} of pairs: clipped in the record, or "
                "before it"
            )
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]
    return []


def _is_beginning(part: str, longer: str) -> bool:
    """Return whether a text begins another that goes on, an ellipsis at its end apart."""
    stem = part.rstrip().removesuffix("…").removesuffix("...")
    return len(longer.rstrip()) > len(part.rstrip()) and longer.startswith(stem)


def _ends_sentence(answer: str) -> bool:
    return answer.rstrip().endswith((".", "!", "?", "。")) and not answer.rstrip().endswith("...")


def _find_other_language(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are in a language that its judge does not know, where the other side's are English.

    Such an answer holds hardly a common English word, and words that neither its chunks nor the other answer hold. One
    text in place of several answers is a phrase such as "Unable to answer", which may be English without such words.
    """
    judge = runs[1].manifest.judge.split(" ", maxsplit=1)[0]
    if judge.split("/")[0] not in ENGLISH_JUDGES:
        return []
    for side, name in ((1, "candidate"), (0, "baseline")):
        foreign = [pair for pair in pairs if _is_in_other_language(pair, side)]
        replaced = Counter(text for text, _ in {(pair.answers[side], pair.answers[1 - side]) for pair in foreign})
        places = [pair.place for pair in foreign if replaced[pair.answers[side]] == 1]
        if len(places) >= max(LEAST_PAIRS, FOREIGN_SHARE * size):
            mask = _mark(places, size)
            other = "baseline" if side else "candidate"
            text = (
                f"answers of the {name} are in another language than the chunks and the {other}'s answers on "
                f"{{share}} of pairs, and {judge} knows English only"
            )
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]
    return []


def _find_added_notices(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers hold a notice, of no chunk, beside most of what the other side's answers say."""
    for side, name in ((1, "candidate"), (0, "baseline")):
        texts = list(dict.fromkeys(pair.answers[side] for pair in pairs))
        others = [text for pair in pairs for text in (pair.answers[1 - side], *pair.chunks[side])]
        notices = find_notices(texts, others)
        noted = [pair for pair in pairs if notices and notices[0] in pair.answers[side]]
        if len(texts) < LEAST_NOTICES or sum(_keeps_words(p, side, notices) for p in noted) < NOTED_SHARE * len(noted):
            continue
        if noted:
            mask = _mark([pair.place for pair in noted], size)
            text = f"answers of the {name} hold a notice, the same on {{share}} of pairs ({clip_notice(notices[0])})"
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]
    return []


def _keeps_words(pair: AnswerPair, side: int, notices: Sequence[str]) -> bool:
    """Return whether an answer without its notices holds half of the words of the other side's answer."""
    words = frozenset(split_content_words(pair.answers[1 - side]))
    return bool(words) and _cover_words(words, (cut_notices(pair.answers[side], notices),)) >= REPEATED_COVER


def _is_in_other_language(pair: AnswerPair, side: int) -> bool:
    """Return whether the words of an answer are neither English nor those it was given, and the other answer's are.

    >>> chunk = ("The fee is due before the end of March.",)
    >>> german, english = "Die Gebühr wird bis Ende März bezahlt.", "It is due before the end of March."
    >>> pair = AnswerPair(0, (english, german), (chunk, chunk), (english, german), (False, False))
    >>> _is_in_other_language(pair, 1), _is_in_other_language(pair, 0)
    (True, False)
    """
    words, other = (
        [word for word in split_words(pair.answers[at]) if not word[0].isdigit()] for at in (side, 1 - side)
    )
    if len(words) < LEAST_WORDS or not ENGLISH_WORDS.intersection(other):
        return False
    if sum(word in ENGLISH_WORDS for word in words) >= MIN_ENGLISH_SHARE * len(words):
        return False
    known = {*other, *(word for texts in pair.chunks for text in texts for word in split_words(text))}
    return sum(word not in known for word in words) >= UNKNOWN_SHARE * len(words)


def _find_markup(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find answers that are the same without tags, JSON around them, reasoning, bullets, emphasis, case and sources.

    Where there are many, an answer with tags, in JSON or with its sources is not compared with one without: a judge
    reads them as words.
    """
    places = [pair.place for pair in pairs if pair.answers[0] != pair.answers[1] and pair.is_same]
    if len(places) < max(LEAST_PAIRS, MARKUP_SHARE * size):
        return []
    wrapped = [pair.place for pair in pairs if pair.wrapped[0] != pair.wrapped[1]]
    mask = _mark([*places, *wrapped], size)
    text = (
        "answers differ in markup on {share} of pairs, most in nothing else: tags, JSON, reasoning, bullets, "
        "emphasis, letter case, separators in numbers or a list of sources around the same words"
    )
    return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]


def _is_wrapped(answer: str) -> bool:
    """Return whether an answer holds tags or is a JSON object."""
    return TAG_PATTERN.search(answer) is not None or answer.lstrip().startswith("{")


def _strip_sources(answer: str, chunks: Sequence[Chunk]) -> str:
    """Return an answer without the list of the ids or documents of its chunks at its end, and the heading of the list.

    >>> _strip_sources("Ten.\\n\\nSources:\\n[1] a.md", [Chunk(id="a#1", text="Ten.", document="a.md")])
    'Ten.'
    """
    names = {name for chunk in chunks for name in (chunk.id, chunk.document) if name}
    lines = answer.rstrip().split("\n")
    end = len(lines)
    while end and (not lines[end - 1].strip() or _lists_names(lines[end - 1], names)):
        end -= 1
    if not any(_lists_names(line, names) for line in lines[end:]):
        return answer
    if end and SOURCE_HEADING.match(lines[end - 1]):
        end -= 1
    return "\n".join(lines[:end]).rstrip()


def _lists_names(line: str, names: Collection[str]) -> bool:
    """Return whether a line holds nothing but names."""
    parts = [part.strip(" []()*`") for part in re.split(r"[,;]", SOURCE_MARK.sub("", line))]
    return any(parts) and all(part in names for part in parts if part)


def _strip_markup(text: str) -> str:
    """Return the words of an answer without its markup, without case or accents, and with one separator in numbers.

    >>> _strip_markup("<p>1. It&#39;s <b>ten</b>.<br></p>") == _strip_markup("- IT'S **ten**.")
    True
    """
    plain = TAG_PATTERN.sub("\n", REASONING_PATTERN.sub("", _unwrap_json(text)))
    plain = MARK_PATTERN.sub(" ", html.unescape(plain).strip())
    return SEPARATOR.sub(".", "".join(fold_case(normalize_space(plain)).split()))


def _unwrap_json(text: str) -> str:
    """Return the longest text of a JSON object, else the text as it is."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        values = json.loads(text).values()
    except ValueError:
        return text
    return max((value for value in values if isinstance(value, str)), key=len, default=text)


def _find_other_cuts(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find lists of chunks that hold the same text in the same order, cut at other places: a prompt reads the same."""
    places = [
        pair.place
        for pair in pairs
        if len(pair.chunks[0]) != len(pair.chunks[1])
        and all(pair.chunks)
        and any(_holds_all(pair.chunks[side], pair.chunks[1 - side]) for side in (0, 1))
    ]
    if len(places) < max(LEAST_PAIRS, MARKUP_SHARE * size):
        return []
    mask = _mark(places, size)
    text = "the same text is recorded in other chunks on {share} of pairs: joined, or cut at other places"
    return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"chunks": mask, CHUNK_TEXT: mask})]


def _holds_all(longer: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether one list holds all texts of a longer list in its order, and little else."""
    if len(longer) >= len(parts):
        return False
    joined, at = "".join("".join(longer).split()), 0
    pieces = ["".join(part.split()) for part in parts]
    for piece in pieces:
        at = joined.find(piece, at) + len(piece) if piece in joined[at:] else -1
        if at < 0:
            return False
    return sum(map(len, pieces)) >= JOINED_SHARE * len(joined)


def _find_other_chunks(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side that records chunks without the one that its unchanged answers were drawn from.

    Where hardly any answer of the run differs they were not written again, and say nothing of what was read.
    """
    differing = sum(pair.answers[0] != pair.answers[1] for pair in pairs)
    if differing < max(1, REWRITTEN_SHARE * size):
        return []
    for side, name in ((1, "candidate"), (0, "baseline")):
        lost = [pair for pair in pairs if pair.chunks[side] and _has_lost_its_chunk(pair, side)]
        same = [pair for pair in lost if pair.is_same]
        if len(same) >= max(LEAST_PAIRS, UNCHANGED_SHARE * len(lost)):
            mask = _mark([pair.place for pair in pairs if pair.chunks[0] != pair.chunks[1]], size)
            text = (
                f"the chunks recorded in the {name} cannot be those that were read, on {{share}} of pairs: "
                f"{len(same):,} of {len(lost):,} answers that rest on a chunk missing there are the same without it"
            )
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"chunks": mask, CHUNK_TEXT: mask})]
    return []


def _find_ignored_chunks(pairs: Sequence[AnswerPair], size: int, answered: int) -> list[LocatedMismatch]:
    """Find recorded chunks that differ without an effect: where the first is another, as many answers are the same.

    A generator that reads another chunk first words most answers otherwise, also where the chunks hold the same facts.
    """
    same = [pair.is_same for pair in pairs]
    moved = [all(pair.chunks) and pair.chunks[0][0] != pair.chunks[1][0] for pair in pairs]
    count, rest = sum(moved), answered - sum(moved)
    if same.count(False) < max(1, REWRITTEN_SHARE * size) or min(count, rest) < LEAST_OTHER_FIRST:
        return []
    # Pairs that differ in nothing are not among these.
    equal_share = sum(equal for equal, other in zip(same, moved, strict=True) if other) / count
    elsewhere = (rest - sum(not equal for equal, other in zip(same, moved, strict=True) if not other)) / rest
    loss = elsewhere - equal_share
    spread = math.sqrt(equal_share * (1 - equal_share) / count + elsewhere * (1 - elsewhere) / rest)
    if equal_share < SAME_ANSWER_SHARE or loss > SAME_ANSWER_LOSS or loss + 2 * spread > 3 * SAME_ANSWER_LOSS:
        return []
    mask = _mark([pair.place for pair in pairs if pair.chunks[0] != pair.chunks[1]], size)
    text = (
        "the recorded chunks differ on {share} of pairs, and the answers do not follow them: "
        f"where another chunk is first {equal_share:.0%} of the answers are the same, elsewhere {elsewhere:.0%}"
    )
    return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"chunks": mask, CHUNK_TEXT: mask})]


def _find_sorted_chunks(
    contents: tuple[RunContents, RunContents], pairing: TracePairing, pairs: Sequence[AnswerPair]
) -> list[LocatedMismatch]:
    """Find the side that records the same chunks in the order of their ids, while most answers stay the same."""
    sides = list(zip(contents, (pairing.baseline, pairing.candidate), strict=True))
    ids = [[[side.keys[at].id for at in side.trace_keys[row]] for row in rows.tolist()] for side, rows in sides]
    long = [place for place in range(len(pairing)) if min(len(ids[0][place]), len(ids[1][place])) >= LEAST_SORTED]
    moved = [
        place for place in long if ids[0][place] != ids[1][place] and sorted(ids[0][place]) == sorted(ids[1][place])
    ]
    rewritten = {pair.place for pair in pairs if not pair.is_same}
    same = sum(place not in rewritten for place in moved)
    if len(moved) < LEAST_OTHER_FIRST or same < SAME_ANSWER_SHARE * len(moved):
        return []
    ordered = [sum(ids[side][place] == sorted(ids[side][place]) for place in long) / len(long) for side in (0, 1)]
    for side, name in ((1, "candidate"), (0, "baseline")):
        if ordered[side] >= SORTED_SHARES[0] and ordered[1 - side] <= SORTED_SHARES[1]:
            mask = _mark(moved, len(pairing))
            text = (
                f"the {name} records the same chunks in the order of their ids on {{share}} of pairs, and {same:,} of "
                f"{len(moved):,} answers are the same there: the order is no rank"
            )
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={CHUNK_ORDER: mask})]
    return []


def _find_masked_texts(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing, pairs: Sequence[AnswerPair]
) -> list[LocatedMismatch]:
    """Find the side whose chunk texts are the other's under the same ids with masks in place of some characters."""
    texts = [{key.id: key.text for key in reversed(side.keys) if key.text} for side in contents]
    differing = sorted(name for name in texts[1] if texts[0].get(name, texts[1][name]) != texts[1][name])
    if len(differing) < LEAST_PAIRS:
        return []
    known = [load_texts(run, set(differing[:MAX_TEXTS])) for run in runs]
    for side, name in ((1, "candidate"), (0, "baseline")):
        masked = [_is_masked(known[side][key], known[1 - side][key]) for key in known[1]]
        if float(np.mean(masked)) < MASKED_SHARE:
            continue
        changed = set(differing)
        hit = [[key.id in changed for key in run.keys] for run in contents]
        rows = zip(pairing.baseline.tolist(), pairing.candidate.tolist(), strict=True)
        touched: Mask = np.array(
            [any(hit[at][key] for at in (0, 1) for key in contents[at].trace_keys[row[at]]) for row in rows], dtype=bool
        )
        marks = {p.place: [len(MASK_PATTERN.findall(p.answers[at])) for at in (side, 1 - side)] for p in pairs}
        answers = _mark([place for place, count in marks.items() if count[0] > count[1]], len(pairing))
        factless = (contents[0].facts[pairing.baseline] == 0) | (contents[1].facts[pairing.candidate] == 0)
        text = f"chunk texts of the {name} are masked on {{share}} of pairs: in the record, or before it"
        left_out = {CHUNK_TEXT: touched, ASPECTS: touched & factless, "answer": answers}
        return [LocatedMismatch(kind="texts", text=text, pairs=touched | answers, left_out=left_out)]
    return []


def _is_masked(text: str, other: str) -> bool:
    """Return whether a text is the other one with masks in place of some characters.

    >>> _is_masked("Call ** ** from [NAME].", "Call 12 34 from Ada.")
    True
    """
    parts = MASK_PATTERN.split(normalize_space(text))
    rest = normalize_space(other)
    if len(parts) < 2 or not rest.startswith(parts[0]) or normalize_space(text) in rest:
        return False
    rest = rest[len(parts[0]) :]
    for part in parts[1:-1]:
        at = rest.find(part, 1, MAX_MASKED + len(part))
        if at < 0:
            return False
        rest = rest[at + len(part) :]
    return 0 < len(rest) - len(parts[-1]) <= MAX_MASKED and rest.endswith(parts[-1])


def _has_lost_its_chunk(pair: AnswerPair, side: int) -> bool:
    """Return whether the other side's answer rests on a chunk that this side does not record."""
    words = frozenset(split_content_words(pair.answers[1 - side]))
    if len(words) < LEAST_WORDS or pair.chunks[0] == pair.chunks[1]:
        return False
    carried, remaining = (_cover_words(words, pair.chunks[at]) for at in (1 - side, side))
    return carried >= CARRIED_COVER and remaining <= carried - MOVED_COVER


def _cover_words(words: frozenset[str], texts: Sequence[str]) -> float:
    """Return the share of the words that the text with the most of them holds."""
    return max((len(words & frozenset(split_content_words(text))) / len(words) for text in texts), default=0.0)


def _find_other_names(runs: tuple[Run, Run], pairing: TracePairing) -> list[LocatedMismatch]:
    """Find the side whose citations name chunks by their number or document, where the other's name ids."""
    named = []
    for run, rows in zip(runs, (pairing.baseline, pairing.candidate), strict=True):
        kinds = [_find_citation_kind(trace) for trace in run.traces()]
        named.append([kinds[row] for row in rows.tolist()])
    for side, name in ((1, "candidate"), (0, "baseline")):
        cited = [place for place, kind in enumerate(named[side]) if kind]
        places = [place for place in cited if named[side][place] == "other" and named[1 - side][place] == "id"]
        if len(places) >= max(LEAST_PAIRS, CITED_SHARE * len(cited)):
            mask = _mark(places, len(pairing))
            text = f"citations of the {name} name chunks by number or document, not by id, on {{share}} of pairs"
            return [LocatedMismatch(kind="fields", text=text, pairs=mask, left_out={"citations": mask})]
    return []


def _find_citation_kind(trace: Trace) -> str | None:
    """Return whether the citations of a trace name chunk ids, or all something else that leads to their quotes."""
    chunks = trace.chunks or ()
    if not trace.citations or not chunks:
        return None
    ids = {chunk.id for chunk in chunks}
    if any(citation.chunk in ids for citation in trace.citations):
        return "id"
    meant: dict[str, list[str]] = {}
    for number, chunk in enumerate(chunks):
        for name in {str(number), str(number + 1), f"[{number + 1}]", chunk.document or ""}:
            meant.setdefault(name, []).append(chunk.text)
    all_match = all(
        citation.chunk in meant
        and (citation.quote is None or any(quote_matches(citation.quote, text) for text in meant[citation.chunk]))
        for citation in trace.citations
    )
    return "other" if all_match else "unknown"
