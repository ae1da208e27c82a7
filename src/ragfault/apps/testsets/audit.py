"""Audit of a corpus: near-duplicates, contradictions, stale dates, orphans, and documents that no query reaches."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import zip_longest
from posixpath import dirname, join, normpath
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from ragfault.apps.testsets.passages import WORD, CorpusIndex, CorpusPassage
from ragfault.judges.checks.contradictions import detect_contradiction, measure_overlap
from ragfault.judges.checks.passages import PassageSentence, split_passage
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.records import Document, Trace
from ragfault.text.entities import extract_names
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_content_words, split_words
from ragfault.text.number_format import format_percent
from ragfault.text.similarity import make_shingles
from ragfault.text.times import MONTHS

FindingKind = Literal["near-duplicate", "contradiction", "stale date", "orphan", "unreachable"]
"""Two passages alike, two sentences that differ in one point, a date that has passed, a section without text or a
document without a link to it, and a document that no query of the set retrieves."""

DUPLICATE_SIMILARITY = 0.8
"""Least share of common runs of five words of two near-duplicates (Jaccard)."""
SHINGLE_WORDS = 5
MAX_POSTINGS = 12
"""A run of words, or a word, in more places joins none of them."""
MAX_WORD_POSTINGS = 60
KEY_WORDS = 5
"""Rarest words of a sentence, two of which another one must share to be compared with it."""
MIN_OVERLAP = 0.8
"""Least share of its words that each sentence of a contradiction has from the other, numbers and opposites apart."""
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 5, 40
MAX_VALUES = 3
"""Sentences that differ in one number and have more values than that are records of several things."""
REACHED_RANK = 10
"""Passages of a query that count as retrieved, by words and by meaning; in a small corpus a tenth of all."""
STALE_YEARS = 2
"""A text that states what is true "as of" an older date is stale."""
NO_STATEMENT = re.compile(
    r"^\W*(?:it|its|this|that|these|those|they|their|he|his|she|her|such|there|here|both|each)\b|^\s*(?:[-*+•#>]|\d+[.)]\s)"
    r"|\b(?:if|once|unless|until|when|whenever|example|e\.g)\b|[:?]\W*$",
    re.IGNORECASE,
)
"""Sentences whose subject stands elsewhere, items of lists, conditions, examples, questions: not compared."""
ASSERTING = frozenset(
    ("is", "are", "was", "were", "be", "been", "must", "can", "may", "will", "should", "shall", "does", "do", "did")
)
"""Words right before an opposite by which it is asserted of the subject, and does not tell the subject from another."""
MONTH_NAMES = "|".join((*MONTHS, *(name[:3] for name in MONTHS)))
DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}-\d\d-\d\d)|(?:(?P<day>\d{{1,2}}) )?(?P<month>{MONTH_NAMES})\.? "
    r"(?:(?P<day2>\d{1,2}),? )?(?P<year>(?:19|20)\d\d)|(?P<alone>(?:19|20)\d\d))\b",
    re.IGNORECASE,
)
FUTURE = re.compile(
    r"\b(?:will|shall|(?:is|are) (?:due|expected|planned|scheduled|set|going) (?:to|for|in|on)|planned for"
    r"|scheduled for|upcoming|coming soon|next release)\b[^.;]{0,80}$",
    re.IGNORECASE,
)
STATE = re.compile(
    r"\b(?:as of|last (?:updated|reviewed|modified|checked)(?: on| in)?:?|currently,? \(?(?:in )?)\s*$", re.IGNORECASE
)
END = re.compile(
    r"(?<!was )(?<!were )(?<!been )(?<!remained )\b"
    r"(?:valid (?:until|through|to)|expires?(?: on| in)?|(?:apply|applications?|register) (?:by|until))\s*$",
    re.I,
)
"""Words right before the day on which something ends; in the past tense the text tells of it, and is right."""
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)[^)]*\)|href=[\"'](?!\w+:|#)([^\"'#]+)")
HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*?)[ \t]*#*$", re.MULTILINE)


class AuditFinding(Struct, frozen=True, kw_only=True):
    """A fault of a corpus, in one place or between two."""

    kind: FindingKind
    document: str
    text: str
    """The passage, sentence or heading; empty for a document."""
    start: int | None = None
    """First character of the text in its document."""
    other_document: str | None = None
    other_text: str | None = None
    other_start: int | None = None
    reason: str


class CorpusAudit(Struct, frozen=True, kw_only=True):
    """The faults that the audit of a corpus names."""

    documents: int
    passages: int
    queries: int
    """Queries of the set that documents were searched with; 0 without a set."""
    counts: dict[str, int]
    findings: tuple[AuditFinding, ...]


def audit_corpus(
    documents: Iterable[Document], items: Iterable[Trace] = (), *, today: date | None = None
) -> CorpusAudit:
    """Audit the documents of a corpus, with the queries of an evaluation set where there is one.

    Contradictions are meant to be few and true: two sentences on one subject that differ in one number, date,
    negation or opposite. A date is stale before `today`. The time grows with the text, not with its square.

    >>> one, other = "The Tarvik quay has 40 berths for boats.", "The Tarvik quay has 60 berths for boats."
    >>> audit = audit_corpus([Document(id="a", text=one * 3), Document(id="b", text=other * 3)])
    >>> [(finding.kind, finding.reason) for finding in audit.findings]
    [('contradiction', '40 against 60')]
    """
    index = CorpusIndex(documents)
    queries = list(dict.fromkeys(item.query for item in items))
    findings = [
        *_find_duplicates(index),
        *_find_contradictions(index),
        *_find_stale(index, today or date.today()),
        *_find_empty_sections(index),
        *_find_orphans(index),
        *_find_unreachable(index, queries),
    ]
    return CorpusAudit(
        documents=len(index.documents),
        passages=len(index.passages),
        queries=len(queries),
        counts=dict(Counter(finding.kind for finding in findings)),
        findings=tuple(findings),
    )


def _find_duplicates(index: CorpusIndex) -> Iterator[AuditFinding]:
    """Yield passages that repeat an earlier one, word for word or nearly, each once."""
    shingles = [make_shingles(passage.text, SHINGLE_WORDS) for passage in index.passages]
    same: dict[frozenset[str], int] = {}
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for i, passage in enumerate(index.passages):
        earlier = same.setdefault(shingles[i], i)
        if earlier != i:
            yield _join_passages(index.passages[earlier], passage, "the same words")
            continue
        common_counts: Counter[int] = Counter()
        for shingle in shingles[i]:
            posting = postings[shingle]
            if len(posting) <= MAX_POSTINGS:
                common_counts.update(posting)
                posting.append(i)
        for other, count in common_counts.most_common(1):
            similarity = count / (len(shingles[i]) + len(shingles[other]) - count)
            if similarity >= DUPLICATE_SIMILARITY:
                yield _join_passages(
                    index.passages[other], passage, f"{format_percent(similarity)} of their runs of five words are one"
                )


def _join_passages(first: CorpusPassage, second: CorpusPassage, reason: str) -> AuditFinding:
    return AuditFinding(
        kind="near-duplicate",
        document=first.document,
        text=first.text,
        start=first.start,
        other_document=second.document,
        other_text=second.text,
        other_start=second.start,
        reason=reason,
    )


class _Statement(NamedTuple):
    """A sentence that can be compared by itself."""

    passage: CorpusPassage
    start: int
    text: str
    parts: PassageSentence
    names: frozenset[str]
    template: tuple[str, ...]
    """Its words without numbers."""


def _find_contradictions(index: CorpusIndex) -> Iterator[AuditFinding]:
    """Yield pairs of sentences on one subject that differ in a number, a date, a negation or an opposite."""
    statements = list(_list_statements(index))
    values: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for statement in statements:
        values[statement.template].add(tuple(word for word in statement.parts.tokens if word[0].isdigit()))
    postings: defaultdict[str, list[int]] = defaultdict(list)
    reported_pairs: set[tuple[str, str]] = set()
    for i, statement in enumerate(statements):
        words = [word for word in statement.parts.content if not word[0].isdigit()]
        rarest = sorted(words, key=lambda word: (-index.compute_rarity(word), word))[:KEY_WORDS]
        common_counts: Counter[int] = Counter()
        for word in rarest:
            if len(postings[word]) <= MAX_WORD_POSTINGS:
                common_counts.update(postings[word])
            postings[word].append(i)
        for other, count in sorted(common_counts.items()):
            earlier = statements[other]
            key = (earlier.text, statement.text)
            if count < 2 or key in reported_pairs or len(values[statement.template]) > MAX_VALUES:
                continue
            reason = _compare_statements(earlier, statement)
            if reason:
                reported_pairs.add(key)
                yield AuditFinding(
                    kind="contradiction",
                    document=earlier.passage.document,
                    text=earlier.text,
                    start=earlier.start,
                    other_document=statement.passage.document,
                    other_text=statement.text,
                    other_start=statement.start,
                    reason=reason,
                )


def _list_statements(index: CorpusIndex) -> Iterator[_Statement]:
    """Yield the sentences of prose that name their subject."""
    for sentence in index.sentences:
        passage = index.passages[sentence.passage]
        count = len(WORD.findall(sentence.text))
        if not MIN_SENTENCE_WORDS <= count <= MAX_SENTENCE_WORDS or NO_STATEMENT.search(sentence.text):
            continue
        parts = split_passage(sentence.text)
        if len(parts) == 1 and not parts[0].key:
            template = tuple(word for word in parts[0].tokens if not word[0].isdigit())
            names = frozenset(word for name in extract_names(sentence.text) for word in name.split())
            yield _Statement(passage, sentence.start, sentence.text, parts[0], names, template)


def _compare_statements(first: _Statement, second: _Statement) -> str | None:
    """Return how two sentences contradict each other; None where they do not, or where it cannot be told."""
    if first.parts.tokens == second.parts.tokens or first.names != second.names:
        return None
    if (
        min(measure_overlap(first.parts.tokens, second.parts), measure_overlap(second.parts.tokens, first.parts))
        < MIN_OVERLAP
    ):
        return None
    mine, other = first.passage, second.passage
    if not first.names and mine.document != other.document and not (mine.heading and mine.heading == other.heading):
        return None
    ours, theirs = ({word for word in item.parts.tokens if word[0].isdigit()} for item in (first, second))
    if len(ours - theirs) > 1 or len(theirs - ours) > 1 or _differ_in_heading(first, second):
        return None
    if ours == theirs and first.template == second.template:
        return None
    if ours != theirs:
        if not (ours - theirs and theirs - ours) or set(first.template) != set(second.template):
            return None
        return f"{min(ours - theirs)} against {min(theirs - ours)}"
    words = set(first.template) ^ set(second.template)
    if len(words - STOP_WORDS) > 2 and not words & NEGATIONS:
        return None
    if first.passage.document == second.passage.document or not _is_asserted(first, second):
        return None
    reason = detect_contradiction(first.text, first.parts.tokens, second.parts, second.text, None)
    return reason.replace("<", '"').replace(">", '"') if reason else None


def _is_asserted(first: _Statement, second: _Statement) -> bool:
    """Return whether what differs between two sentences follows a verb: it is said of the subject, no part of it."""
    for tokens, other_tokens in ((first.parts.tokens, second.parts.tokens), (second.parts.tokens, first.parts.tokens)):
        new = [i for i, word in enumerate(tokens) if word not in other_tokens]
        if any(tokens[at] not in ASSERTING and (at == 0 or tokens[at - 1] not in ASSERTING | NEGATIONS) for at in new):
            return False
    return True


def _differ_in_heading(first: _Statement, second: _Statement) -> bool:
    """Return whether the headings of two sentences name different versions or dates, or, without a name, subjects."""
    left, right = (
        {word for word in split_words(item.passage.heading) if word[0].isdigit()}
        | (set() if item.names else set(extract_names(f"On {item.passage.heading}")))
        for item in (first, second)
    )
    return bool(left and right and left != right)


def _find_stale(index: CorpusIndex, today: date) -> Iterator[AuditFinding]:
    """Yield sentences that announce something for a day that has passed, or state what held long ago."""
    for sentence in index.sentences:
        for match in DATE.finditer(sentence.text):
            end = _read_end(match)
            before = sentence.text[: match.start()].rstrip("( ")
            before = re.sub(
                r"\b(?:in|on|by|until|before|at|the|of|from|during)\s*$", "", before, flags=re.IGNORECASE
            ).rstrip()
            if end is None or end >= today:
                continue
            if FUTURE.search(before):
                reason = f"announces what was to be by {end.isoformat()}"
            elif END.search(sentence.text[: match.start()].rstrip("( ")) or END.search(before):
                reason = f"was valid until {end.isoformat()}"
            elif STATE.search(sentence.text[: match.start()]) and end.year <= today.year - STALE_YEARS:
                reason = f"states what held by {end.isoformat()}"
            else:
                continue
            document = index.passages[sentence.passage].document
            yield AuditFinding(
                kind="stale date", document=document, text=sentence.text, start=sentence.start, reason=reason
            )
            break


def _read_end(match: re.Match[str]) -> date | None:
    """Return the last day of a date, month or year; None for what is no date."""
    try:
        if match["iso"]:
            return date.fromisoformat(match["iso"])
        if match["alone"]:
            return date(int(match["alone"]), 12, 31)
        month = next(i for i, name in enumerate(MONTHS, 1) if name.startswith(match["month"].lower()[:3]))
        day = match["day"] or match["day2"]
        return date(int(match["year"]), month, int(day) if day else 28)
    except ValueError:
        return None


def _find_empty_sections(index: CorpusIndex) -> Iterator[AuditFinding]:
    """Yield headings of Markdown with neither text nor a section below them."""
    for document in index.documents:
        text = document.text
        for start, end in index.code[document.id]:
            text = text[:start] + re.sub(r"\S", "x", text[start:end]) + text[end:]
        headings = list(HEADING.finditer(text))
        for heading, following in zip_longest(headings, headings[1:]):
            body = text[heading.end() : following.start() if following else len(text)]
            if not body.strip() and (following is None or len(following[1]) <= len(heading[1])):
                yield AuditFinding(
                    kind="orphan",
                    document=document.id,
                    text=heading[2],
                    start=heading.start(),
                    reason="a section without text",
                )


def _find_orphans(index: CorpusIndex) -> Iterator[AuditFinding]:
    """Yield documents without a link to them, in a corpus whose documents link to each other."""
    names = {normpath(document.id): document.id for document in index.documents}
    stems = {re.sub(r"\.\w+$", "", name): name for name in names}
    linked: set[str] = set()
    linking = 0
    for name, document in names.items():
        targets = {
            normpath(join(dirname(name), (match[1] or match[2]).lstrip("/")))
            for match in LINK.finditer(index.texts[document])
        }
        resolved = {target if target in names else stems.get(re.sub(r"\.\w+$", "", target), "") for target in targets}
        linking += bool(resolved - {"", name})
        linked |= resolved - {name}
    if 2 * linking < len(names) or len(names) < 3:
        return
    for name, document in names.items():
        if name not in linked and not re.search(
            r"(?:^|/)(?:index|readme|_?summary|changelog)\b[^/]*$", name, re.IGNORECASE
        ):
            yield AuditFinding(kind="orphan", document=document, text="", reason="no document links to it")


def _find_unreachable(index: CorpusIndex, queries: Sequence[str]) -> Iterator[AuditFinding]:
    """Yield documents of which no query has a passage among its best, by words or by meaning."""
    if not queries:
        return
    reached: set[str] = set()
    rank = min(REACHED_RANK, max(1, len(index.passages) // 10))
    vectors = embed_word_vectors(queries)
    for query, vector in zip(queries, vectors, strict=True):
        scores = index.score_passages(split_content_words(query))
        best = sorted(scores, key=lambda i: (-scores[i], i))[:rank]
        nearest = np.argsort(-(index.embeddings @ vector), kind="stable")[:rank].tolist()
        reached |= {index.passages[i].document for i in (*best, *nearest)}
    for name in sorted({passage.document for passage in index.passages} - reached):
        reason = f"none of {len(queries):,} queries has it among its {rank} best passages"
        yield AuditFinding(kind="unreachable", document=name, text="", reason=reason)
