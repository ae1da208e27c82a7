"""Answers that one run records otherwise than they were: clipped, in markup, encoded, or with a notice around them."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus

import numpy as np

from ragfault.analysis.comparison.comparability import FULL_ANSWER, LocatedMismatch
from ragfault.analysis.comparison.pairing import Mask, RunContents, TracePairing, normalize_space
from ragfault.analysis.languages import ENGLISH_JUDGES
from ragfault.io.runs import Run
from ragfault.records import Chunk, Trace
from ragfault.text import split_content_words, split_words
from ragfault.text.normalization import ENGLISH_WORDS, MIN_ENGLISH_SHARE, fold_case
from ragfault.text.notices import LINK_PATTERN, Stretch, clip_notice, cut_stretches, locate_notices

LEAST_PAIRS = 5  # fewer pairs show no habit of a logger
MARKUP_SHARE = 0.1  # of the pairs; answers of a model that is asked twice seldom differ in markup alone
CUT_SHARE = 0.02  # of the pairs
SAME_LENGTH_SHARE = 0.8  # of the answers that are beginnings of the other side's; some are so by chance
LEAST_WORDS = 5  # a shorter answer may be known by heart
LEAST_NOTICES = 15  # answers; in fewer, one sentence may be the answer to all
NOTED_SHARE = 0.5  # of the answers with a notice keep the words of the other side's; a refusal with a notice does not
ALONE_SHARE = 0.1  # of the answers with a notice; a sentence that is all of more of them is an answer
REPEATED_COVER = 0.5  # of the words of an answer
NOTICE_COVER = 0.1  # of the words of the other answer; a sentence that holds more of them is part of the answer
FOREIGN_SHARE = 0.02  # of the pairs; fewer answers in another language hardly move a mean
UNKNOWN_SHARE = 0.3  # of the words of an answer in another language; names and numbers are the same in both
TAG_PATTERN = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")
REASONING_PATTERN = re.compile(
    r"<(think|thinking|reasoning)>(?:(?!<\1>).)*?</\1>|\A\s*Thought:.*?^Final Answer:|<\|\w+\|>",
    re.DOTALL | re.MULTILINE,
)
"""Reasoning before an answer, as models and agents write it, and the special tokens of a model."""
FENCE_PATTERN = re.compile(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)
MARK_PATTERN = re.compile(
    r"(?m)^\s*(?:[-*+•]|\d{1,2}[.)])\s+|^#{1,6}\s|^\|\s*\d{1,3}\s*(?=\|)|[*_`]{1,3}|\|(?:\s*:?-{3,}:?\s*\|)*"
)
QUOTE_MARKS = "\"'“”‘’«»"
CURRENCY_NAMES = str.maketrans({"£": "gbp", "€": "eur", "$": "usd", "¥": "jpy"})
SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
SOURCE_MARK = re.compile(r"^\s*(?:[-*•]\s+)?(?:[^\W\d_]+:\s+)?(?:[\[(]?\d{1,3}[\]).:]\s*)?")
SOURCE_HEADING = re.compile(r"^\W*[^\W\d_]+(?: [^\W\d_]+)?\W*:?\W*$")
MASK_PATTERN = re.compile(r"[*#█•]+|X{3,}|[\[<(](?:[A-Z_ ]{3,}(?:[_ ]?\d+)?|(?i:redacted|masked|removed))[\]>)]")
RULE_SHARE = 0.8  # of the occurrences of what is masked somewhere; a recogniser of names overlooks some
MAX_RULE_WORDS = 300
MAX_MASKED = 60  # characters that one mask stands for
ESCAPE_PATTERN = re.compile(r"%[0-9A-Fa-f]{2}")
PUNCTUATION_PATTERN = re.compile(r"[.,;:!?]")


class AnswerPair(NamedTuple):
    """The answers of a pair that differ in the record or rest on other chunks."""

    place: int
    """Of the pair in the pairing."""
    answers: tuple[str, str]
    chunks: tuple[tuple[str, ...], tuple[str, ...]]
    words: tuple[str, str]
    """Of the answers without markup and the list of their sources."""
    wrapped: tuple[bool, bool]
    """Whether the answers hold tags, are JSON objects or URL-encoded, or end with a list of sources."""

    @property
    def is_same(self) -> bool:
        """Return whether the answers say the same words; punctuation counts unless one side has none at all."""
        if self.words[0] == self.words[1]:
            return True
        return self.unpunctuated[0] != self.unpunctuated[1] and letters_of(self.words[0]) == letters_of(self.words[1])

    @property
    def unpunctuated(self) -> tuple[bool, bool]:
        """Return of which sides the answer holds no punctuation."""
        old, new = (not PUNCTUATION_PATTERN.search(answer) for answer in self.answers)
        return old, new


def letters_of(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def find_answer_mismatches(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the pairs whose answers one side clips, writes in another form or language, or puts a notice around."""
    in_form = _find_other_form(runs, pairs, size)
    return [
        *_find_cut_answers(pairs, size),
        *_find_other_language(runs, pairs, size),
        *(in_form or _find_added_notices(runs, pairs, size)),
    ]


def read_answer_pairs(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing
) -> list[AnswerPair]:
    """Read the answers and chunk texts of the pairs that differ and are answered on both sides."""
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    differ = ~(pairing.same_answers & pairing.same_chunks) & ~old.blank[left] & ~new.blank[right]
    places = np.flatnonzero(differ)
    sides = []
    for run, rows in ((runs[0], left[places].tolist()), (runs[1], right[places].tolist())):
        chosen, traces = set(rows), run.traces(fields=["chunks", "answer"])
        texts = {row: _read_answer(trace) for row, trace in enumerate(traces) if row in chosen}
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


def mark_places(places: Sequence[int], size: int) -> Mask:
    """Return the mask of some pairs."""
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
            mask = mark_places([pair.place for pair in cut], size)
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
    text in place of several answers, numbers apart, is a phrase such as "Unable to answer", which may be English
    without such words.
    """
    judge = runs[1].manifest.judge.split(" ", maxsplit=1)[0]
    if judge.split("/")[0] not in ENGLISH_JUDGES:
        return []
    for side, name in ((1, "candidate"), (0, "baseline")):
        foreign = [pair for pair in pairs if _is_in_other_language(pair, side)]
        phrases = {pair.place: " ".join(_read_words(pair.answers[side])) for pair in foreign}
        replaced = Counter(text for text, _ in {(phrases[pair.place], pair.answers[1 - side]) for pair in foreign})
        places = [place for place, text in phrases.items() if replaced[text] == 1]
        if len(places) >= max(LEAST_PAIRS, FOREIGN_SHARE * size):
            mask = mark_places(places, size)
            other = "baseline" if side else "candidate"
            text = (
                f"answers of the {name} are in another language than the chunks and the {other}'s answers on "
                f"{{share}} of pairs, and {judge} knows English only"
            )
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]
    return []


def _find_added_notices(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers hold a notice beside most of what the other side's answers say.

    What is neither the notice nor about the answer as a whole is compared without it, unless the rest is in another
    form as well.
    """
    for side, name in ((1, "candidate"), (0, "baseline")):
        texts = list(dict.fromkeys(pair.answers[side] for pair in pairs))
        if len(texts) < LEAST_NOTICES:
            continue
        others = dict.fromkeys(text for pair in pairs for text in (pair.answers[1 - side], *pair.chunks[side]))
        located = dict(zip(texts, locate_notices(texts, list(others)), strict=True))
        noted = {pair.place: located[pair.answers[side]] for pair in pairs if located[pair.answers[side]]}
        noted_pairs = [pair for pair in pairs if pair.place in noted]
        rests = [_without_notice(pair, side, noted[pair.place]) for pair in noted_pairs]
        unchanged = sum(_holds_words(rest, pair, side) for rest, pair in zip(rests, noted_pairs, strict=True))
        alone = sum(not rest.answers[side] for rest in rests)
        if not rests or unchanged < NOTED_SHARE * len(rests) or alone > ALONE_SHARE * len(rests):
            continue
        mask = mark_places(list(noted), size)
        quotes = [pair.answers[side][start:end] for pair in pairs for start, end in noted.get(pair.place, ())]
        varied = len(set(quotes)) > max(map(len, noted.values()))
        text = (
            f"answers of the {name} repeat a text on {{share}} of pairs, the same"
            f"{' but for names, numbers or a few wordings' if varied else ''} ({clip_notice(max(quotes, key=len))}): "
            "a notice or a claim, which is not judged; if it is a false claim, generation broke"
        )
        left_out = {FULL_ANSWER: mask}
        notice = LocatedMismatch(kind="texts", text=text, pairs=mask, left_out=left_out, side=side, stretches=noted)
        return [notice, *(_find_markup(rests, size) or _find_masked(runs, rests, size))]
    return []


def _without_notice(pair: AnswerPair, side: int, stretches: Sequence[Stretch]) -> AnswerPair:
    """Return a pair with the answer of one side without its notice."""
    rest = cut_stretches(pair.answers[side], stretches)
    words, wrapped = _strip_markup(rest), _is_wrapped(rest)
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


def cover_words(words: frozenset[str], texts: Sequence[str]) -> float:
    """Return the share of the words that the text with the most of them holds."""
    return max((len(words & _collect_words(text)) / len(words) for text in texts), default=0.0)


@lru_cache(maxsize=1 << 11)
def _collect_words(text: str) -> frozenset[str]:
    """Return the content words of a text; those of recent ones are cached, since chunks are retrieved many times."""
    return frozenset(split_content_words(text))


def _is_in_other_language(pair: AnswerPair, side: int) -> bool:
    """Return whether the words of an answer are neither English nor those it was given, and the other answer's are.

    >>> chunk = ("The fee is due before the end of March.",)
    >>> german, english = "Die Gebühr wird bis Ende März bezahlt.", "It is due before the end of March."
    >>> pair = AnswerPair(0, (english, german), (chunk, chunk), (english, german), (False, False))
    >>> _is_in_other_language(pair, 1), _is_in_other_language(pair, 0)
    (True, False)
    """
    words, other = (_read_words(pair.answers[at]) for at in (side, 1 - side))
    if len(words) < LEAST_WORDS or not ENGLISH_WORDS.intersection(other):
        return False
    if sum(word in ENGLISH_WORDS for word in words) >= MIN_ENGLISH_SHARE * len(words):
        return False
    known = {*other, *(word for texts in pair.chunks for text in texts for word in split_words(text))}
    return sum(word not in known for word in words) >= UNKNOWN_SHARE * len(words)


def _find_other_form(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are encoded, in markup, without punctuation or masked."""
    return _find_encoded(pairs, size) or _find_markup(pairs, size) or _find_masked(runs, pairs, size)


def _read_words(answer: str) -> list[str]:
    """Return the words of an answer without numbers and links.

    >>> _read_words("Half of 12 stay open: https://example.org/plan")
    ['half', 'of', 'stay', 'open']
    """
    plain = " ".join(part for part in answer.split() if not LINK_PATTERN.search(part))
    return [word for word in split_words(plain) if not word[0].isdigit()]


def _find_encoded(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are URL-encoded, where the other's are not."""
    for side, name in ((1, "candidate"), (0, "baseline")):
        encoded = [pair.place for pair in pairs if _is_url_encoded(pair.answers[side])]
        if len(encoded) >= max(LEAST_PAIRS, MARKUP_SHARE * size):
            other_form = [pair for pair in pairs if pair.wrapped[0] != pair.wrapped[1]]
            mask = mark_places([pair.place for pair in other_form], size)
            text = f"answers of the {name} are URL-encoded on {{share}} of pairs, in the record or before it"
            text += _describe_other_words(other_form)
            return (
                [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})] if mask.any() else []
            )
    return []


def _is_url_encoded(answer: str) -> bool:
    """Return whether an answer is one string of escapes.

    >>> _is_url_encoded("Open%20until%20nine"), _is_url_encoded("A discount of 20%")
    (True, False)
    """
    text = answer.strip()
    return bool(text) and not re.search(r"\s", text) and (bool(ESCAPE_PATTERN.search(text)) or text.count("+") > 1)


def _describe_other_words(pairs: Sequence[AnswerPair]) -> str:
    """Describe how many of the answers in another form say other words as well; empty where none does."""
    other = sum(not pair.is_same for pair in pairs)
    if not other:
        return ""
    return (
        f"; {other:,} of these {len(pairs):,} answers say other words as well, which is not judged: record them in one "
        "form and evaluate again"
    )


def _find_masked(runs: tuple[Run, Run], pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find the side whose answers are the other's with masks, such as [NAME], in place of words.

    A rule masks words wherever they stand; a model that writes masks does so now and then. Where a rule is seen, no
    answer with more masks than the other side's is compared with it; elsewhere all are, and the masks are said.
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
            text += "other answers show these words; if it is the record that masks them now and then, that is no fault"
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, blocks=False)]
        text += "in the record, or before it, which would be a fault of generation"
        return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]
    return []


def _list_masked(pair: AnswerPair, side: int) -> list[str]:
    """Return what the answer of one side masks of the other's; nothing where its chunks are masked as well."""
    words = find_masked(pair.answers[side], pair.answers[1 - side])
    chunks = zip(pair.chunks[side], pair.chunks[1 - side], strict=False)
    return [] if words and any(find_masked(*texts) for texts in chunks) else words


def _masks_by_rule(run: Run, words: Counter[str]) -> bool:
    """Return whether hardly any of the words that some answers mask stand in others; the most frequent show it."""
    frequent = dict(words.most_common(MAX_RULE_WORDS))
    names = "|".join(map(re.escape, sorted(frequent, key=len, reverse=True)))
    pattern, masked = re.compile(rf"(?<!\w)(?:{names})(?!\w)"), sum(frequent.values())
    answers = run.to_arrow("traces", ["answer"])["answer"].to_pylist()
    shown = sum(len(pattern.findall(normalize_space(answer))) for answer in answers if answer)
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


def _find_markup(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find answers that are the same but for markup: tags, JSON, reasoning, bullets, emphasis, case, sources, marks.

    Or but for punctuation, of which one side has none. Where there are many, an answer with tags, in JSON, with its
    sources or without punctuation is not compared with one of another form: a judge reads them as words.
    """
    same = [pair for pair in pairs if pair.answers[0] != pair.answers[1] and pair.is_same]
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
            "answers differ in markup on {share} of pairs, most in nothing else: tags, JSON, reasoning, bullets, "
            "emphasis, letter case, quotation marks, a final full stop, separators in numbers, currency symbols or a "
            "list of sources around the same words"
        )
    concerned = {pair.place: pair for pair in (*same, *other_form)}
    mask = mark_places([*concerned], size)
    text += _describe_other_words([*concerned.values()])
    return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out={"answer": mask})]


def _is_wrapped(answer: str) -> bool:
    """Return whether an answer holds tags or reasoning, is a JSON object, in a fence or not, or is URL-encoded."""
    return (
        TAG_PATTERN.search(answer) is not None
        or REASONING_PATTERN.search(answer) is not None
        or FENCE_PATTERN.sub(r"\1", answer).lstrip().startswith("{")
        or _is_url_encoded(answer)
    )


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
    """Return the words of an answer without markup, case, accents, quotation marks around it and a final full stop.

    Separators in numbers are alike, and symbols of currencies are codes.

    >>> _strip_markup("<p>1. It&#39;s <b>ten</b>.<br></p>") == _strip_markup("- IT'S **ten**")
    True
    """
    plain = unquote_plus(text) if _is_url_encoded(text) else _unwrap_json(text)
    plain = TAG_PATTERN.sub("\n", REASONING_PATTERN.sub("", plain))
    plain = MARK_PATTERN.sub(" ", html.unescape(plain).strip())
    words = "".join(fold_case(normalize_space(plain)).split()).translate(CURRENCY_NAMES)
    return SEPARATOR.sub(".", words.strip(QUOTE_MARKS)).rstrip(".")


def _unwrap_json(text: str) -> str:
    """Return the longest text of a JSON object, which may stand between code fences, else the text as it is."""
    plain = FENCE_PATTERN.sub(r"\1", text)
    if not plain.lstrip().startswith("{"):
        return text
    try:
        values = json.loads(plain).values()
    except ValueError:
        return text
    return max((value for value in values if isinstance(value, str)), key=len, default=text)
