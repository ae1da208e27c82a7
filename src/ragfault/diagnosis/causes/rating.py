"""Whether the answer of a trace is bad: by people's labels, the answer key, the pipeline, else the judge."""

from __future__ import annotations

import json
import re

from msgspec.structs import replace

from ragfault.diagnosis.causes.endings import is_cut_off
from ragfault.diagnosis.causes.records import AnswerOutcome, AnswerRating, OutcomeSource
from ragfault.diagnosis.causes.retrieval import weigh_places
from ragfault.diagnosis.records import Diagnosis
from ragfault.judges.checks.claims import is_refusal
from ragfault.judges.checks.languages import detect_language, differ_in_language, may_ask_for
from ragfault.judges.checks.sentence_kinds import is_leaked_reasoning
from ragfault.judges.checks.system_messages import is_system_message
from ragfault.model.finish_reasons import get_finish_kind
from ragfault.model.gold_evidence import AGREEMENT_UNSURE, match_answer
from ragfault.model.records import GoldVerdicts, Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT, chunks_cover_query, settle_groundedness
from ragfault.text.markup import REASONING_PATTERN, is_json, may_reason, unfence
from ragfault.text.sentences import split_sentences

BAD_FROM, RIGHT_UP_TO = 0.6, 0.4
"""Probabilities from which an answer is called bad, and up to which it is called right; chosen, not measured."""
BAD_IF_AGREEING, BAD_IF_LACKING = 17 / 1323, 371 / 470
"""Share of the answers that people found bad: of those that agree with a short reference, and of those without a name
or number of it (benchmarks/RESULTS.md, `python -m benchmarks.answer_key`)."""
BAD_IF_PLAIN, BAD_IF_REFUSED = 0.95, 0.85
"""The same where the record shows that it is bad, such as a refusal although gold was shown, and for a refusal although
the chunks hold the statements of the references; chosen, not measured."""
ODDS_IF_MISSED = 4.0
"""How much likelier a bad answer is than a right one where its passage was not shown; chosen, not measured."""
OFF_TOPIC = 0.25
"""An answer with a relevance below this does not answer the question; chosen, not measured."""
OPEN_REASONING = re.compile(r"\A\s*<(?:think|thinking|reasoning)\b[^<>]{0,80}>.*", re.DOTALL)
"""Reasoning that was cut off before its end."""
CALL_MARKS = re.compile(
    r"\A\s*(?:</?[a-zA-Z_][^<>]{0,80}>|<?\|[^|<>]{1,80}\|>?|\[/?[A-Z_]{4,}\])|</?[a-zA-Z_][^<>]{0,80}>\s*\Z"
)
"""The mark before or after a tool call, as models write it: a tag, a special token, or capitals in brackets."""
CALL_KEYS = ("tool_calls", "function_call", "function", "tool", "tool_use", "arguments")


def rate_answer(
    trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis, *, labeled: bool = False, closed: bool = False
) -> AnswerRating:
    """Rate the answer of a trace: right, bad or unsure, with the probability that it is bad.

    A failed pipeline, a blank, a text that is not an answer and one that is cut off are bad. Otherwise the answer key
    decides if it tells; a refusal is right only if the query has no answer. Otherwise the judge decides, but not on a
    refusal: whether chunks hold what an answer lacks it tells little better than chance. `labeled` says that people
    gave the verdicts on the answer, `closed` that the answers of the run end with a stop. An answer is right up to
    a probability of 0.4 and bad from 0.6. It is unsure between them, where its claims and the probability disagree,
    where nothing was judged, and where the chunks support an answer without a name or number of its key.

    >>> from ragfault.diagnosis.diagnosis import diagnose_trace
    >>> trace, verdicts = Trace(id="1", query="When?", answer=""), Verdicts(trace="1")
    >>> rate_answer(trace, verdicts, diagnose_trace(trace, verdicts)).outcome
    'bad'
    """
    if trace.error is not None or (trace.answer is not None and not trace.answer.strip()):
        return build_rating(1.0, "pipeline")
    if trace.answer is None and get_finish_kind(trace) is None:
        return AnswerRating(outcome="unsure", probability=0.5, source="none")
    if describe_non_answer(trace) or is_cut_off(trace, verdicts, closed=closed):
        return build_rating(BAD_IF_PLAIN, "pipeline")
    if is_other_language(trace) and _is_unasked(trace):
        return build_rating(BAD_IF_PLAIN, "pipeline")
    by_key = _rate_by_key(trace, verdicts, diagnosis)
    if by_key is not None:
        return build_rating(by_key, "answer key")
    if get_finish_kind(trace) is not None:
        return build_rating(BAD_IF_PLAIN, "pipeline")
    by_judge = _rate_by_judge(trace, verdicts, labeled=labeled)
    refused = verdicts.answer is not None and verdicts.answer.refused
    if by_judge is None:
        return AnswerRating(outcome="unsure", probability=0.5, source="none", refused=refused)
    if not labeled and match_answer(trace) is False:
        # The chunks support what it says, which tells nothing of what it lacks.
        by_judge = max(by_judge, 0.5)
    rating = build_rating(by_judge, "labels" if labeled else "judge")
    # What the chunks of the run leave open, the other run of a pair may still settle.
    return replace(rating, refused=refused and rating.outcome == "unsure")


def build_rating(probability: float, source: OutcomeSource) -> AnswerRating:
    """Return the rating of an answer that is bad with this probability."""
    outcome: AnswerOutcome = "bad" if probability >= BAD_FROM else "right" if probability <= RIGHT_UP_TO else "unsure"
    return AnswerRating(outcome=outcome, probability=round(probability, 4), source=source)


def _rate_by_key(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis) -> float | None:
    """Return the probability of a bad answer by the answer key; None where the key does not tell.

    A judge that reads the answer beside its key gives the probability itself, if that is what decided.
    """
    agreement = verdicts.answer.agreement if verdicts.answer is not None and not trace.facts else None
    match diagnosis.key_outcome:
        case "right answer":
            read = agreement is not None and agreement >= AGREEMENT_UNSURE[1]
            return _weigh_retrieval(1 - agreement, verdicts) if read and agreement is not None else BAD_IF_AGREEING
        case "wrong answer":
            return BAD_IF_LACKING if agreement is None or agreement > AGREEMENT_UNSURE[0] else 1 - agreement
        case "right refusal":
            # Who asked has no answer either way; without one in the corpus that is as it should be.
            return 1 - BAD_IF_PLAIN if trace.answerable is False else BAD_IF_PLAIN
        case "wrong refusal":
            return BAD_IF_PLAIN
        case "missed refusal" if trace.answerable is False:
            return BAD_IF_PLAIN
        case "cannot tell" | "missed refusal" if agreement is not None and verdicts.answer is not None:
            refused = verdicts.answer.refused
            if refused and agreement <= AGREEMENT_UNSURE[0] and not any(map(is_refusal, trace.references)):
                # The key has an answer, which who asked did not get, whatever was retrieved.
                return 1 - agreement
            if not refused and isinstance(verdicts, GoldVerdicts) and verdicts.covered is False:
                # Chunks without the passage support what is not the answer: the judge of them tells nothing.
                return _weigh_retrieval(1 - agreement, verdicts)
    return None


def _weigh_retrieval(p: float, verdicts: Verdicts) -> float:
    """Return the probability that an answer is bad, as it was read beside its key, with what was retrieved for it.

    Where gold was missed and the chunks do not say what the key says, an answer is right only by luck.
    """
    is_missed = isinstance(verdicts, GoldVerdicts) and verdicts.covered is False
    if not is_missed or not verdicts.recall or all(item.covered for item in verdicts.recall):
        return p
    return p * ODDS_IF_MISSED / (p * ODDS_IF_MISSED + 1 - p)


def _rate_by_judge(trace: Trace, verdicts: Verdicts, *, labeled: bool) -> float | None:
    """Return the probability of a bad answer by the judge; None where it judged nothing of it.

    The answer is good if all of its claims are supported and it is on the question: independent probabilities.
    """
    answer = verdicts.answer
    if answer is not None and answer.refused:
        if (labeled or verdicts.recall) and chunks_cover_query(trace, verdicts):
            return BAD_IF_REFUSED
        # Wherever in the run the passage is, who asked could have had an answer. That no query got it does not show
        # that the corpus lacks it: all documents of a kind may be lost.
        return max(0.5, sum(weigh_places(verdicts))) if verdicts.place is not None else None
    claims = verdicts.claim or ()
    off_topic = answer is not None and answer.relevance is not None and answer.relevance < OFF_TOPIC
    grounded = answer.grounded if answer is not None else None
    if grounded is None and not claims and not off_topic:
        # That it is on the question does not say that it is right.
        return None
    if grounded is None:
        known = [claim.p for claim in claims if claim.p is not None]
        grounded = min(known) if known else float(all(claim.support not in BAD_SUPPORT for claim in claims))
    # An answer one of whose claims fails is not right, and one whose claims all pass is not bad, by the judge.
    grounded = settle_groundedness(grounded, claims, failing=0.5, passing=0.5)
    on_topic = 0.5 + answer.relevance if off_topic and answer is not None and answer.relevance is not None else 1.0
    # What stands in chunks that lack the passage is the answer to another question.
    return 1.0 - grounded * on_topic * (1.0 - weigh_places(verdicts)[1])


def is_other_language(trace: Trace) -> bool:
    """Return whether an answer is in another language than its query and every chunk; few words may show none.

    >>> is_other_language(Trace(id="1", query="Wo kann ich nachts den Lärm der Nachbarn melden?", answer="At noon."))
    False
    """
    others = (trace.query, *(chunk.text for chunk in trace.chunks or ()))
    return all(differ_in_language(text, trace.answer or "") for text in others)


def _is_unasked(trace: Trace) -> bool:
    """Return whether nobody asked for the language of an answer: by a reference, else by the user."""
    answer = trace.answer or ""
    if trace.references:
        return any(differ_in_language(text, answer) for text in trace.references)
    asked = " ".join((*(turn.text for turn in trace.history or ()), trace.query))
    return not may_ask_for(asked, detect_language(answer))


def describe_non_answer(trace: Trace) -> str:
    """Describe a text that a pipeline returned in place of an answer; "" for an answer.

    >>> error = "Error 429: too many requests"
    >>> describe_non_answer(Trace(id="1", query="When?", answer=error))
    'a message of the system'
    >>> describe_non_answer(Trace(id="1", query="What does error 429 mean?", answer=error))
    ''
    >>> leaked = "Okay, the user wants the time. Hmm, chunk 2 says otherwise, so I should check. Draft:"
    >>> describe_non_answer(Trace(id="1", query="When?", answer=leaked))
    'reasoning without an answer'
    >>> call = '{"tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]}'
    >>> describe_non_answer(Trace(id="1", query="When?", answer=call))
    'a tool call'
    """
    text = (trace.answer or "").strip()
    bare = CALL_MARKS.sub("", text).strip()
    if is_json(bare) and _is_call(unfence(bare)):
        return "a tool call"
    untagged = OPEN_REASONING.sub("", REASONING_PATTERN.sub("", text)).strip() if may_reason(text) else text
    sentences = [untagged[start:end] for start, end in split_sentences(untagged)]
    # A refusal speaks of the passages and of itself, too.
    if text and (not untagged or (is_leaked_reasoning(sentences) and not is_refusal(untagged))):
        return "reasoning without an answer"
    if is_system_message(text, " ".join((trace.query, *(chunk.text for chunk in trace.chunks or ())))):
        return "a message of the system"
    return ""


def _is_call(text: str) -> bool:
    try:
        record = json.loads(text)
    except ValueError:
        return False
    first = record[0] if isinstance(record, list) and record else record
    return isinstance(first, dict) and any(key in first for key in CALL_KEYS)
