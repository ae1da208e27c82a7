"""The first step at which two traces of one query differ."""

from msgspec.structs import replace

from ragfault.diagnosis.steps.differences import find_first_difference
from ragfault.model.records import Step, Trace

STEPS = (
    Step(id="1", kind="rewrite", input="And on Sunday?", output="When does the ferry leave on Sunday?"),
    Step(id="2", kind="plan", output="Let me search."),
    Step(id="3", kind="retrieve", parent="2", input="When does the ferry leave on Sunday?", chunks=("a", "b", "c")),
    Step(id="4", kind="generate", output="The ferry leaves at 10:30 on Sunday."),
)


def first(**changes) -> str | None:
    """Return the kind of the first difference after some steps were changed, by their ids."""
    new = tuple(replace(step, **changes.get(f"s{step.id}", {})) for step in STEPS)
    step = find_first_difference(
        Trace(id="t", query="q", steps=STEPS), Trace(id="t", query="q", steps=tuple(s for s in new if s.kind))
    )
    return step and step.kind


def test_wording_thoughts_and_near_ties_are_no_difference():
    assert first(s2={"output": "I need the timetable."}, s3={"chunks": ("a", "c", "b")}) is None
    assert first(s4={"output": "On Sunday the ferry leaves at 10:30."}) is None


def test_the_first_of_several_differences_counts():
    assert first(s1={"output": "boats"}, s3={"chunks": ("x",)}, s4={"output": "No."}) == "rewrite"


def test_another_number_is_another_answer():
    assert first(s4={"output": "The ferry leaves at 11:30 on Sunday."}) == "generate"


def test_another_call_or_another_input_of_a_call_is_the_plans():
    assert first(s3={"input": "weather in Port Halden"}) == "plan"
    assert first(s3={"name": "weather", "kind": "tool"}) == "plan"


def test_other_chunks_and_a_failure_are_the_retrievals():
    assert first(s3={"chunks": ("x", "y", "z")}) == "retrieve"
    assert first(s3={"chunks": (), "error": "timeout"}) == "retrieve"


def test_a_call_that_is_left_out_is_the_plans():
    shorter = Trace(id="t", query="q", steps=(STEPS[0], STEPS[1], STEPS[3]))
    assert find_first_difference(Trace(id="t", query="q", steps=STEPS), shorter).kind == "plan"
