"""Factoid questions: a clause of a sentence with a question word in the place of a name, a number or a date."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from typing import NamedTuple

from ragfault.apps.testsets.making.wording import is_content
from ragfault.apps.testsets.passages import CorpusIndex, Sentence
from ragfault.text.normalization import STOP_WORDS, stem_word

TOKEN = re.compile(r"[£$€]?[^\W_]+(?:['’.:,/&-][^\W_]+)*%?|[^\w\s]")
MARKUP = re.compile(
    r"!?\[([^\[\]]{0,300})\](?:\([^()]{0,500}\)|\[[^\[\]]{0,300}\])?|(?<!\w)[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}(?!\w)|\s?\([^()]{0,500}\)"
    r"|<(?:/?[a-zA-Z]|!--)[^<>]{0,300}>"
)
CLAUSE_BREAK = re.compile(
    r"[;:—–]\s|\s[-–—]+\s|[.!?]\s|\s(?=(?:because|although|whereas|unless|so that|and then)\b)"
    r"|,\s(?=(?:and|but|or|so|which|who|whose|while|if|when|until|where|since|as|with|including)\b)"
)


def read_words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def strip_markup(text: str) -> str:
    """Return a text without entities, remarks in parentheses, emphasis and the targets of links."""
    return MARKUP.sub(lambda match: match[1] or "", unescape(text))


AUXILIARIES = read_words("is are was were must may might can could will would shall should")
PERFECT = read_words("has have had do does did")
"""Auxiliaries only before a participle, "been" or "not": else they are verbs of their own."""
PREPOSITIONS = read_words(
    "in on at for with within from by during after before under over between through into without against per until "
    "since among across near via upon about around behind along above below beyond despite except like unlike rather "
    "regarding including due throughout"
)
SUBORDINATORS = read_words(
    "if when whenever where while as since because although though unless until once that which who whose how what why "
    "whether and but or nor so yet also then to not"
)
PART_STARTS = PREPOSITIONS | read_words("that which who whose whom when where while as if since because")
_PRONOUNS = read_words(
    "it they he she we i this that these those there its their his her our such both here one you your"
)
PRONOUNS = frozenset(("it", "this", "that", "these", "those", "there", "he", "she", "they", "we", "you", "i", "here"))
ADVERBIALS = read_words("again this that some to then also however therefore thus second third first finally")
"""Words that open an adverbial before a comma."""
JOINTS = read_words(
    "and but or so also because although whereas unless then sometimes occasionally often usually typically currently"
)
ARTICLES = read_words("the a an")
SUBJECT_STARTS = _PRONOUNS | ARTICLES | read_words("some all each every many most several any no few")
PEOPLE = read_words("he she his her him hers mr mrs ms dr born")
MONTHS = read_words("january february march april may june july august september october november december")
WEEKDAYS = read_words("monday tuesday wednesday thursday friday saturday sunday")
UNASKED_AFTER = read_words("any some each every no all this such own your their its his her our my")
"""Words before a name that no question word follows."""
NUMBERED = read_words(
    "route rule section chapter version page figure table step item line room gate no number level phase part tier "
    "grade type appendix schedule article channel port error status code day week rfc scenario option alternative"
)
"""A number after such a word is a name, and no quantity."""
MAX_SUBJECT = 8
MAX_ANSWER_WORDS = 5
MIN_WORDS = 3
MIN_FACTOID_WORDS, MAX_FACTOID_WORDS = 3, 8
"""Words of content of a factoid question."""
MAX_FRONTED_WORDS = 3
"""Words that a question may have before its question word."""
UNPLAIN = SUBORDINATORS - {"to"} | read_words(
    "it he she they we you this these those such following above below former latter other same both either neither "
    "only never except including than there here me us them him i every each cannot alone again instead thereafter"
)
"""Words that a plain question has not: they refer to other sentences, open a second clause, or limit the statement."""
PLAIN_OPENINGS = read_words("in on at with by to through within during after before what which how")
OWNERS = read_words("its their his her")
MAX_SURPLUS = 3
"""Words of content that a question may have beyond the number aimed at."""


class FactoidAnswer(NamedTuple):
    """A stretch of a clause that a question asks for."""

    start: int
    stop: int
    text: str
    question: tuple[str, ...]
    """The words that ask for it."""


def cut_clauses(sentence: str, is_word: Callable[[str], bool] = lambda _: False) -> Iterator[list[str]]:
    """Yield the words of each clause of a sentence that has a subject, without markup and remarks in parentheses.

    `is_word` says whether a word with a capital at the start of a sentence is a usual one, which is then written small.

    >>> list(cut_clauses("It has *8* rooms (all heated), and the hall is closed."))
    [['it', 'has', '8', 'rooms'], ['the', 'hall', 'is', 'closed']]
    """
    plain_text = strip_markup(sentence)
    for index, piece in enumerate(CLAUSE_BREAK.split(plain_text)):
        words = re.split(r",(?!\d)", piece)
        while len(words) > 1 and (words[0].split() or [""])[0].lower() in PREPOSITIONS | ADVERBIALS:
            # an adverbial before the clause
            words.pop(0)
        if len(words) > 2 and len(words[1].split()) <= 2:
            # it enumerates, and would be cut within
            continue
        tokens = TOKEN.findall(words[0].rstrip(" .!"))
        while tokens and tokens[0].lower() in JOINTS:
            tokens.pop(0)
        if len(tokens) < MIN_WORDS or (
            index and tokens[0].lower() not in SUBJECT_STARTS and not tokens[0][0].isupper()
        ):
            continue
        if tokens[0].lower() in ("it", "note") and "that" in tokens[:5]:
            tokens = tokens[tokens.index("that") + 1 :] or tokens
        first_token = tokens[0].lower()
        if (
            len(tokens) < MIN_WORDS
            or first_token in PREPOSITIONS | SUBORDINATORS | ADVERBIALS
            or not first_token[-1].isalnum()
            or "." in tokens
        ):
            continue
        if first_token in STOP_WORDS or first_token in SUBJECT_STARTS or is_word(first_token):
            tokens[0] = first_token
        yield [token for token in tokens if token[-1].isalnum() or token[-1] == "%"]


def list_answers(tokens: Sequence[str], speaks_of_people: bool) -> Iterator[FactoidAnswer]:
    """Yield the names, numbers and dates of a clause, each with the words that ask for it.

    >>> [(a.text, " ".join(a.question)) for a in list_answers("A refund takes 5 days in May".split(), False)]
    [('5', 'how many'), ('May', 'which month')]
    """
    if sum(token[0].isupper() for token in tokens) * 2 > len(tokens) + 1:
        # a title or a notice in capitals
        return
    position = 0
    while position < len(tokens):
        stop = _find_answer_end(tokens, position)
        if stop > position:
            answer = _ask(tokens, position, stop, speaks_of_people)
            if answer is not None:
                yield answer
        position = max(stop, position + 1)


def _find_answer_end(tokens: Sequence[str], position: int) -> int:
    """Return the end of the name, number or date that begins at a word; `position` where none begins."""
    first_token = tokens[position]
    if _is_number(first_token):
        stop = position + 1
        if stop < len(tokens) and tokens[stop].lower() in MONTHS and tokens[stop][0].isupper():
            stop += 1
            return stop + (stop < len(tokens) and _is_year(tokens[stop]))
        return stop + (stop < len(tokens) and tokens[stop].lower() in ("million", "billion", "thousand", "hundred"))
    if not first_token[0].isupper():
        return position
    stop = position + 1
    while stop < len(tokens) and (
        tokens[stop][0].isupper()
        or (tokens[stop] in ("of", "de") and stop + 1 < len(tokens) and tokens[stop + 1][0].isupper())
        or (first_token.lower() in MONTHS and _is_number(tokens[stop]))
    ):
        stop += 1
    return stop if position or stop - position > 1 else position


def _is_number(token: str) -> bool:
    return token.lstrip("£$€")[:1].isdigit()


def _is_year(token: str) -> bool:
    return re.fullmatch(r"1[0-9]{3}|20[0-9]{2}", token) is not None


def _ask(tokens: Sequence[str], start: int, stop: int, speaks_of_people: bool) -> FactoidAnswer | None:
    """Return the answer of a stretch of a clause; None where no question word fits it for sure."""
    before = tokens[start - 1].lower() if start else ""
    after = tokens[stop] if stop < len(tokens) else ""
    words = tokens[start:stop]
    if {before, after.lower()} & {"and", "or", "between"} or len(words) > MAX_ANSWER_WORDS:
        # one of several, or an end of a range
        return None
    text = " ".join(words)
    if any(word.lower() in MONTHS or word.lower() in WEEKDAYS for word in words):
        return _ask_date(tokens, start, stop, text)
    if _is_number(words[0]):
        question = None if "to" in (before, after) else _ask_number(words, before, after)
        return None if question is None else FactoidAnswer(start, stop, text, question)
    is_odd = len(text) < 3 or text.endswith(("'s", "’s")) or after[:1].isdigit() or before in PEOPLE
    if is_odd or any(any(map(str.isdigit, word)) for word in words):
        return None
    if before in UNASKED_AFTER:
        return None
    if before in ARTICLES:
        start -= 1
        before = tokens[start - 1].lower() if start else ""
    elif is_content(before) and not before.endswith(("ed", "s")):
        # the end of a longer name, or an adjective before it
        return None
    asks_kind = after.islower() and is_content(after) and not after.endswith(("s", "ed", "ly"))
    if asks_kind:
        return FactoidAnswer(start, stop, text, ("which",))
    if before in PREPOSITIONS or before in ("of", "to"):
        pronoun = "whom" if speaks_of_people and before in ("by", "with") else "what"
        return FactoidAnswer(start, stop, text, (pronoun,))
    return FactoidAnswer(start, stop, text, ("who",) if speaks_of_people else ("who", "or", "what"))


def _ask_date(tokens: Sequence[str], start: int, stop: int, text: str) -> FactoidAnswer | None:
    start -= start > 0 and tokens[start - 1].lower() in ARTICLES
    if any(_is_number(word) for word in tokens[start:stop]):
        return FactoidAnswer(start, stop, text, ("what", "date"))
    if stop - start > 1:
        return None
    return FactoidAnswer(start, stop, text, ("which", "month" if text.lower() in MONTHS else "day"))


def _ask_number(words: Sequence[str], before: str, after: str) -> tuple[str, ...] | None:
    number = words[0]
    if before in NUMBERED or before in PEOPLE or number.count(".") > 1 or number[-1] in "'’":
        return None
    if number[0] in "£$€" or after in ("euros", "pounds", "dollars", "cents"):
        return ("how", "much")
    if number[-1] == "%":
        return ("what", "percentage")
    if re.fullmatch(r"\d{1,2}[:.]\d\d", number) and before in ("at", "from", "by", "until", "before", "after"):
        return ("what", "time")
    if _is_year(number) and not after.endswith("s"):
        return ("what", "year") if before in ("in", "since", "until", "by", "of", "after", "before", "from") else None
    if re.search(r"[^\d.,]", number):
        return None
    if after.islower() and is_content(after):
        return ("how", "many")
    return None


def find_auxiliary(tokens: Sequence[str]) -> int | None:
    """Return the place of the auxiliary after a short subject; None where the clause has no such form.

    >>> find_auxiliary("dogs on a lead are allowed".split()), find_auxiliary("it has 8 rooms".split())
    (4, None)
    """
    if tokens[0].lower() in ("there", "here"):
        return None
    for index, token in enumerate(tokens[: MAX_SUBJECT + 1]):
        if not index:
            continue
        if token in SUBORDINATORS - {"and", "or", "to"}:
            return None
        following = tokens[index + 1 : index + 3]
        is_perfect = (
            token in PERFECT
            and tokens[index - 1] != "to"
            and any(word in ("been", "not", "never") or word.endswith("ed") for word in following)
        )
        if (token in AUXILIARIES or is_perfect) and following:
            return index
    return None


def ask_about(tokens: Sequence[str], answer: FactoidAnswer, size: int) -> tuple[str, ...] | None:
    """Return a question for an answer of a clause, of about so many words of content.

    None where it would be long, or where nothing in the clause looks like a verb.

    >>> words = "repairs to a vessel may be ordered within 5 days of the report".split()
    >>> answer = next(list_answers(words, False))
    >>> " ".join(ask_about(words, answer, 6))
    'within how many days of the report may repairs to a vessel be ordered'
    """
    auxiliary = find_auxiliary(tokens)
    main_clause = list(
        itertools.takewhile(
            lambda token: token not in SUBORDINATORS | {"until"}, (*tokens[1 : answer.start], *tokens[answer.stop :])
        )
    )
    if auxiliary is None and not any(word.islower() and word.endswith(("s", "ed")) for word in main_clause):
        # perhaps no clause: nothing looks like its verb
        return None
    subject_start = answer.stop if auxiliary is None or answer.start < auxiliary else auxiliary + 1
    starts = [i for i in range(subject_start, len(tokens)) if i == subject_start or tokens[i] in PART_STARTS]
    parts = list(itertools.pairwise([*starts, len(tokens)]))
    asked_at = next((i for i, (start, stop) in enumerate(parts) if start <= answer.start < stop), None)
    names_noun = answer.question[-1] in ("many", "which", "percentage") and answer.stop < len(tokens)
    end = _choose_end(tokens, parts, max(subject_start, answer.stop + names_noun), size)
    if sum(map(is_content, tokens[:end])) > size + MAX_SURPLUS:
        return None
    if auxiliary is None or asked_at is None:
        return (*tokens[: answer.start], *answer.question, *tokens[answer.stop : end])
    start, stop = parts[asked_at]
    stop = min(stop, end)
    before = list(tokens[start : answer.start])
    question_words = [*answer.question, *tokens[answer.stop : stop]]
    if before and before[0] in PREPOSITIONS and len(before) <= MAX_FRONTED_WORDS:
        question_words, before = [*before, *question_words], []
    elif before and (before[0] in PREPOSITIONS or not is_content(before[-1])):
        return (*tokens[:start], *before, *question_words, *tokens[stop:end])
    remaining = (*tokens[subject_start:start], *before, *tokens[stop:end])
    return (*question_words, tokens[auxiliary], *tokens[:auxiliary], *remaining)


def is_plain_question(tokens: Sequence[str], answer: FactoidAnswer, words: Sequence[str]) -> bool:
    """Return whether a question for an answer of a clause opens with its question word and stands by itself.

    It is about the subject of a verb, or its verb stands before the subject; no word of it refers to something else.

    >>> tokens = "the quay was closed in 1907".split()
    >>> is_plain_question(tokens, next(list_answers(tokens, False)), "in what year was the quay closed".split())
    True
    """
    opening = 0 if words[0] == answer.question[0] else 1
    remaining = words[opening + len(answer.question) :]
    unplain = UNPLAIN | (OWNERS if answer.start else frozenset())
    follows = "".join(tokens[answer.stop : answer.stop + 1])
    if (
        words[opening] != answer.question[0]
        or follows.endswith("ing")
        or unplain & {word.lower() for word in remaining}
    ):
        return False
    auxiliary = find_auxiliary(tokens)
    counts = answer.question[-1] in ("many", "percentage")
    names_noun = counts or answer.question[-1] == "which"
    if answer.start == 0:
        # what followed was cut off
        if remaining[-1].endswith(("ed", "ing")) and len(words) < len(tokens):
            return False
        verb = answer.stop + names_noun
        has_object = tokens[verb].endswith(("ed", "s")) and (tokens[verb + 1 :] or [""])[0] in ARTICLES | OWNERS
        return verb == auxiliary or (auxiliary is None and tokens[verb].islower() and has_object)
    if auxiliary is None or answer.start <= auxiliary or not (opening or counts) or tokens[0][0].isdigit():
        return False
    is_copula = tokens[auxiliary] in ("is", "are", "was", "were") and not tokens[auxiliary + 1].endswith("ed")
    verbs = (tokens[auxiliary], "of") if counts else (tokens[auxiliary],)
    return words[0] in PLAIN_OPENINGS and not is_copula and remaining[names_noun] in verbs


def _choose_end(tokens: Sequence[str], parts: Sequence[tuple[int, int]], least: int, size: int) -> int:
    """Return where a question ends: after as many parts as have the words of content, and no word that leads on."""
    end = least
    for start, stop in parts:
        if stop > least and (start < least or sum(map(is_content, tokens[:stop])) <= size):
            end = max(end, stop)
        elif stop > least:
            break
    while end > least and not is_content(tokens[end - 1]):
        end -= 1
    return end


def list_clause_answers(index: CorpusIndex, sentence: Sentence) -> list[tuple[list[str], FactoidAnswer]]:
    """List the clauses of a sentence that name their subject, with each name, number and date in them."""
    speaks_of_people = not PEOPLE.isdisjoint(index.passages[sentence.passage].text.lower().split())
    return [
        (tokens, answer)
        for tokens in cut_clauses(sentence.text, lambda word: _is_usual(index, word))
        if tokens[0] not in PRONOUNS
        for answer in list_answers(tokens, speaks_of_people)
    ]


def _is_usual(index: CorpusIndex, word: str) -> bool:
    """Return whether a word in small letters is no name that the corpus also writes so."""
    is_proper = index.is_proper_name(word.capitalize()) or index.is_proper_name(word.upper())
    return word in index.list_forms(stem_word(word)) and not is_proper


def list_factoids(index: CorpusIndex, sentence: Sentence, *, plain: bool = False) -> list[tuple[str, str]]:
    """List the questions in the words of the clauses of a sentence, each with its answer; or only the plain ones."""
    return [
        (" ".join(words), answer.text)
        for tokens, answer in list_clause_answers(index, sentence)
        if (words := ask_about(tokens, answer, MAX_FACTOID_WORDS)) and sum(map(is_content, words)) >= MIN_FACTOID_WORDS
        if not plain or is_plain_question(tokens, answer, words)
    ]
