"""How other runs of a question weigh on whether a step is faulty."""

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.diagnosis.steps.agreement import MAX_OTHERS, Agreement, measure_agreements
from ragfault.diagnosis.steps.localization import localize_faulty_steps
from ragfault.diagnosis.steps.model import OUTCOMES, load_step_model, weigh_agreement
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
        Agreement(2, 3, True),
        Agreement(2, 3, True),
        Agreement(2, 3, True),
        Agreement(0, 3, True),
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


@pytest.mark.parametrize("others", [1, 2, 3, 4])
def test_an_answer_that_all_others_give_lowers_the_probability_of_a_fault(others: int):
    posterior = np.array([0.3, 0.3, 0.4])
    weighed = weigh_agreement(posterior, Agreement(others, others, others > 1), load_step_model("search").agreement)
    assert weighed[-1] > posterior[-1]
    assert weighed.sum() == pytest.approx(1)


def test_an_answer_that_no_other_gives_speaks_for_a_fault_only_where_the_others_agree():
    posterior, shapes = np.array([0.3, 0.3, 0.4]), load_step_model("search").agreement
    assert weigh_agreement(posterior, Agreement(0, 4, True), shapes)[-1] < 0.4
    assert weigh_agreement(posterior, Agreement(0, 4, False), shapes)[-1] == pytest.approx(0.4)


def test_agreement_has_a_threshold_of_its_own():
    assert load_step_model("search").thresholds.shape == (len(OUTCOMES),)


def test_what_others_answer_is_counted_where_no_reference_is_given():
    runs = [build_run("a", "Ostrey"), build_run("b", "Ostrey"), build_run("c", "Tolm")]
    findings = localize_faulty_steps(runs)
    assert [(f.outcome, f.same_answers, f.other_runs) for f in findings.traces] == [
        ("compared", 1, 2),
        ("compared", 1, 2),
        ("compared", 0, 2),
    ]
    assert "1 of 2 other runs give its answer" in " ".join(render_terminal(build_steps(findings, worst=3)).split())
    outcomes = [f.outcome for f in localize_faulty_steps([replace(run, reference="Ostrey") for run in runs]).traces]
    assert outcomes == ["right", "right", "differs"]
    assert {f.outcome for f in localize_faulty_steps(runs, failed=True).traces} == {"failed"}
    assert {f.outcome for f in localize_faulty_steps(runs, compared=True).traces} == {"unknown"}
