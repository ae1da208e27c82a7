"""How other runs of a question weigh on whether a step is faulty."""

import pytest
from msgspec.structs import replace

from ragfault.diagnosis.steps.agreement import MAX_OTHERS, Agreement, measure_agreements
from ragfault.diagnosis.steps.localization import localize_faulty_steps
from ragfault.model.records import Step, Trace
from ragfault.report.builders.steps import build_steps
from ragfault.report.renderers.terminal import render_terminal

QUERY = "Which town lies at the mouth of the Varn?"


def build_run(name: str, answer: str, **fields) -> Trace:
    steps = (
        Step(id="1", kind="plan", input=f"mouth of the Varn {name}"),
        Step(id="2", kind="tool", parent="1", input="Varn", output=f"{name}: the Varn ends at {answer}"),
        Step(id="3", kind="generate", output=f"<answer>{answer}</answer>"),
    )
    return Trace(id=name, query=QUERY, answer=answer, steps=steps, **fields)


def measure(*answers: str, **fields) -> list[Agreement | None]:
    return [*measure_agreements([build_run(str(n), answer, **fields) for n, answer in enumerate(answers)])]


def test_answers_in_other_words_agree_and_others_do_not():
    assert measure("Ostrey", "It is Ostrey.", "Ostrey, a town", "Tolm") == [
        Agreement(2, 3),
        Agreement(2, 3),
        Agreement(2, 3),
        Agreement(0, 3),
    ]


def test_a_question_that_is_run_once_has_no_agreement():
    assert measure("Ostrey") == [None]


def test_refusals_agree_with_nothing():
    assert [agreement.same for agreement in measure("I cannot find it.", "I cannot find it.", "Ostrey")] == [0, 0, 0]


@pytest.mark.parametrize("fields", [{"conversation": "c"}, {"history": ()}])
def test_a_question_of_a_conversation_is_compared_only_without_what_came_before_it(fields: dict):
    assert (measure("Ostrey", "Tolm", **fields)[0] is None) == ("conversation" in fields)


def test_a_copy_of_a_run_is_no_further_run():
    run = build_run("a", "Ostrey")
    assert list(measure_agreements([run, replace(run, id="b"), replace(run, id="c")])) == [None] * 3


def test_a_run_is_compared_with_a_bounded_number_of_others():
    assert {agreement.others for agreement in measure(*["Ostrey"] * 50)} == {MAX_OTHERS}


@pytest.mark.parametrize(("answers", "status"), [("OO", "no fault"), ("OOT", "no fault"), ("TOO", "fault")])
def test_an_answer_that_another_run_gives_has_no_faulty_step_and_one_that_none_of_several_gives_has(answers, status):
    words = {"O": "Ostrey", "T": "Tolm"}
    runs = [build_run(str(n), words[answer]) for n, answer in enumerate(answers)]
    assert localize_faulty_steps(runs).traces[0].status == status


def test_two_runs_that_differ_leave_open_which_one_is_wrong():
    statuses = [f.status for f in localize_faulty_steps([build_run("a", "Ostrey"), build_run("b", "Tolm")]).traces]
    assert statuses == ["cannot tell", "cannot tell"]


def test_what_others_answer_is_counted_where_no_reference_is_given():
    runs = [build_run("a", "Ostrey"), build_run("b", "Ostrey"), build_run("c", "Tolm")]
    findings = localize_faulty_steps(runs)
    assert [(f.outcome, f.same_answers, f.other_runs) for f in findings.traces] == [
        ("compared", 1, 2),
        ("compared", 1, 2),
        ("compared", 0, 2),
    ]
    assert "0 of 2 other runs give its answer" in " ".join(render_terminal(build_steps(findings, worst=3)).split())
    outcomes = [f.outcome for f in localize_faulty_steps([replace(run, reference="Ostrey") for run in runs]).traces]
    assert outcomes == ["right", "right", "differs"]
    assert {f.outcome for f in localize_faulty_steps(runs, failed=True).traces} == {"failed"}
    assert {f.outcome for f in localize_faulty_steps(runs, compared=True).traces} == {"unknown"}
