"""Questions of each kind with their answer keys, drafted from the passages of a corpus."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ragfault.records import Span
from ragfault.testsets.making.factoids import MARKUP, PEOPLE, ask_about, cut_clauses, list_answers
from ragfault.testsets.making.wording import QueryWriter, choose_answer, is_content, is_name, name_answer_kind
from ragfault.testsets.passages import WORD, CorpusIndex, CorpusPassage, Sentence, find_form, rank_topics
from ragfault.testsets.records import QuestionKind
from ragfault.text import split_content_words, stem_word

Item = TypeVar("Item")
DEFINITION = re.compile(
    r"(?P<term>(?:(?:The|An?) )?[^\W\d_][\w'’()-]*(?: [\w'’()-]+){0,4}?),? (?:is|are|was|were|refers to|means) "
    r"(?:(?:an?|one of|any|defined as)\b|the [\w-]+ (?:of|that|which|who|by|for)\b)"
)
PRONOUNS = frozenset(("it", "this", "that", "these", "those", "there", "he", "she", "they", "we", "you", "i", "here"))
LIST_LINE = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?P<item>\S[^\n]*)")
MIN_LIST_ITEMS, MAX_LIST_ITEMS = 3, 15
TABLE_RULE_LINE = re.compile(r"[\s|:-]+")
MIN_CLAUSE_WORDS = 4
MIN_FACTOID_WORDS, MAX_FACTOID_WORDS = 3, 8
"""Words of content of a factoid question."""
MAX_TOPIC_WORDS = 5
"""A longer heading is no topic."""
MAX_SHARED_HEADING = 8
"""A heading of more documents is a template, and no question."""
MAX_BRIDGE_PASSAGES = 6
"""A name in more passages does not join two of them."""
SWAPPED_SHARE = 0.6
"""Share, by rarity, of the words of a sentence, names and numbers apart, from which a passage may say the same."""


class Draft(NamedTuple):
    """A question with its answer key, before it is checked."""

    kind: QuestionKind
    query: str
    spans: tuple[Span, ...]
    facts: tuple[str, ...]
    reference: str | None
    answerable: bool | None
    passages: tuple[int, ...]
    """Positions of the passages that it was made from, the first of which names it."""
    note: str = ""
    """Remark on how it was made, such as the name that was swapped."""
    rejection: str = ""
    """Reason of a rejection before the checks."""


def clean_fact(text: str) -> str:
    """Return a stretch of a document as a fact on one line.

    >>> clean_fact("  - It opens\\n  at 7. ")
    'It opens at 7.'
    """
    return " ".join(re.sub(r"^\s*(?:[-*+•#>]|\d{1,3}[.)])+\s+", "", text).split())


def draft_extractive(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for a name, a number or a word of a sentence."""
    for sentence in _shuffle(index.sentences, writer.rng):
        draft = _draft_extractive(index, writer, sentence)
        if draft is not None:
            yield draft


def _draft_extractive(index: CorpusIndex, writer: QueryWriter, sentence: Sentence) -> Draft | None:
    passage = index.passages[sentence.passage]
    answer = choose_answer(sentence.text, writer.rng)
    query = writer.write(passage, sentence.text, answer) if answer else None
    if answer is None or query is None:
        return None
    span = index.make_span(passage.document, sentence.start, sentence.end)
    fact = clean_fact(sentence.text)
    return Draft("extractive", query, (span,), (fact,), answer.text, True, (sentence.passage,))


def draft_factoids(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions in the words of a clause for a name, a number or a date, below the heading of their passage."""
    for sentence in _shuffle(index.sentences, writer.rng):
        passage = index.passages[sentence.passage]
        speaks_of_people = not PEOPLE.isdisjoint(passage.text.lower().split())
        questions = [
            (words, answer.text)
            for tokens in cut_clauses(sentence.text, lambda word: word in index.list_forms(stem_word(word)))
            if tokens[0] not in PRONOUNS
            for answer in list_answers(tokens, speaks_of_people)
            if (words := ask_about(tokens, answer, MAX_FACTOID_WORDS))
            and sum(map(is_content, words)) >= MIN_FACTOID_WORDS
        ]
        if not questions:
            continue
        words, answer_text = writer.rng.choice(questions)
        question_stems = {stem_word(word.lower()) for word in words}
        heading = MARKUP.sub(lambda match: match[1] or "", passage.heading)
        topics = {stem_word(word.lower()) for word in WORD.findall(heading) if is_content(word)}
        topic = f"{heading}: " if len(topics) <= MAX_TOPIC_WORDS and topics - question_stems else ""
        span = index.make_span(passage.document, sentence.start, sentence.end)
        query, fact = f"{topic}{' '.join(words)}", clean_fact(sentence.text)
        yield Draft("factoid", query, (span,), (fact,), answer_text, True, (sentence.passage,))


def match_definition(sentence: str) -> str | None:
    """Return the term that a sentence defines, None where it defines none.

    >>> match_definition("A lock gate is a door that holds back water."), match_definition("It is a door.")
    ('lock gate', None)
    """
    match = DEFINITION.match(sentence)
    if match is None:
        return None
    term = re.sub(r"^(?:The|An?) ", "", match["term"]).strip(" (")
    words = WORD.findall(term)
    if not words or not all(is_content(word) or word == "of" for word in words) or words[0].lower() in PRONOUNS:
        return None
    if term.count("(") != term.count(")"):
        return None
    return term


def draft_definitions(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for the meaning of a term that a sentence defines."""
    for sentence in _shuffle(index.sentences, writer.rng):
        term = match_definition(sentence.text)
        if term is None:
            continue
        passage = index.passages[sentence.passage]
        form = writer.rng.choice(
            ("what is {}", "what does {} mean", "{} definition", "{} meaning", "who or what is {}")
        )
        if is_name(WORD.findall(term)[0]):
            form = writer.rng.choice(("what is {}", "who or what is {}", "{}"))
        span = index.make_span(passage.document, sentence.start, sentence.end)
        fact = clean_fact(sentence.text)
        yield Draft("definition", form.format(term), (span,), (fact,), fact, True, (sentence.passage,))


class ListBlock(NamedTuple):
    """A list of a passage: its items, the line before it, and its place in the document."""

    start: int
    end: int
    intro: str
    items: tuple[str, ...]


def find_list(passage: CorpusPassage) -> ListBlock | None:
    """Return the first list of a passage of three to fifteen items; None without one."""
    run: list[tuple[int, int, str]] = []
    intro, last, position = "", "", passage.start
    for line in [*passage.text.split("\n"), "."]:
        match = LIST_LINE.fullmatch(line)
        if match:
            if not run:
                intro = last
            run.append((position, position + len(line), match["item"].strip()))
        elif line.strip() and not (run and line.startswith((" ", "\t"))):
            if MIN_LIST_ITEMS <= len(run) <= MAX_LIST_ITEMS:
                return ListBlock(run[0][0], run[-1][1], intro or passage.heading, tuple(item for *_, item in run))
            run, last = [], line.strip()
        position += len(line) + 1
    return None


def draft_lists(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for all items of a list, by the line above it and its heading."""
    for i in _shuffle(range(len(index.passages)), writer.rng):
        passage = index.passages[i]
        block = None if passage.is_table else find_list(passage)
        if block is None:
            continue
        words = [word for word in WORD.findall(f"{passage.heading} {block.intro}") if is_content(word)]
        query_words = list(dict.fromkeys(words))[:6]
        if len(query_words) < 2:
            continue
        opening = writer.rng.choice(("list of", "which are the", "what are the", "all"))
        span = index.make_span(passage.document, block.start, block.end)
        facts = tuple(map(clean_fact, block.items))
        yield Draft("list", f"{opening} {' '.join(query_words)}", (span,), facts, "; ".join(facts), True, (i,))


class TableRow(NamedTuple):
    """A row of a table with its place in the document."""

    start: int
    end: int
    cells: tuple[str, ...]


def read_table(passage: CorpusPassage) -> tuple[tuple[str, ...], list[TableRow]] | None:
    """Return the head and the rows of a Markdown table; None where a passage is none of two columns or more."""
    rows: list[TableRow] = []
    position = passage.start
    for line in passage.text.split("\n"):
        if "|" in line and not TABLE_RULE_LINE.fullmatch(line):
            cells = tuple(cell.strip(" *`_") for cell in line.strip().strip("|").split("|"))
            rows.append(TableRow(position, position + len(line), cells))
        position += len(line) + 1
    if not passage.is_table or len(rows) < 3 or len(rows[0].cells) < 2:
        return None
    return rows[0].cells, [row for row in rows[1:] if len(row.cells) == len(rows[0].cells)]


def draft_tables(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for a cell of a table, by the head of its column and the first cell of its row."""
    for i in _shuffle(range(len(index.passages)), writer.rng):
        table = read_table(index.passages[i])
        if table is None:
            continue
        head, rows = table
        for row in _shuffle(rows, writer.rng)[:4]:
            column = writer.rng.randrange(1, len(head))
            key, cell = row.cells[0], row.cells[column]
            if not (key and cell and head[column] and WORD.search(key) and len(key) < 80 and len(cell) < 200):
                continue
            form = writer.rng.choice(("what is the {0} of {1}", "{1} {0}", "{0} for {1}"))
            span = index.make_span(index.passages[i].document, row.start, row.end)
            fact = f"{key}: {head[column]}: {cell}"
            yield Draft("table", form.format(head[column], key), (span,), (fact,), cell, True, (i,))


def draft_comparisons(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for the difference of two terms that the corpus defines under one heading or in like words."""
    terms: list[tuple[str, Sentence]] = []
    for sentence in index.sentences:
        term = match_definition(sentence.text)
        if term is not None:
            terms.append((term, sentence))
    for term, sentence in _shuffle(terms, writer.rng):
        passage = index.passages[sentence.passage]
        sentence_words = set(split_content_words(sentence.text))
        partners = [
            (len(sentence_words & set(split_content_words(other.text))), name, other)
            for name, other in terms
            if stem_word(name.lower()) != stem_word(term.lower())
            and other.start != sentence.start
            and (index.passages[other.passage].document == passage.document)
        ]
        if not partners:
            continue
        common_count, name, other = max(partners, key=lambda item: (item[0], -item[2].start))
        if common_count < 2:
            continue
        form = writer.rng.choice(("difference between {} and {}", "{} vs {}", "how do {} and {} differ"))
        yield _join_sentences(index, "comparison", form.format(term, name), (sentence, other), None)


def draft_two_passage(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions that need two passages: what one says of a name that the other describes."""
    for name, first, second in list_bridges(index, writer.rng):
        draft = _draft_bridge(index, writer, name, first, second)
        if draft is not None:
            yield draft


def list_bridges(index: CorpusIndex, rng: random.Random) -> Iterator[tuple[str, Sentence, Sentence]]:
    """Yield names that a few passages mention, each with sentences of two of them."""
    mentions: dict[str, list[Sentence]] = {}
    for sentence in index.sentences:
        for name in set(re.findall(r"(?<!^)(?<![.!?] )\b[A-Z][\w-]+(?: [A-Z][\w-]+)+", sentence.text)):
            mentions.setdefault(name, []).append(sentence)
    bridges = {
        name: sentences
        for name, sentences in mentions.items()
        if 2 <= len({sentence.passage for sentence in sentences}) <= MAX_BRIDGE_PASSAGES
    }
    for name in _shuffle(sorted(bridges), rng):
        first, *remaining = _shuffle(bridges[name], rng)
        elsewhere = [sentence for sentence in remaining if sentence.passage != first.passage]
        if elsewhere:
            yield name, first, elsewhere[0]


def _draft_bridge(
    index: CorpusIndex, writer: QueryWriter, name: str, first: Sentence, second: Sentence
) -> Draft | None:
    """Write a question for an answer in the second sentence, which names the bridge by the words of the first."""
    hidden = {stem_word(word.lower()) for word in WORD.findall(name)}
    answer = choose_answer(second.text, writer.rng)
    if answer is None or hidden & {stem_word(word.lower()) for word in WORD.findall(answer.text)}:
        return None
    known = [word for word in WORD.findall(first.text) if is_content(word) and stem_word(word.lower()) not in hidden]
    asked = [
        word
        for i, word in enumerate(WORD.findall(second.text))
        if i not in answer.words and is_content(word) and stem_word(word.lower()) not in hidden
    ]
    if len(known) < 2 or len(asked) < 2:
        return None
    left = sorted(writer.rng.sample(range(len(asked)), 2))
    right = sorted(writer.rng.sample(range(len(known)), min(3, len(known))))
    opening = {"number": "how many", "year": "when", "name": "who or what"}.get(answer.kind, "what")
    subject = " ".join(asked[at] for at in left)
    query = f"{opening} {subject} of the {' '.join(known[at] for at in right)}"
    return _join_sentences(index, "two-passage", query, (second, first), answer.text, f"joined by {name}")


def _join_sentences(
    index: CorpusIndex,
    kind: QuestionKind,
    query: str,
    sentences: Sequence[Sentence],
    reference: str | None,
    note: str = "",
) -> Draft:
    passages = tuple(sentence.passage for sentence in sentences)
    spans = tuple(
        index.make_span(index.passages[sentence.passage].document, sentence.start, sentence.end)
        for sentence in sentences
    )
    facts = tuple(clean_fact(sentence.text) for sentence in sentences)
    return Draft(kind, query, spans, facts, reference, True, passages, note)


def _shuffle(items: Sequence[Item], rng: random.Random) -> list[Item]:
    return rng.sample(list(items), len(items))


def draft_swapped(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions that the corpus does not answer: a name or number in them is another of the corpus."""
    names = sorted({match for sentence in index.sentences for match in _list_names(sentence.text)})
    if len(names) < 4:
        return
    for sentence in _shuffle(index.sentences, writer.rng):
        own = _list_names(sentence.text)
        draft = _draft_extractive(index, writer, sentence) if own else None
        if draft is None:
            continue
        present = [name for name in own if name.lower() in draft.query.lower().split()]
        if not present:
            continue
        old = writer.rng.choice(present)
        document = index.texts[index.passages[sentence.passage].document].lower()
        new = next(
            (
                name
                for name in writer.rng.sample(names, min(40, len(names)))
                if name_answer_kind(name) == name_answer_kind(old) and name.lower() not in document
            ),
            None,
        )
        if new is None:
            continue
        query = re.sub(rf"\b{re.escape(old)}\b", new, draft.query, flags=re.IGNORECASE)
        note = f"{old} was replaced by {new}"
        rejection = _reject_swap(index, sentence.text, new)
        yield Draft("unanswerable", query, (), (), None, False, draft.passages, note, rejection)


def _reject_swap(index: CorpusIndex, text: str, new: str) -> str:
    """Return where the corpus may say of another name or number what a sentence says of its own; empty: nowhere."""
    others = split_content_words(" ".join(word for word in WORD.findall(text) if not is_name(word)))
    for at, share in index.score_passages(others).items():
        passage = index.passages[at]
        if share >= SWAPPED_SHARE and re.search(rf"\b{re.escape(new)}\b", passage.text, re.IGNORECASE):
            return f"may be answerable: {passage.document} holds {new} and most other words of the sentence"
    return ""


def _list_names(text: str) -> list[str]:
    """List the names and numbers within a sentence, single words."""
    words = WORD.findall(text)
    return [word for word in words[1:] if is_name(word) and len(word) > 1 and is_content(word)]


def draft_false_premises(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions that presuppose another number than the corpus states; the fact states the right one."""
    for sentence in _shuffle(index.sentences, writer.rng):
        matches = [match for match in WORD.finditer(sentence.text) if match.group().isdecimal()]
        if not matches or len(matches) > 2:
            continue
        number = writer.rng.choice(matches)
        value = int(number.group())
        wrong_number = str(value + writer.rng.choice((1, 2, 3)) * (10 if value >= 100 else 1))
        if wrong_number in WORD.findall(sentence.text):
            continue
        clause = _cut_clause(sentence.text, number.start(), number.end(), wrong_number)
        passage = index.passages[sentence.passage]
        topics = [
            find_form(stem, WORD.findall(passage.text))
            for stem in rank_topics(index, passage, split_content_words(sentence.text))[:1]
        ]
        query = " ".join(["why is it that", *([f"in {topics[0]}"] if topics else []), clause])
        span = index.make_span(passage.document, sentence.start, sentence.end)
        fact = clean_fact(sentence.text)
        note = f"{number.group()} was replaced by {wrong_number}"
        yield Draft("false premise", query, (span,), (fact,), None, False, (sentence.passage,), note)


def _cut_clause(sentence: str, start: int, end: int, replacement: str) -> str:
    """Return the clause around a stretch of a sentence with other words in its place; a short sentence as it is.

    >>> _cut_clause("It has 8 rooms, which are heated, and a hall.", 7, 8, "9")
    'It has 9 rooms'
    """
    breaks = [match.start() for match in re.finditer(r"[,;:()](?!\d)", sentence)]
    clause_start = max([i + 1 for i in breaks if i < start], default=0)
    clause_end = min([i for i in breaks if i >= end], default=len(sentence))
    if len(WORD.findall(sentence[clause_start:clause_end])) < MIN_CLAUSE_WORDS:
        clause_start, clause_end = 0, len(sentence)
    return f"{sentence[clause_start:start]}{replacement}{sentence[end:clause_end]}".strip(" .,;:")


def draft_ambiguous(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions with two or more right places: headings that several documents have."""
    by_heading: dict[str, list[int]] = {}
    for i, passage in enumerate(index.passages):
        if passage.heading and not passage.is_table:
            by_heading.setdefault(passage.heading.lower(), []).append(i)
    shared_headings = {
        heading: passages
        for heading, passages in by_heading.items()
        if 2 <= len({index.passages[at].document for at in passages}) <= MAX_SHARED_HEADING
        and any(map(is_content, WORD.findall(heading)))
    }
    for heading in _shuffle(sorted(shared_headings), writer.rng):
        first_passages = {index.passages[at].document: at for at in reversed(shared_headings[heading])}
        passages = tuple(sorted(first_passages.values())[:5])
        spans = tuple(
            index.make_span(passage.document, passage.start, passage.end)
            for passage in (index.passages[at] for at in passages)
        )
        note = f"{len(first_passages)} documents have this heading"
        yield Draft("ambiguous", heading, spans, (), None, None, passages, note)


DRAFTERS: dict[QuestionKind, Callable[[CorpusIndex, QueryWriter], Iterator[Draft]]] = {
    "extractive": draft_extractive, "factoid": draft_factoids, "definition": draft_definitions, "list": draft_lists,
    "table": draft_tables, "comparison": draft_comparisons, "two-passage": draft_two_passage,
    "unanswerable": draft_swapped, "false premise": draft_false_premises, "ambiguous": draft_ambiguous,
}  # fmt: skip
"""Kind of question → the function that yields drafts of it, in random order."""
