"""Laws of causes: one for each bad answer, the first in the order of the pipeline."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ragfault import evaluate
from ragfault.cli.commands import run_command
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.selection import select_causes
from ragfault.diagnosis.causes.summary import count_causes
from ragfault.diagnosis.causes.table import CAUSES, find_cause
from ragfault.diagnosis.diagnosis import diagnose_trace
from ragfault.model.causes import CauseName
from ragfault.model.errors import UsageError
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import (
    AnswerVerdict,
    Chunk,
    ChunkVerdict,
    ClaimVerdict,
    ConversationTurn,
    Evidence,
    FactVerdict,
    Gold,
    PassagePlace,
    RecallVerdict,
    Step,
    Trace,
    TruthVerdict,
    Verdicts,
)
from remembered import LEXICAL

SHOWN = Chunk(id="tide", text="The tide gate opens at 05:40 and stays open for two hours.")
OTHER = Chunk(id="dues", text="Harbour dues are paid at the office by the slip.")
TRACE = Trace(
    id="1",
    query="When does the tide gate open?",
    chunks=(SHOWN, OTHER),
    answer="The tide gate opens at 05:40.",
    reference="At 05:40.",
    gold=Gold(chunks={"tide": 1}),
)
RIGHT = Verdicts(
    trace="1",
    chunk=(
        ChunkVerdict(chunk="tide", relevance=0.9, level="high"),
        ChunkVerdict(chunk="dues", relevance=0.1, level="none"),
    ),
    missing=(),
    claim=(ClaimVerdict(claim="The tide gate opens at 05:40.", start=0, end=29, support="supported", p=0.95),),
    answer=AnswerVerdict(relevance=0.9, grounded=0.95),
)
BASELESS = AnswerVerdict(relevance=0.9, grounded=0.05)
FALSE = replace(RIGHT, answer=BASELESS, claim=(replace(RIGHT.claim[0], support="contradicted", p=0.05),))
INVENTED = replace(RIGHT, answer=BASELESS, claim=(replace(RIGHT.claim[0], support="unsupported", p=0.05),))
FANFARE = "A fanfare is blown at 09:15 by two men."
REFUSED = replace(RIGHT, claim=(), answer=AnswerVerdict(relevance=None, refused=True))
LOST = replace(REFUSED, place=PassagePlace(shown=0.1, elsewhere=0.8, chunk="tide", lost=("hollin",)))
MISSED = replace(TRACE, chunks=(OTHER,))
KEYLESS = replace(TRACE, gold=None, reference=None)
USELESS = replace(INVENTED, chunk=RIGHT.chunk[1:])
EXPIRED = replace(SHOWN, metadata={"valid_to": "2019-12-31"})
CITED = replace(RIGHT.claim[0], evidence=(Evidence(chunk="tide", start=0, end=29),))


def look(trace: Trace, verdicts: Verdicts = RIGHT) -> AnswerCause:
    """Return the cause of a trace, the answer key applied."""
    seen = apply_gold(trace, replace(verdicts, chunk=verdicts.chunk[-len(trace.chunks or ()) :]))
    return find_cause(trace, seen, diagnose_trace(trace, seen))


CASES: dict[CauseName, tuple[Trace, Verdicts]] = {
    "failed": (replace(TRACE, error="time-out", answer=None), RIGHT),
    "blank": (replace(TRACE, answer=" \n"), RIGHT),
    "not_an_answer": (replace(TRACE, answer="HTTP 503 Service Unavailable"), RIGHT),
    "other_language": (
        replace(TRACE, answer="Das Tor ist nicht vor der Flut und auch nicht nach der Ebbe auf."),
        FALSE,
    ),
    "query_changed": (
        replace(
            MISSED,
            query="When does gate 7 open?",
            answer="I do not know.",
            steps=(Step(id="s1", kind="rewrite", output="when does it open"),),
        ),
        LOST,
    ),
    "history_ignored": (
        replace(
            MISSED,
            query="and when does it open?",
            history=(ConversationTurn(role="user", text="I ask about the Hollin Gate."),),
            steps=(Step(id="s1", kind="retrieve", input="and when does it open?"),),
            answer="I do not know.",
        ),
        LOST,
    ),
    "stale_source": (
        replace(TRACE, chunks=(EXPIRED, OTHER), reference="At 06:10.", time=datetime(2024, 5, 1, tzinfo=UTC)),
        replace(RIGHT, claim=(CITED,)),
    ),
    "wrong_source": (
        replace(TRACE, reference="At 06:10."),
        replace(
            RIGHT, claim=(CITED,), truth=(TruthVerdict(claim="The tide gate opens at 05:40.", status="contradicted"),)
        ),
    ),
    "not_shown": (
        replace(MISSED, answer="I do not know.", steps=(Step(id="s1", kind="retrieve", chunks=("tide", "dues")),)),
        REFUSED,
    ),
    "not_retrieved": (replace(MISSED, answer="I do not know."), REFUSED),
    "wrong_entity": (
        replace(
            KEYLESS, query="What are the dues at pier 7?", chunks=(OTHER,), answer="8 euros.", reference="9 euros."
        ),
        replace(USELESS, claim=(replace(CITED, claim="They are 8 euros.", evidence=(Evidence("dues", 0, 49),)),)),
    ),
    "not_covered": (replace(KEYLESS, query="when does it open?", chunks=(OTHER,), answer="At dawn."), USELESS),
    "answered_unanswerable": (replace(KEYLESS, answerable=False, answer="At dawn, always."), INVENTED),
    "refused": (replace(TRACE, answer="I do not know."), REFUSED),
    "cut_off": (replace(TRACE, answer="The tide gate, of which the harbour master is in charge, opens at"), RIGHT),
    "contradicted": (replace(TRACE, answer="The tide gate opens at 06:40."), FALSE),
    "invented": (
        replace(TRACE, answer=FANFARE),
        replace(INVENTED, claim=(replace(INVENTED.claim[0], claim=FANFARE, end=len(FANFARE)),)),
    ),
    "left_out": (
        replace(KEYLESS, facts=("It opens at 05:40.", "It stays open for two hours."), answer="It is a gate."),
        replace(RIGHT, fact=(FactVerdict(fact="It opens at 05:40.", present=False),) * 2),
    ),
    "off_topic": (
        replace(KEYLESS, answer="Dues are paid by the slip."),
        replace(RIGHT, answer=AnswerVerdict(relevance=0.05, grounded=0.7)),
    ),
    "undecided": (replace(TRACE, answer="It stays open for 2 hours."), replace(RIGHT, claim=())),
}


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_named_where_the_record_shows_it(name: CauseName):
    """The cause, and the stage that the table gives it."""
    cause = look(*CASES[name])
    assert (cause.rating.outcome, cause.cause, cause.stage) == ("bad", name, CAUSES[name].stage)


STATED = "On Monday Marten Oy opens the tide gate at 05:40."


@pytest.mark.parametrize("support", ["unsupported", "supported"])
@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("On Monday Marten Oy opens the tide gate at 06:40.", "contradicted"),
        ("On Friday Marten Oy opens the tide gate at 05:40.", "contradicted"),
        ("On Monday Iska Dahl opens the tide gate at 05:40.", "contradicted"),
        ("On Monday Marten Oy does not open the tide gate at 05:40.", "contradicted"),
        ("The tide gate was painted by Iska Dahl.", "other"),
        (STATED, "other"),
    ],
)
def test_a_changed_value_contradicts_and_what_no_sentence_is_about_does_not(answer: str, name: str, support: str):
    """Whatever kind of value was changed, and whether the judge doubts the claim or only the key tells that it is bad.

    The chunk says another value in the same statement. A claim that stands in it word for word cannot contradict it.
    """
    trace = replace(
        TRACE, chunks=(replace(SHOWN, text=STATED), OTHER), answer=answer, reference="Hedda Lund, on Sunday at 11:15."
    )
    claim = ClaimVerdict(claim=answer, start=0, end=len(answer), support=support, p=0.3)
    cause = look(trace, replace(RIGHT, claim=(claim,)))
    assert cause.rating.outcome == "bad"
    assert (cause.cause == "contradicted") == (name == "contradicted")
    if name == "contradicted":
        assert (cause.chunk, cause.quote) == ("tide", answer)
    elif support == "unsupported":
        assert cause.cause == "invented"


PARTLY = replace(TRACE, chunks=(SHOWN, OTHER), answer="It opens at 09:15.", gold=Gold(chunks={"tide": 1, "hours": 1}))
COVERED = RecallVerdict(statement="At 05:40.", covered=True)


def test_a_missed_part_of_the_gold_is_not_retrieved_if_no_chunk_states_it():
    """If half of the gold was shown, retrieval is to blame only for what the reference states beyond it."""
    lacking = replace(COVERED, statement="It stays open for two hours.", covered=False)
    missed = look(PARTLY, replace(INVENTED, recall=(COVERED, lacking)))
    assert (missed.cause, missed.quote) == ("not_retrieved", lacking.statement)
    assert look(PARTLY, replace(INVENTED, recall=(COVERED,))).stage == "generation"


def test_a_claim_that_the_judge_is_unsure_of_accuses_no_source():
    """A false claim is a fault of the source only if a passage says it for sure; else it is invented."""
    trace, seen = CASES["wrong_source"]
    doubted = replace(CITED, support="inferred", p=0.51, unsure=True)
    assert look(trace, seen).cause == "wrong_source"
    assert look(trace, replace(seen, claim=(doubted,))).cause == "invented"
    assert look(trace, replace(seen, claim=(replace(doubted, evidence=()),))).cause == "invented"


def test_a_judge_that_reads_contradictions_is_believed_on_what_it_calls_unsupported():
    """The nearest sentence makes a contradiction of an unsupported claim only of a judge of words."""
    trace = replace(KEYLESS, answer="The tide gate opens at 07:15.")
    seen = replace(INVENTED, claim=(replace(INVENTED.claim[0], claim=trace.answer),))
    assert look(trace, replace(seen, judge="embedded/7")).cause == "contradicted"
    assert look(trace, replace(seen, judge="encoder/4 weights=0")).cause == "invented"


@pytest.mark.parametrize(("agreement", "outcome"), [(0.97, "right"), (0.62, "right"), (0.22, "bad"), (0.02, "bad")])
def test_an_answer_that_is_read_beside_its_key_is_bad_as_probably_as_it_differs(agreement: float, outcome: str):
    """The rating by the key has the probability of the judge that reads both."""
    trace = replace(TRACE, answer="It opens before six.")
    rating = look(trace, replace(RIGHT, answer=replace(RIGHT.answer, agreement=agreement))).rating
    assert (rating.source, rating.outcome) == ("answer key", outcome)
    assert rating.probability == pytest.approx(1 - agreement)


def test_every_cause_has_a_case():
    """So that none is in the table that no record can show."""
    assert set(CASES) == set(CAUSES)


def test_a_right_answer_has_no_cause():
    """By the key, and by the judge where there is no key."""
    for trace in (TRACE, KEYLESS):
        cause = look(trace)
        assert (cause.rating.outcome, cause.cause) == ("right", None)


def test_the_key_outranks_the_judge():
    """An answer that states the reference is right although the judge finds no support."""
    cause = look(TRACE, FALSE)
    assert (cause.rating.outcome, cause.rating.source) == ("right", "answer key")


def test_what_follows_from_an_earlier_stage_is_not_its_own_cause():
    """An answer invented because the passage was not retrieved: not retrieved."""
    assert look(replace(MISSED, answer="At 09:15."), INVENTED).cause == "not_retrieved"


def test_a_refusal_is_right_where_the_corpus_has_no_answer():
    """An unanswerable query: right; the passage not retrieved: bad."""
    unanswerable = replace(KEYLESS, answerable=False, answer="I do not know.")
    assert look(unanswerable, REFUSED).rating.outcome == "right"


@pytest.mark.parametrize(("grounded", "outcomes"), [(0.2, ("bad", "unsure")), (0.5, ("unsure", "unsure")),
                                                    (0.8, ("unsure", "right"))])  # fmt: skip
def test_an_answer_is_bad_or_right_only_if_its_claims_and_its_probability_agree(
    grounded: float, outcomes: tuple[str, str]
):
    """An unsupported claim in an answer that is probably supported does not make it bad, and keeps it from right."""
    for seen, outcome in zip((INVENTED, RIGHT), outcomes, strict=True):
        judged = replace(seen, answer=AnswerVerdict(relevance=0.9, grounded=grounded))
        assert look(KEYLESS, judged).rating.outcome == outcome


def test_a_refusal_without_a_key_is_unsure():
    """The judge's word that the chunks cover the query is too little; gold or covered references are enough."""
    refusal = replace(KEYLESS, answer="I do not know.")
    unsure = look(refusal, REFUSED).rating
    assert (unsure.outcome, unsure.refused) == ("unsure", True)
    shown = replace(REFUSED, recall=(RecallVerdict(statement="It opens at 05:40.", covered=True),))
    assert look(replace(refusal, reference="It opens at 05:40."), shown).rating.outcome == "bad"


LEAKED = (
    "Okay, the user wants to know when the gate opens. Chunk 1 has the opening hours. Chunk 2 is about prices, so I "
    "can ignore it. Let me write this up. Draft:",
    "We need to answer the question about the gate. The context says it opens at nine, but the notice in chunk 3 says "
    "ten in winter. Hmm, which one applies? The user doesn't give a date. I should mention both.",
)


@pytest.mark.parametrize("leaked", LEAKED)
def test_leaked_reasoning_without_a_tag_is_no_answer(leaked: str):
    """Thinking about the task is bad in place of an answer, and one with an answer after it is judged by that."""
    assert look(replace(TRACE, answer=leaked)).cause == "not_an_answer"
    assert look(replace(TRACE, answer=f"{leaked}\n\n{TRACE.answer}")).cause != "not_an_answer"


def test_reasoning_that_never_ends_is_no_answer():
    """A reply that was cut within its reasoning."""
    assert look(replace(TRACE, answer="<think>The user asks when the gate opens. Let me see")).cause == "not_an_answer"


def test_the_causes_sum_to_the_bad_answers():
    """However many answers there are of each; nothing is counted twice."""
    causes = [look(*case) for case in CASES.values()] + [look(TRACE)] * 3
    counts = count_causes(causes)
    assert (counts.right, counts.bad, counts.total) == (3, len(CASES), len(CASES) + 3)
    assert sum(cause.answers for cause in counts.causes) == counts.bad
    assert counts.causes[-1].cause == "undecided"
    assert counts.share is not None
    assert counts.share.low < counts.bad / counts.total < counts.share.high


def test_a_cause_chooses_the_same_traces_for_every_command(tmp_path, capsys):
    """`diagnose`, `promote` and the counts of the run name the same bad answers; an unknown cause is an error."""
    chunk = (Chunk(id="dues", text="Harbour dues are paid at the office by the slip."),)
    traces = [
        Trace(id=f"{n}", query=f"When does tide gate {n} open?", chunks=chunk, answer="", gold=Gold(chunks={"tide": 1}))
        for n in range(4)
    ]
    run = evaluate(traces, tmp_path / "run", judge=LEXICAL)
    ids = {cause.trace for cause in select_causes(run, ["blank"])}
    assert ids == {trace.id for trace in traces}
    place, cases = str(tmp_path / "run"), str(tmp_path / "cases.jsonl")
    assert run_command(["diagnose", place, "--cause", "blank", "--worst", "4", "--json"]) == 0
    assert {item["trace"] for item in json.loads(capsys.readouterr().out)} == ids
    assert run_command(["promote", place, "--cause", "blank", "-o", cases, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == len(ids)
    for wrong in ("refused", "no-such-cause"):
        assert run_command(["promote", place, "--cause", wrong, "-o", cases]) == 2
    with pytest.raises(UsageError):
        select_causes(run, ["refused"])


COMPLETE = "The tide gate, of which the harbour master is in charge, opens at 05:40."
CUT = "The tide gate, of which the harbour master is in charge, opens at"


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "max_output_tokens"])
def test_a_recorded_token_limit_cuts_an_answer_whatever_it_ends_with(reason):
    """That is a fact of the record, so it comes before a passage that was not retrieved; a right answer stays right."""
    cause = look(replace(KEYLESS, answer=COMPLETE, finish_reason=reason))
    assert (cause.rating.outcome, cause.rating.source, cause.cause) == ("bad", "pipeline", "cut_off")
    assert look(replace(MISSED, answer="The gate opens at 06:10.", finish_reason=reason), FALSE).cause == "cut_off"
    assert look(replace(TRACE, finish_reason=reason)).rating.outcome == "right"


def test_an_answer_whose_model_stopped_by_itself_is_not_cut_off():
    """What the service says goes before punctuation, from which a cut is guessed if nothing is recorded."""
    trace = replace(TRACE, answer=CUT, finish_reason="stop")
    assert look(trace).cause != "cut_off"
    assert look(replace(trace, finish_reason=None)).cause == "cut_off"


@pytest.mark.parametrize("answer", [None, "", "I am not able to help with that."])
def test_an_answer_that_a_content_filter_stopped_names_the_filter(answer):
    """Nothing of it, nothing at all, or what the service said in place of it."""
    cause = look(replace(KEYLESS, answer=answer, finish_reason="content_filter"), REFUSED)
    assert (cause.rating.outcome, cause.stage) == ("bad", "pipeline")
    assert "content filter" in cause.reason


@pytest.mark.parametrize(("reference", "outcome"), [("At 05:40.", "bad"), ("The passages do not say.", "unsure")])
def test_a_refusal_is_bad_where_the_reference_has_an_answer(reference: str, outcome: str):
    """Who asked did not get it, whatever was retrieved; a reference that refuses as well is no such answer."""
    trace = replace(KEYLESS, reference=reference, answer="I do not know.")
    verdicts = replace(REFUSED, answer=AnswerVerdict(relevance=None, refused=True, agreement=0.05))
    assert look(trace, verdicts).rating.outcome == outcome


def test_an_answer_without_a_number_of_its_key_is_not_right_by_its_chunks():
    """Chunks that support what it says tell nothing of what it lacks; without that number in the key they decide."""
    reading = replace(RIGHT, answer=replace(RIGHT.answer, agreement=0.4))
    trace = replace(KEYLESS, answer="It opens early.", reference="It opens at 05:40.")
    assert look(trace, reading).rating.outcome == "unsure"
    assert look(replace(trace, reference="In the early morning."), reading).rating.outcome == "right"


@pytest.mark.parametrize(
    ("query", "cause"),
    [(TRACE.query, "other_language"), ("Wann ist das Tor auf?", "invented"), ("Gezeitentor", "invented")],
)
def test_an_answer_is_in_another_language_only_if_the_query_shows_its_own(query: str, cause: str):
    """An answer in the language of a query, or to one of a few words, is not a fault of the pipeline."""
    german = "Das Tor ist nicht vor der Flut und auch nicht nach der Ebbe auf."
    claim = replace(INVENTED.claim[0], claim=german, end=len(german))
    assert look(replace(KEYLESS, query=query, answer=german), replace(INVENTED, claim=(claim,))).cause == cause


def test_an_answer_to_another_question_accuses_no_source():
    """What a passage says is not wrong because the key, on what was asked, says something else."""
    claim = replace(CITED, claim=OTHER.text, evidence=(Evidence("dues", 0, len(OTHER.text)),))
    verdicts = replace(
        RIGHT,
        claim=(claim,),
        truth=(TruthVerdict(claim=OTHER.text, status="contradicted"),),
        answer=AnswerVerdict(relevance=0.1, grounded=0.95, agreement=0.05),
    )
    trace = replace(TRACE, answer=OTHER.text)
    assert look(trace, verdicts).cause == "off_topic"
    assert look(trace, replace(verdicts, answer=replace(verdicts.answer, relevance=0.9))).cause == "wrong_source"


def test_what_cannot_be_answered_has_no_fault_of_retrieval():
    """However the passages differ from what was asked."""
    trace, verdicts = CASES["wrong_entity"]
    asked = replace(trace, gold=None, reference=None, answerable=False)
    assert look(asked, verdicts).cause == "answered_unanswerable"


def test_an_answer_that_is_wrong_though_the_key_supports_its_claims_leaves_something_out():
    """Nothing else can be wrong with it; a part of a sentence that was shown does not contradict the sentence."""
    answer = "The tide gate opens at 05:40."
    reading = AnswerVerdict(relevance=0.9, grounded=0.95, agreement=0.1)
    verdicts = replace(RIGHT, answer=reading, truth=(TruthVerdict(claim=answer, status="supported"),))
    trace = replace(TRACE, answer=answer, reference="At 05:40, and it stays open until 07:40.")
    assert look(trace, verdicts).cause == "left_out"


def test_a_searched_text_is_at_fault_only_if_it_lost_the_passage():
    """The passage was missed in both cases; the chunks of the run tell whether the search asked for it."""
    trace, _ = CASES["history_ignored"]
    assert look(trace, REFUSED).cause == "not_retrieved"
    alone = replace(trace, history=None)
    assert look(alone, LOST).cause == "not_retrieved"
    rewritten = replace(trace, steps=(Step(id="s1", kind="rewrite", output="the Hollin Gate"),))
    assert look(rewritten, LOST).cause == "query_changed"


def test_a_right_refusal_invents_nothing():
    """What it advises in place of an answer is not counted as a cost."""
    trace = replace(KEYLESS, answerable=False, answer="I do not know. Please ask the harbour office.")
    claim = ClaimVerdict(claim="Please ask the harbour office.", start=15, end=45, support="unsupported", p=0.1)
    cause = look(trace, replace(REFUSED, claim=(claim,)))
    assert (cause.rating.outcome, cause.costs) == ("right", ())


def test_a_source_is_not_wrong_where_a_chunk_says_what_the_key_says():
    trace, verdicts = CASES["wrong_source"]
    shown = replace(verdicts, recall=(RecallVerdict(statement="At 06:10.", covered=True),))
    assert look(trace, shown).stage == "generation"
    assert look(trace, replace(shown, recall=(RecallVerdict(statement="At 06:10.", covered=False),))).stage == "source"


@pytest.mark.parametrize(("agreement", "outcome"), [(0.3, "bad"), (0.5, "unsure")])
def test_the_key_decides_where_the_passage_was_not_retrieved(agreement: float, outcome: str):
    verdicts = replace(RIGHT, answer=replace(RIGHT.answer, agreement=agreement))
    assert look(replace(MISSED, reference="By the keeper's clock."), verdicts).rating.outcome == outcome


def test_a_follow_up_without_recorded_steps_was_searched_as_it_stands():
    trace, verdicts = CASES["history_ignored"]
    silent = look(replace(trace, steps=None), verdicts)
    assert silent.cause == "history_ignored"
    assert silent.probability < look(trace, verdicts).probability


@pytest.mark.parametrize(
    ("shown", "elsewhere", "outcome", "cause"),
    [(0.9, 0.05, "bad", "refused"), (0.05, 0.9, "bad", "not_retrieved"), (0.05, 0.05, "unsure", None)],
)
def test_a_refusal_without_a_key_is_bad_where_some_chunk_of_the_run_holds_the_passage(
    shown: float, elsewhere: float, outcome: str, cause: str | None
):
    """That no chunk does is no proof that the corpus lacks it: it may be lost for all queries."""
    place = PassagePlace(shown=shown, elsewhere=elsewhere, chunk="tide" if elsewhere > 0.5 else None)
    cause_of = look(replace(KEYLESS, answer="I do not know."), replace(REFUSED, place=place))
    assert (cause_of.rating.outcome, cause_of.cause) == (outcome, cause)


def test_an_answer_from_chunks_without_the_passage_is_bad_though_they_support_it():
    place = PassagePlace(shown=0.01, elsewhere=0.98, chunk="tide", quote=SHOWN.text)
    trace = replace(KEYLESS, chunks=(OTHER,))
    cause_of = look(trace, replace(RIGHT, place=place))
    assert (cause_of.rating.outcome, cause_of.cause, cause_of.chunk) == ("bad", "not_retrieved", "tide")


def test_an_answer_beside_a_reference_that_refuses_should_have_refused():
    trace = replace(TRACE, gold=None, reference="The documents do not say.")
    verdicts = replace(INVENTED, answer=replace(BASELESS, agreement=0.05))
    assert look(trace, verdicts).cause == "answered_unanswerable"


def test_a_source_is_wrong_by_exclusion_where_its_passage_supports_what_the_key_calls_wrong():
    uncovered = (RecallVerdict(statement="At 06:10.", covered=False),)
    verdicts = replace(RIGHT, claim=(CITED,), recall=uncovered, answer=replace(RIGHT.answer, agreement=0.1))
    assert look(replace(TRACE, reference="At 06:10."), verdicts).cause == "wrong_source"
    invented = replace(verdicts, claim=(replace(CITED, support="unsupported", p=0.1),))
    assert look(replace(TRACE, reference="At 06:10."), invented).stage == "generation"


@pytest.mark.parametrize(
    "answer",
    [
        "Look at section 2 of the form. It asks for the user's name. I would write the full name there.",
        "The prompt must name the language. Chunk 1 is read first. The model then answers in one sentence.",
        "The context window is 8,000 tokens. The question should come last. We should check the answer.",
    ],
)
def test_an_answer_about_prompts_and_users_is_no_leaked_reasoning(answer: str):
    text = (
        "A user writes the full name in section 2 of the form. The prompt names the language; chunk 1 is read first, "
        "and the model answers in one sentence. Check that the question is last in the context window of 8,000 tokens."
    )
    trace = replace(TRACE, query="How is a prompt built?", chunks=(Chunk(id="guide", text=text),), answer=answer)
    assert look(trace).cause != "not_an_answer"


@pytest.mark.parametrize(
    "answer",
    [
        "The request could not be processed: rate limit exceeded (429).",
        "Unfortunately your request was blocked by the safety filter.",
        '{"error": {"code": 500, "message": "internal server error"}}',
        "Die Anfrage hat zu lange gedauert. Bitte versuchen Sie es später erneut.",
    ],
)
def test_a_message_of_the_system_is_no_answer_unless_it_was_asked_for(answer: str):
    assert look(replace(TRACE, answer=answer)).cause == "not_an_answer"
    assert look(replace(TRACE, query=f"What does this mean: {answer}", answer=answer)).cause != "not_an_answer"


@pytest.mark.parametrize(
    ("reference", "outcome"),
    [
        ("Das Tor ist nicht vor der Flut und auch nicht nach der Ebbe offen.", "right"),
        ("The gate is open neither before high tide nor after low tide.", "bad"),
    ],
)
def test_the_reference_shows_which_language_was_expected(reference: str, outcome: str):
    answer = "Das Tor ist nicht vor der Flut und auch nicht nach der Ebbe auf."
    verdicts = replace(RIGHT, answer=AnswerVerdict(relevance=0.9, grounded=0.95, agreement=0.95))
    trace = replace(TRACE, query="When is the tide gate open? Please say it in German.", answer=answer)
    assert look(replace(trace, reference=reference), verdicts).rating.outcome == outcome
