"""The one cause of a bad answer: a table of causes in the order of the pipeline, of which the first that fits is it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ragfault.diagnosis.causes.contradiction import find_rival_sentence
from ragfault.diagnosis.causes.costs import find_costs
from ragfault.diagnosis.causes.endings import ends_within_sentence, is_cut_off
from ragfault.diagnosis.causes.rating import describe_non_answer, is_other_language, rate_answer
from ragfault.diagnosis.causes.records import AnswerCause, Stage
from ragfault.diagnosis.causes.retrieval import judge_coverage, misses_gold, weigh_places
from ragfault.diagnosis.records import Diagnosis, ProblemKind, TraceProblem
from ragfault.judges.checks.claims import is_refusal
from ragfault.model.causes import CauseName
from ragfault.model.finish_reasons import get_finish_kind
from ragfault.model.gold_evidence import has_answer_key
from ragfault.model.records import GoldVerdicts, Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT, find_searched
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.normalization import normalize_answer


class Case(Struct, frozen=True):
    """A bad answer with all that is known of it."""

    trace: Trace
    verdicts: Verdicts
    diagnosis: Diagnosis
    covered: bool | None
    """Whether the shown chunks cover the query; None where that is not known."""
    by_gold: bool
    """True if gold says so, False if the judge does."""
    is_cut: bool
    """Whether its service, or its end in a run of answers that end with a stop, shows that the answer was cut off."""

    def find_problem(self, *kinds: ProblemKind) -> TraceProblem | None:
        """Return the first problem of these kinds."""
        return next((problem for problem in self.diagnosis.problems if problem.kind in kinds), None)


class Clue(Struct, frozen=True):
    """What shows a cause, and how sure that is."""

    probability: float
    quote: str = ""
    reason: str = ""
    chunk: str | None = None
    step: str | None = None


class CauseDefinition(Struct, frozen=True):
    """A cause: its stage, its words, what to change first, and how a case shows it."""

    stage: Stage
    title: str
    fix: str
    locate: Callable[[Case], Clue | None]


SURE, LIKELY, POSSIBLE = 0.98, 0.94, 0.54
"""Probabilities of a cause that the record states, that gold or a person shows, and that the judge sees: the shares
named right of 51, 31 and 37 plants of `python -m benchmarks.causes`, a right and a wrong one added to each."""


LACKING: tuple[ProblemKind, ...] = ("absent_fact", "unanswered_aspect")
"""Problems of an answer that leaves out what was asked."""
CONTRADICTION_READERS = ("encoder",)
"""Judges whose label tells what contradicts the chunks from what is invented better than the nearest sentence does: on
claims that they doubt, the sentence adds 2 of 138 contradictions and takes 26 of 283 inventions for some
(`python -m benchmarks.contradictions DATA --judge encoder`)."""


def find_cause(
    trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis, *, labeled: bool = False, closed: bool = False
) -> AnswerCause:
    """Rate an answer and name the one cause of a bad one: the first of `CAUSES` that the record shows.

    `labeled` says that people gave the verdicts on the answer, `closed` that the answers of the run end with a
    stop.

    A query whose references all say that there is no answer has none.

    What follows in the pipeline rests on what came before: an answer that is invented because the passage was not
    retrieved has the cause "not retrieved".

    >>> from ragfault.diagnosis.diagnosis import diagnose_trace
    >>> trace, verdicts = Trace(id="1", query="When?", error="time-out in rerank"), Verdicts(trace="1")
    >>> found = find_cause(trace, verdicts, diagnose_trace(trace, verdicts))
    >>> found.stage, found.cause, found.quote
    ('pipeline', 'failed', 'time-out in rerank')
    """
    if trace.answerable is None and trace.references and all(map(is_refusal, trace.references)):
        trace = replace(trace, answerable=False)
    rating = rate_answer(trace, verdicts, diagnosis, labeled=labeled, closed=closed)
    costs = find_costs(trace, verdicts, diagnosis, rating)
    result = AnswerCause(trace=trace.id, query=trace.query, rating=rating, costs=costs)
    if rating.outcome != "bad":
        return result
    by_gold = isinstance(verdicts, GoldVerdicts) and verdicts.covered is not None
    is_cut = is_cut_off(trace, verdicts, closed=closed)
    case = Case(trace, verdicts, diagnosis, judge_coverage(trace, verdicts), by_gold, is_cut)
    for name, definition in CAUSES.items():
        clue = definition.locate(case)
        if clue is not None:
            return replace(
                result,
                stage=definition.stage,
                cause=name,
                probability=clue.probability,
                quote=clue.quote,
                reason=clue.reason,
                chunk=clue.chunk,
                step=clue.step,
            )
    raise AssertionError("the last cause of the table fits every case")


def _find_failure(case: Case) -> Clue | None:
    if case.trace.error is None:
        return None
    broken = next((step for step in case.trace.steps or () if step.error), None)
    return Clue(SURE, case.trace.error, step=broken.id if broken else None)


def _find_blank(case: Case) -> Clue | None:
    answer, kind = case.trace.answer, get_finish_kind(case.trace)
    if answer is None or answer.strip():
        return None
    why = {"limit": ": the token limit was reached", "filter": ": the content filter of the provider stopped it"}
    return Clue(SURE, case.trace.query, f"the answer is empty{why[kind] if kind else ''}")


def _find_non_answer(case: Case) -> Clue | None:
    filtered = "what the content filter of the provider left" if get_finish_kind(case.trace) == "filter" else ""
    what = filtered or describe_non_answer(case.trace)
    return Clue(SURE, case.trace.answer or "", f"the answer is {what}") if what else None


def _find_cut(case: Case) -> Clue | None:
    """Find an answer that was cut off; where neither its service nor the run shows it, one that ends within a sentence.

    That is a guess, so that a passage that was not found comes first.
    """
    answer = case.trace.answer or ""
    if get_finish_kind(case.trace) == "limit":
        return Clue(SURE, answer[-80:], "the generator stopped at its token limit")
    guessed = case.trace.finish_reason is None and case.covered is not False and case.trace.answerable is not False
    if case.is_cut or (guessed and not _refuses(case) and ends_within_sentence(answer)):
        return Clue(LIKELY, answer[-80:], "the answer ends within a sentence")
    return None


def _find_other_language(case: Case) -> Clue | None:
    """Find an answer in another language than its query and every chunk."""
    trace, answer = case.trace, case.trace.answer or ""
    if is_other_language(trace):
        return Clue(LIKELY, answer, "the answer is in another language than query and chunks")
    return None


def _find_changed_query(case: Case) -> Clue | None:
    """Find a rewriting, or another text that was searched, that lost what the query asks for."""
    return _find_lost(case, is_query=False)


def _find_ignored_history(case: Case) -> Clue | None:
    """Find a follow-up that was searched as it stands: what it asks for is in the turns before it."""
    return _find_lost(case, is_query=True) if case.trace.history else None


def _find_lost(case: Case, *, is_query: bool) -> Clue | None:
    """Find a missed passage that the query asks for and the searched text, the query itself or another, does not."""
    trace, place = case.trace, case.verdicts.place
    if case.covered is not False or place is None or not place.lost:
        return None
    step, text = find_searched(trace)
    if (normalize_answer(text) == normalize_answer(trace.query)) != is_query:
        return None
    lost = ", ".join(place.lost)
    if step is None:
        return Clue(
            POSSIBLE, text, f"no search is recorded; the query as it stands lacks {lost}, which the passage has"
        )
    return Clue(LIKELY, text, f"what was searched lacks {lost}, which the passage has", step=step.id)


def _find_stale_source(case: Case) -> Clue | None:
    problem = case.find_problem("outdated_source")
    return None if problem is None else Clue(LIKELY, problem.text, problem.reason or "", problem.chunk)


def _find_wrong_source(case: Case) -> Clue | None:
    """Find what the answer key calls wrong and a chunk says all the same.

    A claim that the judge found in no sentence, or is unsure of, accuses no source; nor does one that answers another
    question, nor any where a chunk says what the key says.
    """
    doubted = any(claim.support in BAD_SUPPORT and not claim.unsure for claim in case.verdicts.claim or ())
    if doubted or case.covered is False or _is_off_topic(case) or _show_key(case):
        return None
    problem = case.find_problem("false_claim")
    if problem is None:
        return _exclude_answer(case)
    if not problem.evidence or any(
        claim.unsure and claim.start == problem.start for claim in case.verdicts.claim or ()
    ):
        return None
    return Clue(LIKELY, problem.text, problem.reason or "", problem.evidence[0].chunk)


def _exclude_answer(case: Case) -> Clue | None:
    """Find that the source is wrong by exclusion: gold was shown, no claim is surely bad, and nothing says the key."""
    claims, recall = case.verdicts.claim or (), case.verdicts.recall or ()
    if not (case.by_gold and case.covered and claims and recall) or any(item.covered for item in recall):
        return None
    cited = claims[0].evidence
    reason = "its passage was shown, nothing surely contradicts the answer, and no chunk says what the key says"
    return Clue(POSSIBLE, claims[0].claim, reason, cited[0].chunk if cited else None)


def _find_contradiction(case: Case) -> Clue | None:
    """Find what contradicts a chunk or fact, by the judge or by the sentence that is about the same statement.

    If the judge supports every claim, they are compared only if the answer lacks nothing and is on the question. What a
    judge that reads contradictions calls unsupported is not compared.
    """
    cited = _cite_problem("contradicted_claim", "contradicted_fact")(case)
    if cited is not None or case.covered is False:
        return cited
    claims = case.verdicts.claim or ()
    doubted = [claim for claim in claims if claim.support in BAD_SUPPORT]
    if doubted and case.verdicts.judge.split("/")[0] in CONTRADICTION_READERS:
        return None
    is_explained = case.find_problem(*LACKING, "irrelevant_answer") is not None
    rival = find_rival_sentence(case.trace, doubted or (() if is_explained else claims))
    if rival is None:
        return None
    return Clue(LIKELY if case.by_gold else POSSIBLE, rival.claim, f"the passage says: {rival.sentence}", rival.chunk)


def _find_invention(case: Case) -> Clue | None:
    """Find what no passage says: an unsupported claim; else one that the judge is unsure of.

    That counts only if the judge found no sentence for it, or if the answer key contradicts it.
    """
    cited = _cite_problem("unsupported_claim")(case)
    if cited is not None:
        return cited
    false = case.find_problem("false_claim")
    for claim in case.verdicts.claim or ():
        if claim.unsure and (not claim.evidence or (false is not None and false.start == claim.start)):
            return Clue(LIKELY if case.by_gold else POSSIBLE, claim.claim, "no chunk says it for sure")
    return None


def _find_not_shown(case: Case) -> Clue | None:
    """Find the passage, by gold or the chunks of the run, that a step returned and the generator did not get."""
    gold, place = case.trace.gold, case.verdicts.place
    if case.trace.chunks is None:
        return None
    missed = {name for name, grade in gold.chunks.items() if grade > 0} if gold is not None else set()
    if gold is None and place is not None and place.chunk is not None and case.covered is False:
        missed = {place.chunk}
    if missed & {chunk.id for chunk in case.trace.chunks}:
        return None
    for step in case.trace.steps or ():
        returned = missed & set(step.chunks or ())
        if returned:
            name, sure = min(returned), SURE if gold is not None else weigh_places(case.verdicts)[1]
            return Clue(sure, case.trace.query, f"{name} was retrieved and not shown", name, step.id)
    return None


def _find_not_retrieved(case: Case) -> Clue | None:
    if case.covered is not False or case.trace.answerable is False:
        return None
    if case.by_gold:
        return Clue(SURE, case.trace.query, "none of the gold was retrieved")
    if misses_gold(case.trace, case.verdicts):
        lacking = next((item.statement for item in case.verdicts.recall or () if not item.covered), case.trace.query)
        return Clue(LIKELY, lacking, "a part of the gold was not retrieved, and no chunk says this")
    place = case.verdicts.place
    if place is None or place.chunk is None:
        return None
    reason = f"{place.chunk}, retrieved for other queries, seems to answer this one better than any shown chunk"
    return Clue(weigh_places(case.verdicts)[1], place.quote or "", reason, place.chunk)


def _find_wrong_entity(case: Case) -> Clue | None:
    """Find an answer that was taken from chunks without a name or number that the query asks about."""
    if case.covered is not False or case.trace.answerable is False:
        return None
    supported = [claim for claim in case.verdicts.claim or () if claim.support not in BAD_SUPPORT]
    sources = {evidence.chunk for claim in supported for evidence in claim.evidence}
    chunks = [chunk for chunk in case.trace.chunks or () if chunk.id in sources]
    index = EntityIndex(*(chunk.text for chunk in chunks))
    absent = [name for name in extract_entities(case.trace.query) if name not in index]
    if not chunks or not absent:
        return None
    reason = f"the chunk that the answer is from does not name {', '.join(sorted(absent))}"
    return Clue(POSSIBLE, case.trace.query, reason, chunks[0].id)


def _find_not_covered(case: Case) -> Clue | None:
    if case.covered is False and case.trace.answerable is not False:
        problem = case.find_problem("uncovered_statement", "missing_context", "nothing_relevant", "nothing_retrieved")
        quote = problem.text if problem else case.trace.query
        return Clue(LIKELY if has_answer_key(case.trace) else POSSIBLE, quote, "no retrieved passage holds it")
    return None


def _find_unanswerable(case: Case) -> Clue | None:
    if case.trace.answerable is False and not _refuses(case):
        return Clue(SURE, case.trace.answer or "", "the query has no answer in the corpus")
    return None


def _find_refusal(case: Case) -> Clue | None:
    if _refuses(case) and case.covered:
        return Clue(LIKELY if case.by_gold else POSSIBLE, case.trace.answer or "", "the chunks cover what was asked")
    return None


def _refuses(case: Case) -> bool:
    return case.verdicts.answer is not None and case.verdicts.answer.refused


def _cite_problem(*kinds: ProblemKind) -> Callable[[Case], Clue | None]:
    """Return the search for the first problem of these kinds."""

    def cite(case: Case) -> Clue | None:
        problem = case.find_problem(*kinds)
        if problem is None:
            return None
        chunk = problem.evidence[0].chunk if problem.evidence else problem.chunk
        return Clue(LIKELY if case.by_gold else POSSIBLE, problem.text, problem.reason or "", chunk)

    return cite


def _find_left_out(case: Case) -> Clue | None:
    """Find a part of the query, or an expected fact, that the answer lacks.

    An answer that the key calls wrong, though the key supports each of its claims, lacks some of it too; and so does
    one in which nothing else is wrong, where the chunks say what the key says.
    """
    cited = _cite_problem(*LACKING)(case)
    if cited is not None:
        return cited
    truths = case.verdicts.truth or ()
    sure = LIKELY if case.by_gold else POSSIBLE
    if truths and all(truth.status == "supported" for truth in truths):
        return Clue(sure, case.trace.answer or "", "what it says is in the key, but not all of it")
    if _show_key(case):
        return Clue(POSSIBLE, case.trace.answer or "", "the chunks say what the key says, and the answer does not")
    return None


def _show_key(case: Case) -> bool:
    """Return whether the shown chunks say all that the answer key says."""
    recall = case.verdicts.recall or ()
    return bool(recall) and all(item.covered for item in recall)


def _is_off_topic(case: Case) -> bool:
    """Return whether an answer is irrelevant, and addresses no part of the query and no expected fact."""
    answer = case.verdicts.answer
    answered = any(aspect.answered for aspect in answer.aspects) if answer is not None else False
    stated = any(fact.present for fact in case.verdicts.fact or ())
    return case.find_problem("irrelevant_answer") is not None and not answered and not stated


def _find_off_topic(case: Case) -> Clue | None:
    return _cite_problem("irrelevant_answer")(case) if _is_off_topic(case) else None


def _find_nothing(case: Case) -> Clue | None:
    return Clue(0.5, case.trace.answer or case.trace.query, "the record does not separate the causes")


CAUSES: dict[CauseName, CauseDefinition] = {
    "failed": CauseDefinition("pipeline", "the pipeline failed", "the step that failed", _find_failure),
    "blank": CauseDefinition("pipeline", "the answer is blank", "token limits, filters and time-outs", _find_blank),
    "not_an_answer": CauseDefinition(
        "pipeline", "an error, a tool call or reasoning came as the answer", "the handling of replies", _find_non_answer
    ),
    "cut_off": CauseDefinition("pipeline", "the answer is cut off", "the token limit of the answer", _find_cut),
    "other_language": CauseDefinition(
        "pipeline", "the answer is in another language", "the language in the prompt", _find_other_language
    ),
    "query_changed": CauseDefinition(
        "query", "the query lost its meaning on the way", "the rewriting of queries", _find_changed_query
    ),
    "history_ignored": CauseDefinition(
        "query", "a follow-up was searched without its history", "the rewriting of follow-ups", _find_ignored_history
    ),
    "stale_source": CauseDefinition(
        "source", "the source is out of date", "the dates of the documents, or a filter by them", _find_stale_source
    ),
    "wrong_source": CauseDefinition(
        "source", "the source says something wrong", "the documents that it stands in", _find_wrong_source
    ),
    "not_shown": CauseDefinition(
        "retrieval", "the passage was retrieved and not shown", "the reranker, filter or cut-off", _find_not_shown
    ),
    "not_retrieved": CauseDefinition(
        "retrieval", "the passage was not retrieved", "the chunker, embedder or index", _find_not_retrieved
    ),
    "wrong_entity": CauseDefinition(
        "retrieval",
        "passages about something else were retrieved",
        "filters by name, version or tenant, or keywords in addition to vectors",
        _find_wrong_entity,
    ),
    "not_covered": CauseDefinition(
        "retrieval",
        "no retrieved passage holds the answer",
        "the index, or the corpus if it lacks the answer",
        _find_not_covered,
    ),
    "answered_unanswerable": CauseDefinition(
        "generation",
        "answered although it cannot be answered",
        "when the prompt has the model refuse",
        _find_unanswerable,
    ),
    "refused": CauseDefinition(
        "generation", "refused although the passage was there", "the refusal instructions of the prompt", _find_refusal
    ),
    "contradicted": CauseDefinition(
        "generation",
        "contradicts the passages",
        "the model, or the prompt's rules of faithfulness",
        _find_contradiction,
    ),
    "invented": CauseDefinition(
        "generation",
        "invented: no passage says it",
        "the model, or the prompt's rules of faithfulness",
        _find_invention,
    ),
    "off_topic": CauseDefinition(
        "generation", "answers another question", "the place of the query in the prompt", _find_off_topic
    ),
    "left_out": CauseDefinition(
        "generation", "left out what was asked", "the prompt: every part of the query", _find_left_out
    ),
    "undecided": CauseDefinition("undecided", "undecided", "label some of them: ragfault label", _find_nothing),
}
"""Every cause, in the order in which they are looked for: that of the pipeline."""
