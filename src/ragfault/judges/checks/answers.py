"""Answer checks: relevance to the query, focus, expected facts, citations, and truth against a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import partial
from statistics import fmean
from typing import Literal

from ragfault.judges.checks.claims import LIST_MARKER, Claim, strip_marks
from ragfault.judges.checks.contradictions import are_rival_quantities, collect_negated_words
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, split_passage
from ragfault.judges.checks.queries import (
    KIND_PATTERNS,
    OTHER_KIND_FACTOR,
    classify_answer_kind,
    extract_identifiers,
    split_query,
)
from ragfault.judges.checks.sentence_kinds import is_talk
from ragfault.judges.scorer import Entailment, RelevanceScore, ScorerSession
from ragfault.model.gold_evidence import AGREEMENT_UNSURE
from ragfault.model.records import AnswerVerdict, Aspect, Citation, TruthVerdict
from ragfault.text.entities import EntityIndex, extract_entities, extract_literals
from ragfault.text.normalization import (
    STOP_WORDS,
    normalize_answer,
    normalize_typography,
    split_content_words,
    split_words,
)
from ragfault.text.sentences import split_sentences

MAX_SHORT_FACT = 6
"""A fact of at most this many words beyond the query is matched literally."""
MIN_ANSWERED = 0.5
"""A part of the query with this relevance in the answer counts as answered."""
MIN_TERSE_RELEVANCE = 0.75
"""The relevance from which a terse answer without chunks is known to be about the query."""
MAX_EVIDENCE_SCORE = 0.9
"""Maximum relevance of an answer that its evidence alone shows to be about the query."""


def judge_answer(
    query: str,
    answer: str,
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    chunks: Sequence[Passage],
    chunk_relevance: Sequence[float],
    session: ScorerSession,
) -> AnswerVerdict:
    """Return the relevance of an answer: how far it answers each part of the query, times its focus.

    A session that reads tells whether it does; else its words do: what it covers of the query, itself or by its
    evidence. A terse answer repeats nothing of the question; then the sentences of the chunks that state it show its
    subject: what they cover of the query, out of what the best chunk covers. Words of their context alone count half.
    An answer of the kind that is asked for (a number, date or name) needs to cover less.
    A refusal keeps a tenth of its relevance, and an answer about another section or version keeps its own low score.
    Without chunks the words of a terse answer do not tell whether it answers the query: it has no relevance unless it
    covers most of the query itself.
    """
    parts = split_query(query)
    if not answer.strip():
        return AnswerVerdict(relevance=0.0, aspects=tuple(Aspect(text=part, answered=False) for part in parts))
    refused = session.is_refusal(answer)
    read = [session.read_answer(part, answer) for part in parts]
    is_read = None not in read
    covered = [session.score_coverage(part, [Passage("answer", answer)])[0] for part in parts]
    if not is_read:
        locate = partial(locate_evidence, query, claims, entailments, chunks)
        read = _weigh_words(list(zip(parts, covered, strict=True)), answer, chunks, locate, session)
    scores = [
        cover.value if p is None else min(p, cover.value) if cover.is_other_subject else p
        for p, cover in zip(read, covered, strict=True)
    ]
    values = [0.1 * value if refused else value for value in scores]
    relevance = min(1.0, fmean(values))
    if (
        not is_read
        and not any(chunk.text.strip() for chunk in chunks)
        and not refused
        and relevance < MIN_TERSE_RELEVANCE
        and len(split_content_words(answer)) <= MAX_TERSE_WORDS
    ):
        return AnswerVerdict(relevance=None)
    if relevance and not refused:
        relevance *= measure_focus(query, answer, claims, entailments, chunk_relevance, session)
    return AnswerVerdict(
        relevance=relevance,
        aspects=tuple(
            Aspect(text=part, answered=value >= MIN_ANSWERED) for part, value in zip(parts, values, strict=True)
        ),
        refused=refused,
    )


def _weigh_words(
    covered: Sequence[tuple[str, RelevanceScore]],
    answer: str,
    chunks: Sequence[Passage],
    locate: Callable[[], list[Passage]],
    session: ScorerSession,
) -> list[float | None]:
    """Return what an answer covers of each part of the query, by its words or those of its evidence."""
    needs_evidence = min(score.value for _, score in covered) < MAX_EVIDENCE_SCORE
    evidence = locate() if needs_evidence else []
    values: list[float | None] = []
    for part, score in covered:
        value, kind = score.value, classify_answer_kind(part)
        if not score.is_other_subject:
            if evidence:
                best = max(MIN_ANSWERED, *[chunk.value for chunk in session.score_coverage(part, chunks)])
                shown = fmean([item.value for item in session.score_coverage(part, evidence)])
                value = max(value, MAX_EVIDENCE_SCORE * min(1.0, shown / best))
            if kind and KIND_PATTERNS[kind].search(answer):
                value = min(1.0, value / OTHER_KIND_FACTOR) if chunks else 0.4 + 0.6 * value
        values.append(value)
    return values


def locate_evidence(
    query: str, claims: Sequence[Claim], entailments: Sequence[Entailment], chunks: Sequence[Passage]
) -> list[Passage]:
    """Return the sentences of the chunks that state the supported claims, alone and each after its context.

    Where several sentences have all words of a terse claim, it is the one about the query.

    >>> from ragfault.model.records import Evidence
    >>> chunks = [Passage("a", "Tours is old. Martin was a bishop. He died in Tours.")]
    >>> entailment = Entailment("supported", 0.9, (Evidence(chunk="a", start=0, end=13),))
    >>> claim = Claim("Tours", 0, 5)
    >>> [passage.text for passage in locate_evidence("Where did Martin die?", [claim], [entailment], chunks)]
    ['He died in Tours.', 'Martin was a bishop. He died in Tours.']
    """
    query_words, asked, table = frozenset(split_content_words(query)), extract_identifiers(query), load_idf()
    sentences = {
        (chunk.name, sentence.start): (sentence.content, chunk.text, number)
        for chunk in chunks
        for number, sentence in enumerate(split_passage(chunk.text))
    }

    def measure_nearness(texts: tuple[str, str]) -> float:
        return table.sum_rarity(query_words.intersection(split_content_words(texts[1])))

    selected: dict[tuple[str, str], None] = {}
    for claim, entailment in zip(claims, entailments, strict=False):
        if STATUS_BY_SUPPORT.get(entailment.support) != "supported":
            continue
        places = [sentences.get((span.chunk, span.start)) for span in entailment.evidence]
        texts = [_add_context(*place[1:], asked) for place in places if place]
        words = frozenset(split_content_words(strip_marks(claim.text)))
        if 0 < len(words) <= MAX_TERSE_WORDS:
            stating = [_add_context(*place[1:], asked) for place in sentences.values() if words <= place[0]]
            texts = [max(stating, key=measure_nearness)] if stating else texts
        selected.update(dict.fromkeys(texts))
    return [Passage("evidence", " ".join(texts)) for texts in zip(*selected, strict=True)]


def _add_context(text: str, number: int, asked: frozenset[str]) -> tuple[str, str]:
    """Return a sentence alone, and after the one before, to which its pronouns refer; an item after its list's lead.

    A row, a field and a sentence on a section, version or code that is not asked for have no such context.
    """
    *sentences, own = split_passage(text)[: number + 1]
    alone = text[own.start : own.end]
    if own.key or (asked and not extract_identifiers(alone) <= asked):
        return alone, alone
    for sentence in reversed(sentences):
        context = text[sentence.start : sentence.end]
        if context[:1] == "#" or not LIST_MARKER.match(context):
            return alone, alone if sentence.key else f"{context} {alone}"
    return alone, alone


def contains_fact(fact: str, answer: str, query: str) -> bool:
    """Return whether an answer states a short fact literally; words of the query need not be repeated.

    >>> contains_fact("30 days", "You have thirty days to return it.", "How long can I return it?")
    True
    """
    fact_words = frozenset(split_content_words(fact)) - frozenset(split_words(query))
    exact, bare = extract_entities(fact), normalize_answer(fact)
    negated = collect_negated_words(split_words(fact))
    for start, end in split_sentences(answer):
        sentence = answer[start:end]
        tokens = split_words(sentence)
        if bool(negated) != bool(collect_negated_words(tokens, reach=2) & frozenset(split_content_words(fact))):
            continue
        if bare and f" {bare} " in f" {normalize_answer(sentence)} ":
            return True
        if fact_words and len(fact_words) <= MAX_SHORT_FACT and fact_words <= frozenset(tokens):
            entities = EntityIndex(sentence)
            if all(item in entities for item in exact):
                return True
    return False


def locate_citing_sentence(citation: Citation, position: int, answer: str) -> str | None:
    """Return the sentence with the quote or the mark of a citation, without the number of an item or row, or None.

    >>> locate_citing_sentence(Citation(chunk="c7"), 0, "Oslo is old [c7]. Bergen is wet [c8].")
    'Oslo is old [c7].'
    """
    marks = (f"[{citation.chunk}]", f"({citation.chunk})", f"[{position + 1}]")
    sentences = [answer[start:end] for start, end in split_sentences(answer)]
    markers = [LIST_MARKER.match(sentence) for sentence in sentences]
    spans = [text[marker.end() :] if marker else text for text, marker in zip(sentences, markers, strict=True)]
    for mark in marks[:2]:
        for span in spans:
            if mark in span:
                return span
    quote = normalize_typography(citation.quote or "").strip("\"'. ").lower()
    if quote:
        for span in spans:
            if quote in normalize_typography(span).lower():
                return span
    else:
        return next((span for span in spans if marks[2] in span), None)
    quote_words = frozenset(split_words(quote)) - STOP_WORDS
    best = max(spans, key=lambda span: len(quote_words & frozenset(split_words(span))), default="")
    return best if quote_words and len(quote_words & frozenset(split_words(best))) >= 0.5 * len(quote_words) else None


MIN_SOURCE_SHARE = 0.5
"""A claim comes from a chunk if one sentence of the chunk covers this share of it, and no other chunk clearly more."""
MIN_RELEVANCE_RATIO = 0.6
"""A chunk is on topic with this share of the relevance of the best chunk."""
MIN_QUERY_COVERAGE = 0.25
"""A claim is on topic if it covers this share of a part of the query."""
FREE_WORDS = 4
"""This many words of courtesy or digression are not penalized."""


def select_source_chunks(entailment: Entailment) -> list[int]:
    """Return the positions of the chunks that a claim comes from.

    >>> select_source_chunks(Entailment("supported", 0.9, shares=(0.2, 0.8, 0.75)))
    [1, 2]
    """
    best = max(entailment.shares, default=0.0)
    return [
        position
        for position, share in enumerate(entailment.shares)
        if share >= MIN_SOURCE_SHARE and share >= 0.9 * best
    ]


def measure_focus(
    query: str,
    answer: str,
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    relevance: Sequence[float],
    session: ScorerSession,
) -> float:
    """Return the share of an answer's words that stay on the query.

    Small talk digresses, and so does a claim from a chunk that is off topic, unless the claim or another
    claim from that chunk covers part of the query. Claims without a source are left to groundedness; headings
    and words about missing sources do not count.
    """
    digressions = {claim.start for claim in _collect_digressions(query, claims, entailments, relevance, session)}
    start_by_end = {claim.end: claim.start for claim in claims}
    on_topic = off_topic = 0
    for start, end in split_sentences(answer):
        size = len(split_content_words(answer[start:end]))
        if end in start_by_end:
            digresses = start_by_end[end] in digressions
        else:
            digresses = _is_courtesy(answer[start:end], session)
            if not digresses:
                continue
        on_topic, off_topic = (on_topic, off_topic + size) if digresses else (on_topic + size, off_topic)
    return on_topic / (on_topic + max(0, off_topic - FREE_WORDS)) if on_topic else 1.0


def _is_courtesy(text: str, session: ScorerSession) -> bool:
    """Return whether a sentence without a claim is talk, and not a heading, a refusal or a question on the matter."""
    text = text.strip(" *_\"'")
    if text[:1] == "#" or text[-1:] == ":" or text[-1:].isalnum() or session.is_refusal_sentence(text):
        return False
    return is_talk(text) or not text.endswith("?")


def _collect_digressions(
    query: str,
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    relevance: Sequence[float],
    session: ScorerSession,
) -> list[Claim]:
    """Return the claims that come from off-topic chunks only."""
    threshold = MIN_RELEVANCE_RATIO * max(relevance, default=0.0)
    sources = [select_source_chunks(entailment) for entailment in entailments]
    off_topic = [
        bool(chunk_positions) and max(relevance[position] for position in chunk_positions) < threshold
        for chunk_positions in sources
    ]
    if not any(off_topic):
        return []
    parts = split_query(query)
    on_topic: set[int] = set()
    for claim, chunk_positions in zip(claims, sources, strict=True):
        passage = [Passage("claim", claim.text)]
        if chunk_positions and any(
            session.score_coverage(part, passage)[0].value >= MIN_QUERY_COVERAGE for part in parts
        ):
            on_topic.update(chunk_positions)
    return [
        claim
        for claim, chunk_positions, is_off_topic in zip(claims, sources, off_topic, strict=False)
        if is_off_topic and on_topic.isdisjoint(chunk_positions)
    ]


TruthStatus = Literal["supported", "contradicted", "unknown"]
STATUS_BY_SUPPORT: dict[str, TruthStatus] = {
    "supported": "supported",
    "inferred": "supported",
    "contradicted": "contradicted",
}
MAX_TERSE_WORDS = 6
"""A reference of at most this many content words is an answer to the query, not a statement."""
MIN_SHARED_WORDS = 3
"""A claim with all words of a short statement except its figures, at least this many, has the same subject."""
MIN_QUERY_SHARE = 0.75
"""The share of the query that a claim must cover to be another answer to it."""


def judge_truth(
    query: str, claims: Sequence[Claim], references: Sequence[str], session: ScorerSession
) -> tuple[TruthVerdict, ...]:
    """Return one verdict for each claim: by entailment against statements, by their items against terse answers."""
    if not claims:
        return ()
    terse_answers = [text for text in references if len(split_content_words(text)) <= MAX_TERSE_WORDS]
    are_terse = bool(terse_answers) and len(terse_answers) == len(references)
    if are_terse and session.score_agreement(strip_marks(claims[0].text), terse_answers) is not None:
        # A bare answer is no statement that could entail a claim: a model reads both as answers.
        statuses: list[TruthStatus] = ["unknown"] * len(claims)
    else:
        statuses = _judge_by_statements(query, claims, references, session)
    if terse_answers:
        statuses = _judge_by_answers(query, claims, statuses, terse_answers, session)
    return tuple(
        TruthVerdict(claim=claim.text, status=verdict) for claim, verdict in zip(claims, statuses, strict=True)
    )


def _judge_by_statements(
    query: str, claims: Sequence[Claim], references: Sequence[str], session: ScorerSession
) -> list[TruthStatus]:
    """Return the status of each claim against statements, by entailment."""
    entailments = session.score_entailment([claim.text for claim in claims], build_reference_passages(references))
    statuses: list[TruthStatus] = [STATUS_BY_SUPPORT.get(verdict.support, "unknown") for verdict in entailments]
    if "supported" in statuses and "contradicted" in statuses:
        return [
            "unknown" if verdict == "contradicted" and _names_another(query, claim.text, references) else verdict
            for verdict, claim in zip(statuses, claims, strict=True)
        ]
    return statuses


def _judge_by_answers(
    query: str, claims: Sequence[Claim], statuses: Sequence[TruthStatus], answers: Sequence[str], session: ScorerSession
) -> list[TruthStatus]:
    """Combine the status of each claim against statements with the one against terse answers."""
    # A model need not read a claim that a statement supports: nothing can take the support away.
    terse_statuses = [
        status if status == "supported" else _read_agreement(claim.text, len(claims), answers, session)
        for status, claim in zip(statuses, claims, strict=True)
    ]
    if None in terse_statuses:
        terse_statuses = [_judge_terse(query, claim.text, answers, session) for claim in claims]
    is_answered = "supported" in terse_statuses
    return [
        _combine_statuses(verdict, terse_status or "unknown", is_answered)
        for verdict, terse_status in zip(statuses, terse_statuses, strict=True)
    ]


def _read_agreement(claim: str, claim_count: int, answers: Sequence[str], session: ScorerSession) -> TruthStatus | None:
    """Return the status of a claim against terse answers as a model reads it; None from a judge of words.

    The only claim of an answer that is another answer contradicts; one of several may speak of something else.
    """
    agreement = session.score_agreement(strip_marks(claim), answers)
    if agreement is None:
        return None
    if AGREEMENT_UNSURE[0] < agreement < AGREEMENT_UNSURE[1]:
        return "unknown"
    return "supported" if agreement > 0.5 else "contradicted" if claim_count == 1 else "unknown"


def _names_another(query: str, claim: str, references: Sequence[str]) -> bool:
    """Return whether a claim has another name where a reference has a name that the query asks about.

    Such a claim is about something else. It says nothing against the reference once another claim gives the answer.
    """
    words, query_words = split_content_words(claim), split_content_words(query)
    for reference in references:
        known = split_content_words(reference)
        # the case of a query says nothing: people write names in small letters, and questions in capitals
        asked = (_collect_name_words(query) | _collect_name_words(reference)).intersection(query_words)
        other = _collect_name_words(claim).difference(known, query_words)
        for tag, start, end, claim_start, claim_end in SequenceMatcher(None, known, words, False).get_opcodes():
            replaced, put = known[start:end], words[claim_start:claim_end]
            if tag == "replace" and not asked.isdisjoint(replaced) and not other.isdisjoint(put):
                return True
    return False


def _collect_name_words(text: str) -> frozenset[str]:
    """Return the words of the names of a text, figures left out."""
    words = split_content_words(" ".join(extract_entities(text)))
    return frozenset(word for word in words if not any(map(str.isdigit, word)))


def build_reference_passages(references: Sequence[str]) -> list[Passage]:
    """Return the references as passages."""
    return [Passage(f"key {number}", text) for number, text in enumerate(references)]


def _combine_statuses(statement_status: TruthStatus, terse_status: TruthStatus, is_answered: bool) -> TruthStatus:
    """Combine two statuses: support wins; once a claim gives the answer, no other claim is another answer."""
    if "supported" in (statement_status, terse_status):
        return "supported"
    is_other = terse_status == "contradicted" and not is_answered
    return "contradicted" if statement_status == "contradicted" or is_other else "unknown"


def _judge_terse(query: str, claim: str, answers: Sequence[str], session: ScorerSession) -> TruthStatus:
    """Return the status of a claim against terse answers to the query."""
    claim = strip_marks(claim)
    if any(contains_fact(answer, claim, query) for answer in answers):
        return "supported"
    is_short = len(split_content_words(claim)) <= MAX_TERSE_WORDS
    if any(_restates_differently(query, claim, answer) for answer in answers):
        agrees = any(
            extract_literals(claim).keys() & extract_literals(answer).keys() - extract_entities(query)
            for answer in answers
        )
        return "unknown" if agrees else "contradicted"
    if not is_short and session.score_coverage(query, [Passage("claim", claim)])[0].value < MIN_QUERY_SHARE:
        return "unknown"
    return "contradicted" if all(_is_other_answer(query, claim, answer) for answer in answers) else "unknown"


def _restates_differently(query: str, claim: str, answer: str) -> bool:
    """Return whether a claim says all that a short statement says, except for a different figure."""
    query_entities = extract_entities(query)
    literals = {item: forms for item, forms in extract_literals(answer).items() if item not in query_entities}
    if not literals:
        return False
    other_words = frozenset(split_content_words(answer)) - {form for forms in literals.values() for form in forms}
    return (
        len(other_words) >= MIN_SHARED_WORDS
        and other_words <= frozenset(split_content_words(claim))
        and any(
            are_rival_quantities(claim_item, answer_item)
            for claim_item in extract_literals(claim).keys() - query_entities
            for answer_item in literals
        )
    )


def _is_other_answer(query: str, claim: str, answer: str) -> bool:
    """Return whether a claim gives another answer of the same kind: another number, date or name."""
    query_entities = extract_entities(query)
    claim_entities, answer_entities = (extract_entities(text) - query_entities for text in (claim, answer))
    if claim_entities & answer_entities:
        return False
    literals = extract_literals(answer).keys() & answer_entities
    if literals:
        return any(
            are_rival_quantities(claim_item, answer_item)
            for claim_item in extract_literals(claim).keys() & claim_entities
            for answer_item in literals
        )
    claim_prefixes = {word[:5] for word in split_content_words(claim)}
    answer_words = frozenset(split_content_words(answer)) - frozenset(split_content_words(query))
    if any(word[:5] in claim_prefixes for word in answer_words):
        return False
    return bool(answer_entities) and any(
        not any(character.isdigit() for character in claim_item) for claim_item in claim_entities
    )
