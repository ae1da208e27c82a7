"""Overall assessment of one trace: right, wrong or cannot tell, by what evidence, in a sentence."""

from __future__ import annotations

from collections import Counter

from ragfault.diagnosis.records import Assessment, Diagnosis
from ragfault.model.gold_evidence import has_answer_key
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


def assess_trace(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis) -> Assessment:
    """Assess the answer of a trace from its diagnosis: right, wrong or cannot tell, with the reason in a sentence.

    A failed pipeline and an empty answer are wrong; else the answer key decides. Where it does not, the judge alone
    shows an answer to be wrong (quality level poor) and never to be right, as a claim that the chunks support may be
    false; of a refusal it cannot tell. Where nothing was judged, the sentence says so.

    >>> from ragfault.diagnosis.diagnosis import diagnose_trace
    >>> trace, verdicts = Trace(id="1", query="When?", answer="At noon."), Verdicts(trace="1")
    >>> assess_trace(trace, verdicts, diagnose_trace(trace, verdicts)).sentence
    'cannot tell: nothing of the answer was judged, and there is no answer key'
    """
    for problem in diagnosis.problems:
        if problem.kind == "pipeline_error":
            return Assessment(outcome="wrong", source="pipeline", sentence="wrong: the pipeline failed")
        if problem.kind == "empty_answer":
            return Assessment(outcome="wrong", source="pipeline", sentence="wrong: the answer is empty")
    key = diagnosis.key_outcome
    if key is not None and key != "cannot tell":
        is_right = key in ("right answer", "right refusal")
        reason = (
            _describe_right_refusal(trace)
            if key == "right refusal"
            else KEY_SENTENCES.get(key) or _describe_wrong_answer(diagnosis)
        )
        return Assessment(
            outcome="right" if is_right else "wrong",
            source="answer key",
            sentence=f"{'right' if is_right else 'wrong'} by its answer key: {reason}"
            + _describe_objections(diagnosis, is_right),
        )
    return _assess_by_judge(trace, verdicts, diagnosis)


def _assess_by_judge(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis) -> Assessment:
    """Assess a trace whose answer key does not decide."""
    missing = _describe_silent_key(trace, verdicts)
    if trace.answer is None:
        return Assessment(outcome="cannot tell", source="none", sentence="cannot tell: the trace has no answer")
    if verdicts.answer is None and verdicts.claim is None:
        lost = "the judge failed on the answer" if verdicts.failures else "nothing of the answer was judged"
        return Assessment(outcome="cannot tell", source="none", sentence=f"cannot tell: {lost}, and {missing}")
    objections = _count_objections(diagnosis) or "no problem"
    if verdicts.answer is not None and verdicts.answer.refused:
        sentence = f"cannot tell: the answer refuses, and {missing}; it shows {objections}"
        return Assessment(outcome="cannot tell", source="judge", sentence=sentence)
    rated = (
        "it shows "
        if diagnosis.triad is None
        else f"it is rated {diagnosis.quality} (triad {format_number(diagnosis.triad)}) and shows "
    )
    if diagnosis.quality == "poor":
        sentence = f"wrong only by the judge, as {missing}: {rated}{objections}"
        return Assessment(outcome="wrong", source="judge", sentence=sentence)
    sentence = f"cannot tell, as {missing}: {rated}{objections}"
    return Assessment(outcome="cannot tell", source="judge", sentence=sentence)


def _describe_silent_key(trace: Trace, verdicts: Verdicts) -> str:
    if isinstance(verdicts, GoldVerdicts):
        return "its answer key does not tell"
    return "its answer key was not applied" if has_answer_key(trace) else "there is no answer key"


def _describe_right_refusal(trace: Trace) -> str:
    """Describe why a refusal is right; where the query has an answer, that is no praise of what retrieval returned."""
    if trace.answerable is False:
        return "the answer refuses, and the query has no answer"
    return "the answer refuses, as the chunks do not cover the query; its answer was not retrieved"


def _describe_wrong_answer(diagnosis: Diagnosis) -> str:
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
