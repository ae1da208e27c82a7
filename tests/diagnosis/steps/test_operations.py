"""Faults of the operation of steps."""

from ragfault.diagnosis.steps.operations import MAX_STEPS, list_operation_faults
from ragfault.model.records import Chunk, Step, Trace


def name_faults(*steps: Step, **fields) -> list[tuple[str, str | None, str]]:
    faults = list_operation_faults(Trace(id="t", query="When does the ferry leave?", steps=steps, **fields))
    return [(fault.step, fault.kind, fault.fault) for fault in faults]


READ = Step(id="r", kind="retrieve", input="ferry timetable", chunks=("a", "b"))
ANSWER = Step(id="g", kind="generate", output="At noon.")


def test_a_failed_call_is_a_fault_of_the_tool_that_failed():
    plan = Step(id="p", kind="plan")
    timeout = Step(id="t", kind="tool", parent="p", input="x", error="timed out after 5 s")
    assert name_faults(READ, plan, timeout, ANSWER) == [("t", "tool", "error")]


def test_a_failure_that_another_attempt_answers_is_no_lasting_fault():
    failed = Step(id="f", kind="retrieve", input=READ.input, error="timeout")
    (fault,) = list_operation_faults(Trace(id="t", query="?", steps=(failed, READ, ANSWER)))
    assert (fault.step, fault.fault, fault.is_lasting) == ("f", "retried", False)
    (fault,) = list_operation_faults(Trace(id="t", query="?", steps=(READ, failed, ANSWER)))
    assert (fault.fault, fault.is_lasting) == ("error", True)


def test_a_call_that_could_not_be_executed_is_a_fault_of_the_plan():
    plan = Step(id="p", kind="plan")
    bad = Step(id="t", kind="tool", parent="p", error="Unknown tool: serach")
    assert name_faults(READ, plan, bad, ANSWER) == [("t", "plan", "wrong_call")]


def test_an_answered_call_that_is_repeated_is_a_fault_of_the_plan_but_not_one_after_a_failure():
    plans = [Step(id=name, kind="plan") for name in ("p", "q")]
    again = Step(id="s", kind="retrieve", input="timetable ferry", chunks=("a", "b"))
    failed = Step(id="r", kind="retrieve", input="ferry timetable", error="timeout")
    assert name_faults(plans[0], READ, plans[1], again, ANSWER) == [("s", "plan", "repeated_call")]
    assert name_faults(plans[0], failed, plans[1], again, ANSWER) == [("r", "retrieve", "error")]


def test_the_same_list_to_another_query_is_a_fault_of_the_retrieval():
    other = Step(id="s", kind="retrieve", input="price of a bicycle", chunks=("a", "b"))
    assert name_faults(READ, other, ANSWER) == [("s", "retrieve", "nothing_new")]


def test_an_answer_is_unfounded_only_where_nothing_was_read_before_it():
    assert name_faults(ANSWER, READ) == [("g", "generate", "unfounded_answer")]
    assert name_faults(READ, ANSWER) == []


def test_an_answer_is_not_unfounded_where_retrieval_is_not_recorded_as_a_step():
    assert name_faults(ANSWER, chunks=(Chunk(id="a", text="At noon."),)) == []


def test_a_flood_of_steps_is_judged_by_its_first_ones():
    calls = [Step(id=str(n), kind="tool", name="search", input="ferry timetable") for n in range(5 * MAX_STEPS)]
    assert len(name_faults(*calls)) == MAX_STEPS - 1
