"""Questions of each kind with their answer keys, drafted from the passages of a corpus."""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ragfault.apps.testsets.making.factoids import (
    ARTICLES,
    MONTHS,
    PRONOUNS,
    SUBJECT_STARTS,
    ask_about,
    find_auxiliary,
    list_clause_answers,
    list_factoids,
    read_words,
    strip_markup,
)
from ragfault.apps.testsets.making.wording import QueryWriter, choose_answer, is_content, is_name
from ragfault.apps.testsets.passages import (
    MIN_PASSAGE_WORDS,
    WORD,
    CorpusIndex,
    CorpusPassage,
    Sentence,
    find_heading,
    say_the_same,
)
from ragfault.apps.testsets.premises import BOUNDS, YEAR
from ragfault.apps.testsets.records import QuestionKind
from ragfault.model.records import Span
from ragfault.text.normalization import split_content_words, stem_word

Item = TypeVar("Item")
DEFINITION = re.compile(
    r"(?P<term>(?:(?:The|An?) )?[^\W\d_][\w'’()-]*(?: [\w'’()-]+){0,4}?),? (?:is|are|was|were|refers to|means) "
    r"(?:(?:an?|one of|any|defined as)\b|the [\w-]+ (?:of|that|which|who|by|for)\b)"
)
JUDGEMENTS = read_words(
    "bad big bit central common critical crucial essential example exception feature friend good great important key "
    "large major most necessary part place popular result small special unique very way"
)
"""Words that follow "is a" in what is said of a thing, and does not define it."""
NAME = re.compile(r"\b([a-z]+) ([A-Z][\w-]*(?: (?:of (?:the )?)?[A-Z][\w-]*)*|\d{4}\b)")
"""A name or a year after a word in small letters."""
NAME_WORDS = r"[A-Z][\w-]*(?: [A-Z][\w-]*){0,3}"
ENUMERATION = re.compile(rf"\b{NAME_WORDS}(?:, {NAME_WORDS})*,? (?:and|or) {NAME_WORDS}(?! [a-z]+s\b)")
ENUMERATION_BREAK = re.compile(r",? (?:and|or) |, ")
LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
LINK_ALONE = re.compile(r"[\W\d]*\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])?\W*")
LIST_LINE = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•]|\d{1,3}[.)])[ \t]+(?P<item>\S[^\n]*)")
MIN_LIST_ITEMS, MAX_LIST_ITEMS = 3, 15
MAX_INTRO_WORDS = 12
"""A longer line above a list is no part of its question."""
TABLE_RULE_LINE = re.compile(r"[\s|:-]+")
MAX_PREMISE_WORDS = 25
MAX_TOPIC_WORDS = 5
"""A longer heading is no topic."""
MAX_SHARED_HEADING = 8
"""A heading of more documents is a template, and no question."""
GENERIC = read_words(
    "about background before conclusion contents defined definition definitions design detailed details example "
    "examples explanation faq further getting history introduction motivation next notes overview parameters process "
    "prerequisites proposed reference references requirements see solution start started step steps summary usage"
)
"""Words of headings that name a part of any document, and ask for nothing."""
YEARS_APART = range(1, 31)
"""Distances of the years that a year is swapped for."""
SAME_BEGINNING = 4
"""Names that begin with the same letters, so many, are too alike to swap: "Norman", "Normandy"."""
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


def is_statement(text: str) -> bool:
    """Return whether a sentence says something by itself: no lead-in, no beginning of a sentence, no link alone.

    >>> is_statement("These documents are needed:"), is_statement("The pier is closed."), is_statement("It is in the")
    (False, True, False)
    """
    words = WORD.findall(text)
    is_cut = text[-1].isalnum() and not (is_content(words[-1]) or words[-1].isdigit())
    return text[-1] not in ":,;(" and not is_cut and LINK_ALONE.fullmatch(text) is None


def _shuffle_statements(index: CorpusIndex, writer: QueryWriter) -> list[Sentence]:
    return _shuffle([sentence for sentence in index.sentences if is_statement(sentence.text)], writer.rng)


def draft_extractive(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for a name, a number or a word of a sentence."""
    for sentence in _shuffle_statements(index, writer):
        passage = index.passages[sentence.passage]
        answer = choose_answer(sentence.text, writer.rng, index.is_proper_name)
        query = writer.write(passage, sentence.text, answer) if answer else None
        if answer is not None and query is not None:
            span = index.make_span(passage.document, sentence.start, sentence.end)
            fact = clean_fact(sentence.text)
            yield Draft("extractive", query, (span,), (fact,), answer.text, True, (sentence.passage,))


def _name_topic(index: CorpusIndex, passage: CorpusPassage, heading: str, question: str) -> str:
    """Return the title and the heading above a question as its opening, each where it is short and says more."""
    known_stems = set(split_content_words(question))
    topics: list[str] = []
    for name in (index.titles[passage.document] or "", heading):
        topic = strip_markup(name).rstrip(":")
        stems = set(split_content_words(topic))
        if len(stems) <= MAX_TOPIC_WORDS and stems - known_stems:
            topics.append(topic)
            known_stems |= stems
    return f"{', '.join(topics)}: " if topics else ""


def draft_factoids(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions in the words of a clause for a name, a number or a date, below the heading of their sentence."""
    for sentence in _shuffle_statements(index, writer):
        questions = list_factoids(index, sentence)
        if not questions:
            continue
        question, answer = writer.rng.choice(questions)
        span = index.make_span(index.passages[sentence.passage].document, sentence.start, sentence.end)
        topic = _name_topic(index, index.passages[sentence.passage], sentence.heading, question)
        fact = clean_fact(sentence.text)
        yield Draft("factoid", f"{topic}{question}", (span,), (fact,), answer, True, (sentence.passage,))


def match_definition(sentence: str) -> str | None:
    """Return the term that a sentence defines, None where it defines none.

    >>> match_definition("A lock gate is a door that holds back water."), match_definition("It is a door.")
    ('lock gate', None)
    >>> match_definition("Technology is a necessary part of work."), match_definition("The input is an open graph.")
    (None, None)
    """
    match = DEFINITION.match(sentence)
    if match is None:
        return None
    term = re.sub(r"^(?:The|An?) ", "", match["term"]).strip(" (")
    words = WORD.findall(term)
    if not words or not all(is_content(word) or word == "of" for word in words) or words[0].lower() in PRONOUNS:
        return None
    predicate = sentence[match.end() :].lower().replace(":", " ").split()[:3]
    # "The outcome was a …"
    is_back_reference = sentence.startswith("The ") and not words[0][0].isupper()
    if (
        is_back_reference
        or words[-1].endswith("ly")
        or JUDGEMENTS & {*predicate, *term.lower().split()}
        or term.count("(") != term.count(")")
    ):
        return None
    return term


def draft_definitions(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for the meaning of a term that one sentence defines."""
    for term, sentence in _shuffle(_list_definitions(index), writer.rng):
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
    """Return the first list of a passage of three to fifteen items, each with what is indented below it."""
    run: list[str] = []
    start = end = indent = 0
    intro, last, position = "", "", passage.start
    for line in [*passage.text.split("\n"), "."]:
        match = LIST_LINE.fullmatch(line)
        if match and (not run or len(match["indent"]) <= indent):
            if not run:
                intro, start, indent = last, position, len(match["indent"])
            run.append(match["item"].strip())
            end = position + len(line)
        elif run and (match or (line.strip() and line.startswith((" ", "\t")))):
            run[-1] += f" {clean_fact(line)}"
            end = position + len(line)
        elif line.strip():
            if MIN_LIST_ITEMS <= len(run) <= MAX_LIST_ITEMS:
                return ListBlock(start, end, intro or passage.heading, tuple(run))
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
        heading = find_heading(index.headings[passage.document], block.start) or passage.heading
        topic, intro = (strip_markup(text).strip("#:… \n") for text in (heading, block.intro))
        if intro[:1].isupper() and intro != topic and len(intro.split()) <= MAX_INTRO_WORDS:
            topic = f"{topic}: {intro}" if topic else intro
        if sum(map(is_content, WORD.findall(topic))) < 2:
            continue
        is_procedure = index.texts[passage.document][block.start :].lstrip()[0].isdigit()
        opening = "steps of" if is_procedure else writer.rng.choice(("list of", "all"))
        span = index.make_span(passage.document, block.start, block.end)
        facts = tuple(map(clean_fact, block.items))
        yield Draft("list", f"{opening} {topic}", (span,), facts, "; ".join(facts), True, (i,))


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
            plain_text = LINK.sub(r"\1", line).strip().strip("|")
            cells = tuple(cell.strip(" *`_") for cell in plain_text.split("|"))
            rows.append(TableRow(position, position + len(line), cells))
        position += len(line) + 1
    rule = [line for line in passage.text.split("\n") if "|" in line][1:2]
    has_head = bool(rule) and TABLE_RULE_LINE.fullmatch(rule[0])
    if not passage.is_table or not has_head or len(rows) < 3 or len(rows[0].cells) < 2:
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
            if sum(other.cells[0] == key for other in rows) > 1:
                continue
            is_usual = len(key) < 80 and len(cell) < 200 and not key.lower().startswith("total")
            if not (cell and WORD.search(head[column]) and WORD.search(key) and is_usual) or "<" in key + cell:
                continue
            form = writer.rng.choice(("what is the {0} of {1}", "{1} {0}", "{0} for {1}"))
            span = index.make_span(index.passages[i].document, row.start, row.end)
            fact, question = f"{key}: {head[column]}: {cell}", form.format(head[column], key)
            heading = find_heading(index.headings[span.document], span.start)
            query = f"{_name_topic(index, index.passages[i], heading, question)}{question}"
            yield Draft("table", query, (span,), (fact,), cell, True, (i,))


def _list_definitions(index: CorpusIndex) -> list[tuple[str, Sentence]]:
    """List the terms that one sentence of the corpus defines, each with it."""
    definitions: defaultdict[str, list[tuple[str, Sentence]]] = defaultdict(list)
    for sentence in index.sentences:
        term = match_definition(sentence.text) if is_statement(sentence.text) else None
        if term is not None:
            definitions[term.lower()].append((term, sentence))
    return [places[0] for places in definitions.values() if len(places) == 1]


def draft_comparisons(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions for the difference of two terms that the corpus defines under one heading or in like words."""
    terms = _list_definitions(index)
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
    """Yield questions that the corpus does not answer: a name in them is another of its sort, or a year another year.

    Names are of one sort that the corpus enumerates ("Oslo, Bergen and Tarvik").
    """
    named = {pair for sentence in index.sentences for pair in _list_names(index, sentence.text)}
    peers = _list_peers(index, {name for _, name in named})
    for sentence in _shuffle_statements(index, writer):
        document = index.texts[index.passages[sentence.passage].document].lower()
        swaps = [
            (question, before, old, new)
            for question, _ in list_factoids(index, sentence, plain=True)
            for before, old in _list_names(index, question)
            for new in sorted(peers.get(old, ()))
            if new.lower() not in document
            and ((before, new) in named if before in ARTICLES else ("the", new) not in named)
        ]
        if not swaps:
            continue
        # one question of each sentence
        question, before, old, new = random.Random(sentence.text).choice(swaps)
        topic = _name_topic(index, index.passages[sentence.passage], sentence.heading, question)
        if old.lower() in topic.lower():
            continue
        query = f"{topic}{question.replace(f'{before} {old}', f'{before} {new}')}"
        note = f"{old} was replaced by {new}"
        rejection = _reject_swap(index, sentence.text, new)
        yield Draft("unanswerable", query, (), (), None, False, (sentence.passage,), note, rejection)


def _list_peers(index: CorpusIndex, names: Iterable[str]) -> dict[str, set[str]]:
    """List for each name those of as many words that an enumeration has beside it, and for a year those near it."""
    peers: defaultdict[str, set[str]] = defaultdict(set)
    for sentence in index.sentences:
        for match in ENUMERATION.finditer(sentence.text):
            members = [name for name in ENUMERATION_BREAK.split(match[0]) if index.is_proper_name(name.split()[0])]
            for name, other in itertools.permutations(members, 2):
                if name.count(" ") == other.count(" ") and name[:SAME_BEGINNING] != other[:SAME_BEGINNING]:
                    peers[name].add(other)
    for year in filter(YEAR.fullmatch, names):
        peers[year] = {other for other in filter(YEAR.fullmatch, names) if abs(int(other) - int(year)) in YEARS_APART}
    return peers


def _list_names(index: CorpusIndex, text: str) -> list[tuple[str, str]]:
    """List the names and years of a text, each after the word before it."""
    names = [(match[1], match[2].removesuffix("'s")) for match in NAME.finditer(text)]
    return [
        (before, name)
        for before, name in names
        if is_content(name.split()[0]) and index.is_proper_name(name.split()[0]) and name.lower() not in MONTHS
    ]


def _reject_swap(index: CorpusIndex, text: str, new: str) -> str:
    """Return where the corpus may say of another name or number what a sentence says of its own; empty: nowhere."""
    others = set(split_content_words(" ".join(word for word in WORD.findall(text) if not is_name(word))))
    for at, share in index.score_passages(others).items():
        passage = index.passages[at]
        count = len(others & set(passage.stems))
        is_near = share >= SWAPPED_SHARE or count >= SWAPPED_SHARE * len(others)
        if is_near and re.search(rf"\b{re.escape(new)}\b", passage.text, re.IGNORECASE):
            return f"may be answerable: {passage.document} holds {new} and most other words of the sentence"
    return ""


def draft_false_premises(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions that presuppose another number than the corpus states; the fact states the right one."""
    for sentence in _shuffle_statements(index, writer):
        clauses = [
            (tokens, answer)
            for tokens, answer in list_clause_answers(index, sentence)
            if answer.text.isdecimal()
            and answer.start
            and len(tokens) <= MAX_PREMISE_WORDS
            and tokens[answer.start - 1].islower()
            # "the 7020 chip": a name
            and tokens[answer.start - 1] not in ARTICLES
            # a quantity, unlike "32 bit"
            and any(token.endswith("s") for token in tokens[answer.stop :][:2])
            # else perhaps an instruction
            and (find_auxiliary(tokens) is not None or tokens[0] in SUBJECT_STARTS)
            and not BOUNDS.search(" ".join(tokens))
            and not re.search(rf"[~≈#]{answer.text}|\b{answer.text}(?:\+| ?[ap]\.?m\b)", sentence.text)
            and not sentence.text.startswith(("For example", "E.g."))
            and ask_about(tokens, answer, len(tokens))
        ]
        if not clauses:
            continue
        tokens, answer = writer.rng.choice(clauses)
        value = int(answer.text)
        wrong_number = str(value + writer.rng.choice((1, 2, 3)) * (10 if value >= 100 else 1))
        if wrong_number in WORD.findall(sentence.text):
            continue
        place = tokens.index(answer.text)
        clause = " ".join([*tokens[:place], wrong_number, *tokens[place + 1 :]])
        passage = index.passages[sentence.passage]
        span = index.make_span(passage.document, sentence.start, sentence.end)
        fact = clean_fact(sentence.text)
        query = f"{_name_topic(index, passage, sentence.heading, clause)}why is it that {clause}"
        note = f"{answer.text} was replaced by {wrong_number}"
        rejection = _reject_swap(index, sentence.text, wrong_number)
        yield Draft("false premise", query, (span,), (fact,), None, False, (sentence.passage,), note, rejection)


def draft_ambiguous(index: CorpusIndex, writer: QueryWriter) -> Iterator[Draft]:
    """Yield questions with two or more right places: headings that several documents have."""
    by_heading: dict[str, list[int]] = {}
    for i, passage in enumerate(index.passages):
        # no title of a whole document
        is_heading = find_heading(index.headings[passage.document], passage.end) != ""
        if passage.heading and is_heading and not passage.is_table:
            by_heading.setdefault(passage.heading.lower(), []).append(i)
    shared_headings = {
        heading: passages
        for heading, passages in by_heading.items()
        if 2 <= len({index.passages[at].document for at in passages}) <= MAX_SHARED_HEADING
        and any(is_content(word) and word not in GENERIC for word in WORD.findall(heading))
    }
    for heading in _shuffle(sorted(shared_headings), writer.rng):
        first_passages = {index.passages[at].document: at for at in reversed(shared_headings[heading])}
        passages = tuple(sorted(first_passages.values())[:5])
        spans = tuple(_make_section_span(index, index.passages[at]) for at in passages)
        texts = [span.quote or "" for span in spans]
        is_empty = any(len(WORD.findall(text)) < MIN_PASSAGE_WORDS for text in texts)
        if is_empty or any(itertools.starmap(say_the_same, itertools.combinations(texts, 2))):
            continue
        note = f"{len(first_passages)} documents have this heading"
        yield Draft("ambiguous", heading, spans, (), None, None, passages, note)


def _make_section_span(index: CorpusIndex, passage: CorpusPassage) -> Span:
    """Return a passage as a span, up to the next heading within it."""
    first_word = passage.start + next(match.start() for match in WORD.finditer(passage.text))
    starts = [start for start, _ in index.headings[passage.document] if first_word < start < passage.end]
    return index.make_span(passage.document, passage.start, min([passage.end, *starts]))


DRAFTERS: dict[QuestionKind, Callable[[CorpusIndex, QueryWriter], Iterator[Draft]]] = {
    "extractive": draft_extractive,
    "factoid": draft_factoids,
    "definition": draft_definitions,
    "list": draft_lists,
    "table": draft_tables,
    "comparison": draft_comparisons,
    "unanswerable": draft_swapped,
    "false premise": draft_false_premises,
    "ambiguous": draft_ambiguous,
}
"""Kind of question → the function that yields drafts of it, in random order."""
