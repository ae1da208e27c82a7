"""Generation metrics from verdicts: groundedness, relevance, completeness and refusals."""

from __future__ import annotations

import re

from ragfault.metrics.catalog import AnnotatedValue, MetricResult, Undefined, metric
from ragfault.metrics.context import share_facts
from ragfault.model.gold_evidence import agrees_with_key
from ragfault.model.records import AnswerVerdict, Trace, Verdicts
from ragfault.model.rules import COVERAGE_THRESHOLD, chunks_cover_query
from ragfault.text.sentences import split_sentences

_WORD_PATTERN = re.compile(r"\w+")


def explain_no_claims(trace: Trace, verdicts: Verdicts) -> Undefined:
    """Return the reason why there are no claim verdicts."""
    if not trace.answer:
        return Undefined("no answer")
    if trace.chunks is None:
        return Undefined("chunks not recorded")
    return Undefined("the judge offers no claim verdicts" if verdicts.claim is None else "the answer makes no claim")


def no_claims_value(why: Undefined, empty: float | None) -> MetricResult:
    """Return the value that a convention gives to an answer without claims; undefined where none is asked for."""
    if empty is None or why.reason != "the answer makes no claim":
        return why
    return AnnotatedValue(empty, f"{why.reason}: counts as {empty:g}")


@metric(layer="generation", verdicts="claim", fields="answer chunks", source="faithfulness, Es et al. 2023 (Ragas)")
def groundedness(trace: Trace, verdicts: Verdicts, *, strict: bool = False, empty: float | None = None) -> MetricResult:
    """Share of the answer's claims that the chunks support.

    (supported + inferred) / claims; with `strict` inferred claims do not count as supported. In [0, 1].
    Undefined where the answer makes no claim, as a refusal does not, unless `empty` gives the value for that (0 in
    RAGChecker, 1 in DeepEval).
    """
    if not verdicts.claim:
        return no_claims_value(explain_no_claims(trace, verdicts), empty)
    good = ("supported",) if strict else ("supported", "inferred")
    return sum(claim.support in good for claim in verdicts.claim) / len(verdicts.claim)


@metric(layer="generation", verdicts="claim", fields="answer chunks", source="context adherence")
def context_adherence(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the answer's text that the chunks say outright.

    The share of the answer's words in sentences all of whose claims are directly supported: inference and
    elaboration lower it, also where each claim is true. In [0, 1]. Undefined where the answer makes no claim.
    """
    if not verdicts.claim or not trace.answer:
        return explain_no_claims(trace, verdicts)
    total = inside = 0
    for start, end in split_sentences(trace.answer):
        size = len(_WORD_PATTERN.findall(trace.answer[start:end]))
        claims = [claim for claim in verdicts.claim if claim.start < end and claim.end > start]
        total += size
        inside += size * bool(claims and all(claim.support == "supported" for claim in claims))
    return inside / total if total else explain_no_claims(trace, verdicts)


@metric(layer="generation", better="lower", verdicts="claim", fields="answer chunks", source="NLI contradiction")
def contradiction(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the answer's claims that the chunks contradict.

    contradicted / claims. In [0, 1]. Undefined where the answer makes no claim.
    """
    if not verdicts.claim:
        return explain_no_claims(trace, verdicts)
    return sum(claim.support == "contradicted" for claim in verdicts.claim) / len(verdicts.claim)


def _get_answer_verdict(trace: Trace, verdicts: Verdicts) -> AnswerVerdict | Undefined:
    """Return the answer verdict, or the reason why there is none."""
    if not trace.answer:
        return Undefined("no answer")
    return verdicts.answer or Undefined("the judge offers no answer verdict")


@metric(layer="generation", verdicts="answer", fields="query answer", source="answer relevance of the RAG triad")
def answer_relevance(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Degree to which the answer addresses the query.

    The judge's relevance of the answer to the query. In [0, 1]. Undefined without an answer, and for a terse one of
    which the judge cannot tell without chunks.
    """
    verdict = _get_answer_verdict(trace, verdicts)
    if isinstance(verdict, Undefined):
        return verdict
    return Undefined("too terse to judge without chunks") if verdict.relevance is None else verdict.relevance


OKAY_WEIGHTS = {"brief": 0.0, "normal": 0.5, "detailed": 1.0}
"""Detail that is asked for → the weight of an okay fact beside a vital one."""
BRIEF_QUERY = re.compile(
    r"\b(?:briefly|in short|in brief|in (?:one|a|a single) (?:word|line|sentence)|keep it short|tl;?dr)\b",
    re.IGNORECASE,
)
DETAILED_QUERY = re.compile(
    r"\b(?:in (?:full |great )?detail|in depth|thoroughly|comprehensively|exhaustive(?:ly)?"
    r"|step by step|detailed|full list)\b",
    re.IGNORECASE,
)


def read_detail(trace: Trace) -> str:
    """Return the detail that a query asks for: brief, normal or detailed, by `metadata.detail`, else by its words.

    >>> read_detail(Trace(id="1", query="In short: what does a crossing cost?"))
    'brief'
    """
    detail = str(trace.metadata.get("detail", "")).strip().lower()
    if detail in OKAY_WEIGHTS:
        return detail
    return (
        "brief" if BRIEF_QUERY.search(trace.query) else "detailed" if DETAILED_QUERY.search(trace.query) else "normal"
    )


@metric(layer="generation", verdicts="fact answer", fields="facts answer", source="expected-fact lists")
def completeness(trace: Trace, verdicts: Verdicts, *, okay: float = 1.0, by_detail: bool = False) -> MetricResult:
    """Share of the expected facts that the answer states.

    Expected facts present / expected facts; those that `metadata.okay_facts` lists count `okay` times as much as the
    others, the vital ones (nuggets of TREC: `okay=0.5`). `by_detail=true` sets `okay` by the detail that is asked for:
    0 where `metadata.detail` is brief, 0.5 where normal, 1 where detailed; without it the query tells ("in short", "in
    detail"), else it is normal. Without facts, aspects of the query answered / aspects, and the row says so. In
    [0, 1]. Undefined with neither, and where nothing counts.
    """
    if not trace.answer:
        return Undefined("no answer")
    if trace.facts and verdicts.fact:
        if by_detail:
            okay = OKAY_WEIGHTS[read_detail(trace)]
        return share_facts(trace, [(item.fact, item.present) for item in verdicts.fact], okay)
    aspects = verdicts.answer.aspects if verdicts.answer else ()
    if not aspects:
        return Undefined("no facts and no aspects")
    return AnnotatedValue(
        sum(aspect.answered for aspect in aspects) / len(aspects), "by aspects of the query, without facts"
    )


@metric(layer="generation", better="lower", verdicts="answer", fields="answer", source="refusal detection")
def refusal(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Refusal: 1 where the answer refuses, else 0.

    1 refused, 0 answered. Undefined without an answer.
    """
    verdict = _get_answer_verdict(trace, verdicts)
    return verdict if isinstance(verdict, Undefined) else float(verdict.refused)


def _score_refusal(trace: Trace, verdicts: Verdicts, share: float, refused: bool) -> MetricResult:
    """Return 1 if the answer refuses (or not) contrary to what the chunks cover, else 0."""
    verdict = _get_answer_verdict(trace, verdicts)
    if isinstance(verdict, Undefined):
        return verdict
    covered = chunks_cover_query(trace, verdicts, share)
    if covered is None:
        return Undefined("it is not known whether the chunks cover what was asked")
    is_right = not refused and agrees_with_key(trace, verdicts)
    return float(verdict.refused is refused and covered is refused and not is_right)


@metric(
    layer="generation",
    better="lower",
    verdicts="answer recall chunk missing",
    fields="answer chunks gold facts reference",
    source="over-refusal",
)
def wrong_refusal(trace: Trace, verdicts: Verdicts, *, share: float = COVERAGE_THRESHOLD) -> MetricResult:
    """Wrong refusal: 1 where the answer refuses although the chunks cover what was asked, else 0.

    1 or 0. Gold decides: the chunks cover it where all gold was retrieved, and not where none was or the query is not
    answerable. Else they do where they support at least `share` of the expected facts (else of the reference); with
    neither, where something relevant was retrieved and nothing is missing. Undefined without an answer or where that
    is not known.
    """
    return _score_refusal(trace, verdicts, share, refused=True)


@metric(
    layer="generation",
    better="lower",
    verdicts="answer recall chunk missing",
    fields="answer chunks gold facts reference",
    source="under-refusal",
)
def missed_refusal(trace: Trace, verdicts: Verdicts, *, share: float = COVERAGE_THRESHOLD) -> MetricResult:
    """Missed refusal: 1 where the answer does not refuse although the chunks do not cover what was asked, else 0.

    1 or 0; what the chunks cover is decided as in wrong_refusal. 0 for an answer that agrees with its reference.
    Undefined without an answer or where that is not known.
    """
    return _score_refusal(trace, verdicts, share, refused=False)


@metric(layer="generation", verdicts="rubric", fields="query chunks answer", source="criteria of the user")
def rubric(trace: Trace, verdicts: Verdicts, *, name: str = "") -> MetricResult:
    """Value of the answer by a rubric: a criterion in the words of the user.

    The value of the level that an `llm:` judge gives it by the rubric `name`; without a name, the mean over all rubrics
    of the judge. In [0, 1]. Undefined without an answer, and where the judge was not given the rubric.
    """
    if not (trace.answer or "").strip():
        return Undefined("no answer")
    values = [item.value for item in verdicts.rubric or () if name in ("", item.rubric)]
    if not values:
        return Undefined(f'the judge was given no rubric "{name}"' if name else "the judge was given no rubrics")
    return sum(values) / len(values)


@metric(layer="generation", better="lower", verdicts="harm", fields="answer", source="moderation categories")
def harmfulness(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Score of the answer's worst category of harm.

    The highest category score. In [0, 1]. Undefined where the judge does not offer it.
    """
    if not trace.answer:
        return Undefined("no answer")
    if verdicts.harm is None:
        return Undefined("the judge offers no harm verdicts")
    return max((harm.score for harm in verdicts.harm), default=0.0)
