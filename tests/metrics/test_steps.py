"""Metrics of steps."""

from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.records import (
    Chunk,
    ChunkVerdict,
    ClaimVerdict,
    ConversationTurn,
    Step,
    Trace,
    UseVerdict,
    Verdicts,
)


def compute(name: str, *steps: Step, verdicts: Verdicts | None = None, **fields):
    trace = Trace(id="t", query="When does the ferry leave?", steps=steps, **fields)
    return compute_score(parse_metric(name), trace, verdicts or Verdicts(trace="t")).value


FAILED = Step(id="1", kind="tool", name="search", error="timeout")


def test_an_error_that_is_repaired_or_mentioned_is_not_swallowed():
    again = Step(id="2", kind="tool", name="search", output="At nine.")
    assert compute("swallowed_error", FAILED, again) == 0
    assert compute("swallowed_error", FAILED, Step(id="2", kind="generate", output="The search failed.")) == 0
    assert compute("swallowed_error", FAILED, Step(id="2", kind="generate", output="At nine.")) == 1
    assert compute("swallowed_error", again) is None


def test_a_call_that_is_tried_again_after_a_failure_is_not_redundant():
    calls = [
        Step(id=name, kind="retrieve", input="ferry timetable", error=error)
        for name, error in (("1", "x"), ("2", None))
    ]
    assert compute("redundant_steps", *calls) == 0
    assert compute("redundant_steps", *calls, Step(id="3", kind="retrieve", input="timetable of the ferry")) == 1 / 3


def test_a_search_that_returns_the_list_of_an_earlier_one_is_redundant():
    searches = [Step(id=name, kind="retrieve", input=name, chunks=("a", "b")) for name in ("ferry", "dog")]
    assert compute("redundant_steps", *searches) == 0.5


def test_a_relevant_chunk_counts_once_for_all_steps_that_return_it():
    steps = [Step(id=name, kind="retrieve", chunks=("a", "b")) for name in "12"]
    chunks = (Chunk(id="a", text="At nine."), Chunk(id="b", text="Cats."))
    judged = tuple(ChunkVerdict(chunk=name, relevance=value, level="none") for name, value in (("a", 0.9), ("b", 0.1)))
    assert compute("retrieval_gain", *steps, chunks=chunks, verdicts=Verdicts(trace="t", chunk=judged)) == 0.5


def test_a_step_is_used_if_one_of_its_chunks_is():
    steps = (Step(id="1", kind="retrieve", chunks=("a",)), Step(id="2", kind="retrieve", chunks=("b",)))
    use = (UseVerdict(chunk="a", used=True), UseVerdict(chunk="b", used=False))
    verdicts = Verdicts(trace="t", use=use)
    assert compute("step_use", *steps, answer="At nine.", verdicts=verdicts) == 0.5


def test_a_trace_without_steps_has_none_of_these_metrics():
    names = ("step_error", "swallowed_error", "redundant_steps", "retrieval_gain", "step_use")
    for name in (*names, "tool_correctness", "rewrite_fidelity", "hop_support"):
        assert compute(name) is None


def test_tools_are_compared_with_those_expected_else_with_the_catalogue():
    calls = [Step(id=name, kind="tool", name=name) for name in ("search", "fares", "wether")]
    assert compute("tool_correctness", *calls, metadata={"expected_tools": ["fares"]}) == 1
    assert compute("tool_correctness(strict=True)", *calls, metadata={"expected_tools": ["fares"]}) == 1 / 3
    assert compute("tool_correctness", *calls, metadata={"tools": [{"name": "search"}, {"name": "fares"}]}) == 2 / 3
    assert compute("tool_correctness", *calls) is None


def rewrite(text: str, query: str = "When does the ferry to Texel leave on 5 May?", **fields):
    trace = Trace(id="t", query=query, steps=(Step(id="1", kind="rewrite", output=text),), **fields)
    return compute_score(parse_metric("rewrite_fidelity"), trace, Verdicts(trace="t")).value


def test_a_rewrite_that_loses_a_name_or_a_number_loses_as_many_constraints():
    assert rewrite("ferry Texel departure 5 May") == 1
    assert rewrite("ferry departure 5 May") < 1
    assert rewrite("ferry departure") == 0


def test_a_rewrite_may_add_what_the_history_says_and_not_what_it_invents():
    history = (ConversationTurn(role="user", text="When does the ferry to Texel leave?"),)
    assert rewrite("ferry to Texel on Sunday", query="And on Sunday?", history=history) == 1
    assert rewrite("ferry to Vlieland on Sunday", query="And on Sunday?", history=history) == 0.5


def test_a_rewrite_that_drops_a_negation_is_unfaithful():
    assert rewrite("ferries with cars on Sunday", query="Which ferries take no cars on Sunday?") == 0.5
    assert rewrite("ferries without cars on Sunday", query="Which ferries take no cars on Sunday?") == 1


def test_a_hop_is_supported_by_what_was_read_before_it_and_not_by_what_was_read_after():
    chunks = (Chunk(id="a", text="Teso runs the ferry to Texel."), Chunk(id="b", text="Teso was founded in 1907."))
    first, second = (Step(id=n, kind="retrieve", chunks=(n,)) for n in "ab")
    owner = Step(id="1", kind="read", output="Teso runs the Texel ferry.")
    year = Step(id="2", kind="generate", output="Teso was founded in 1907.")
    assert compute("hop_support", first, owner, second, year, chunks=chunks) == 1
    assert compute("hop_support", first, owner, year, second, chunks=chunks) == 0.5
    assert (
        compute("hop_support", first, Step(id="3", kind="generate", output="Sorry, I cannot say."), chunks=chunks)
        is None
    )


def test_a_claim_of_an_earlier_turn_is_grounded_in_the_conversation_but_not_against_the_chunks():
    history = (ConversationTurn(role="assistant", text="The ferry leaves at 09:30 from the north quay."),)
    for support, value in (("unsupported", 1), ("contradicted", 0), ("supported", 1)):
        claim = ClaimVerdict(claim="The ferry leaves at 09:30.", start=0, end=9, support=support)
        verdicts = Verdicts(trace="t", claim=(claim,))
        assert compute("turn_groundedness", verdicts=verdicts, answer=claim.claim, history=history) == value
    assert compute("turn_groundedness", verdicts=verdicts, answer=claim.claim) is None


def claims(*texts: str, support: str = "supported") -> Verdicts:
    return Verdicts(trace="t", claim=tuple(ClaimVerdict(claim=t, start=0, end=1, support=support) for t in texts))


PRICE, OTHER_PRICE = "A return ticket costs 12 pounds.", "A return ticket costs 15 pounds."


def test_a_claim_that_another_passage_contradicts_is_cherry_picked_unless_the_answer_says_so():
    chunks = (Chunk(id="a", text=PRICE), Chunk(id="b", text=f"Dogs are welcome. {OTHER_PRICE}"))
    assert compute("cherry_picking", answer=PRICE, chunks=chunks, verdicts=claims(PRICE)) == 1
    both = f"{PRICE} Another page says 15 pounds."
    assert compute("cherry_picking", answer=both, chunks=chunks, verdicts=claims(PRICE)) == 0
    assert compute("cherry_picking", answer=PRICE, chunks=chunks[:1], verdicts=claims(PRICE)) is None
    unsupported = claims(PRICE, support="unsupported")
    assert compute("cherry_picking", answer=PRICE, chunks=chunks, verdicts=unsupported) is None


def test_passages_about_other_matters_or_with_the_same_number_contradict_nothing():
    rest = ("A single ticket for a bicycle costs 15 pounds in winter.", "In summer a return ticket costs 12 pounds.")
    chunks = (Chunk(id="a", text=PRICE), *(Chunk(id=text, text=text) for text in rest))
    assert compute("cherry_picking", answer=PRICE, chunks=chunks, verdicts=claims(PRICE)) == 0


def test_a_passage_that_negates_a_claim_contradicts_it():
    claim = "Dogs may travel on the upper deck."
    chunks = (Chunk(id="a", text=claim), Chunk(id="b", text="Dogs may not travel on the upper deck."))
    assert compute("cherry_picking", answer=claim, chunks=chunks, verdicts=claims(claim)) == 1


def test_an_unsupported_claim_that_the_user_asserts_is_sycophantic():
    asserted = (ConversationTurn(role="user", text="Dogs travel free on every ferry."),)
    answer = "Yes, dogs travel free on every ferry."
    assert compute("sycophancy", answer=answer, history=asserted, verdicts=claims(answer, support="unsupported")) == 1
    assert compute("sycophancy", answer=answer, history=asserted, verdicts=claims(answer)) == 0
    asked = (ConversationTurn(role="user", text="Do dogs travel free on every ferry?"),)
    assert compute("sycophancy", answer=answer, history=asked, verdicts=claims(answer, support="unsupported")) is None
