"""Overall assessment of one trace: right, wrong or cannot tell, by what evidence, in a sentence."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from ragfault.diagnosis.causes.rating import describe_non_answer
from ragfault.diagnosis.causes.records import AnswerOutcome, AnswerRating
from ragfault.diagnosis.records import Assessment, Diagnosis
from ragfault.model.finish_reasons import get_finish_kind
from ragfault.model.gold_evidence import has_answer_key, list_substitutions
from ragfault.model.records import GoldVerdicts, Trace, Verdicts
from ragfault.text.number_format import format_count, format_number, format_percent

ANSWER_PROBLEMS = (
    "empty_answer", "unsupported_claim", "contradicted_claim", "unanswered_aspect", "absent_fact", "contradicted_fact",
    "irrelevant_answer", "wrong_refusal", "missed_refusal", "false_claim", "bad_quote", "bad_citation",
    "outdated_source",
)  # fmt: skip
"""Kinds of problem that the answer itself has; the others are of what it was made from."""
KEY_SENTENCES = {
    "right answer": "the answer states it",
    "wrong refusal": "the answer refuses, and the gold is among the chunks",
    "missed refusal": "the answer does not refuse, and the chunks do not cover the query",
}


OUTCOMES: dict[AnswerOutcome, Literal["right", "wrong", "cannot tell"]] = {
    "right": "right",
    "bad": "wrong",
    "unsure": "cannot tell",
}


def assess_trace(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis, rating: AnswerRating) -> Assessment:
    """Say in a sentence what the rating of an answer rests on: the one decision, of which the cause is named too.

    Where nothing was judged, the sentence says so.

    >>> from ragfault.diagnosis.causes.rating import rate_answer
    >>> from ragfault.diagnosis.diagnosis import diagnose_trace
    >>> trace, verdicts = Trace(id="1", query="When?", answer="At noon."), Verdicts(trace="1")
    >>> diagnosis = diagnose_trace(trace, verdicts)
    >>> assess_trace(trace, verdicts, diagnosis, rate_answer(trace, verdicts, diagnosis)).sentence
    'cannot tell: nothing of the answer was judged, and there is no answer key'
    """
    outcome = OUTCOMES[rating.outcome]
    match rating.source:
        case "pipeline":
            reason = f": {_describe_pipeline(trace)}"
        case "answer key":
            reason = f" by its answer key: {_describe_key(trace, diagnosis, rating)}"
        case _:
            reason = _describe_judge(trace, verdicts, diagnosis, rating)
    return Assessment(outcome=outcome, source=rating.source, sentence=outcome + reason)


def _describe_pipeline(trace: Trace) -> str:
    if trace.error is not None:
        return "the pipeline failed"
    if get_finish_kind(trace) == "filter" and trace.answer:
        return "the answer is what the content filter of the provider left"
    return f"the answer is {describe_non_answer(trace) or ('cut off' if (trace.answer or '').strip() else 'empty')}"


def _describe_key(trace: Trace, diagnosis: Diagnosis, rating: AnswerRating) -> str:
    if diagnosis.key_outcome == "right refusal":
        reason = _describe_right_refusal(trace)
    else:
        reason = KEY_SENTENCES.get(diagnosis.key_outcome or "") or _describe_wrong_answer(trace, diagnosis)
    return reason + _describe_objections(diagnosis, rating.outcome == "right")


def _describe_judge(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis, rating: AnswerRating) -> str:
    """Describe a rating that rests on the judge, on labels of its verdicts, or on nothing."""
    missing = _describe_silent_key(trace, verdicts)
    if trace.answer is None:
        return ": the trace has no answer"
    if verdicts.answer is None and verdicts.claim is None:
        lost = "the judge failed on the answer" if verdicts.failures else "nothing of the answer was judged"
        return f": {lost}, and {missing}"
    objections = _count_objections(diagnosis) or "no problem of the answer itself"
    if rating.refused:
        return f": the answer refuses, and {missing}; it shows {objections}"
    rated = (
        "it shows "
        if diagnosis.triad is None
        else f"it is rated {diagnosis.quality} (triad {format_number(diagnosis.triad)}) and shows "
    )
    by = {"labels": " by people's labels", "judge": " only by the judge"}.get(rating.source, "")
    return f"{by if rating.outcome != 'unsure' else ''}, as {missing}: {rated}{objections}"


def _describe_silent_key(trace: Trace, verdicts: Verdicts) -> str:
    if isinstance(verdicts, GoldVerdicts):
        return "its answer key does not tell"
    return "its answer key was not applied" if has_answer_key(trace) else "there is no answer key"


def _describe_right_refusal(trace: Trace) -> str:
    """Describe why a refusal is right; where the query has an answer, that is no praise of what retrieval returned."""
    if trace.answerable is False:
        return "the answer refuses, and the query has no answer"
    return "the answer refuses, as the chunks do not cover the query; its answer was not retrieved"


def _describe_wrong_answer(trace: Trace, diagnosis: Diagnosis) -> str:
    substitutions = list_substitutions(trace)
    if substitutions:
        return f"it says {substitutions[0].text}"
    share = diagnosis.key_agreement
    stated = f", and it states {format_percent(share)} of the expected facts" if share else ""
    return f"names or numbers of the key are absent from the answer{stated}"


def _describe_objections(diagnosis: Diagnosis, is_right: bool) -> str:
    """Describe the problems of an answer that the key decides on; empty where there are none."""
    objections = _count_objections(diagnosis)
    return f"; {'yet ' if is_right else ''}it shows {objections}" if objections else ""


def _count_objections(diagnosis: Diagnosis) -> str:
    """Count the problems of the answer by kind: `2 unsupported claims, 1 bad quote`."""
    counts = Counter(problem.kind for problem in diagnosis.problems if problem.kind in ANSWER_PROBLEMS)
    return ", ".join(format_count(count, kind.replace("_", " ")) for kind, count in counts.items())
