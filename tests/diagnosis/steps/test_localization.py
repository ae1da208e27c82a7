"""The first faulty step."""

import pytest
from msgspec.structs import replace

from ragfault.diagnosis.steps.localization import detect_outcome, localize_faulty_steps, localize_recorded_step
from ragfault.io.datasets.agent import SimulatedAgent, ToolFailure
from ragfault.model.records import Chunk, Step, Trace
from ragfault.report.builders.steps import build_steps
from ragfault.report.renderers.terminal import render_terminal

FERRY = Chunk(
    id="f", document="Ferry", text="The Marsdiep ferry is run by the company Teso, which was founded in 1907."
)
TESO = Chunk(
    id="t", document="Teso", text="Teso was founded in 1907 by the inhabitants of Texel. It runs the Marsdiep ferry."
)
REFERENCES: list[dict] = [{"reference": "1907"}, {}, {"reference": "1812"}]
QUERY = "In which year was the company that runs the Marsdiep ferry founded?"


def build_trace(*steps: Step, answer: str, **fields) -> Trace:
    last = Step(id="9", kind="generate", output=f"<answer>{answer}</answer>")
    return Trace(id="t", query=QUERY, answer=answer, chunks=(FERRY, TESO), steps=(*steps, last), **fields)


def search(name: str, query: str, *chunks: str) -> tuple[Step, Step]:
    call = Step(id=f"{name}r", parent=name, kind="retrieve", name="search", input=query, chunks=chunks)
    return Step(id=name, kind="plan", input=query), call


def localize(trace: Trace, **options):
    return localize_faulty_steps([trace], **options).traces[0]


def test_a_call_that_was_not_executed_is_the_first_fault():
    failed = (
        Step(id="1", kind="plan", output="search(Marsdiep ferry)"),
        Step(id="2", kind="tool", parent="1", error="No tool call"),
    )
    finding = localize(
        build_trace(*failed, *search("3", "company that runs the Marsdiep ferry", "f", "t"), answer="1907")
    )
    assert (finding.best.step, finding.best.fault, finding.best.layer) == ("1", "call_not_executed", "operation")


def test_a_search_that_timed_out_is_named_as_the_step_that_failed():
    """Its plan was executed: not the call was wrong, its search failed."""
    failed = (
        Step(id="1", kind="plan", output="search(Marsdiep ferry)"),
        Step(id="2", kind="retrieve", parent="1", error="timed out after 5 s"),
    )
    finding = localize(
        build_trace(*failed, *search("3", "company that runs the Marsdiep ferry", "f", "t"), answer="1907")
    )
    assert (finding.best.step, finding.best.fault, finding.best.layer) == ("1", "tool_failed", "operation")
    assert finding.best.evidence[0] == 'its retrieve step 2 failed ("timed out after 5 s"), and step 3 follows'


def test_an_answer_of_which_nothing_is_known_names_no_step():
    trace = build_trace(*search("1", "company that runs the Marsdiep ferry founded year", "f", "t"), answer="1907")
    assert localize(trace).best is None


def test_a_failed_trace_has_a_faulty_step():
    trace = build_trace(*search("1", "company that runs the Marsdiep ferry founded year", "f", "t"), answer="1907")
    finding = localize(trace, failed=True)
    assert (finding.status, finding.best.step) == ("fault", "9")


def test_an_answer_after_a_tool_that_returned_text_is_not_blamed_for_reading_nothing():
    """The text of a tool is read as the chunks of a search are."""
    looked_up = Step(id="2", kind="tool", parent="1", input="Teso", output=TESO.text)
    for steps, expected in (((Step(id="1", kind="plan"), looked_up), False), ((Step(id="1", kind="plan"),), True)):
        suspects = localize(build_trace(*steps, answer="1907"), failed=True).suspects
        texts = [text for suspect in suspects if suspect.step == "9" for text in suspect.evidence]
        assert any("no step before it records what was read" in text for text in texts) == expected


def test_a_reference_decides_whether_a_step_is_faulty():
    steps = search("1", "history of boats", "f")
    findings = [localize(build_trace(*steps, answer="1907", **fields)) for fields in REFERENCES]
    assert [(f.outcome, f.status) for f in findings] == [
        ("right", "no fault"),
        ("unknown", "cannot tell"),
        ("differs", "fault"),
    ]


@pytest.mark.parametrize(("error", "step"), [(None, "9"), ("timed out", "1")])
def test_the_first_step_that_failed_is_faulty_else_the_last_one(error: str | None, step: str):
    call = Step(id="1r", parent="1", kind="retrieve", input="Marsdiep", error=error)
    trace = build_trace(Step(id="1", kind="plan"), call, *search("3", "Teso", "f", "t"), answer="1907")
    assert localize(trace, failed=True).best.step == step


def test_the_suspects_of_a_fault_are_its_best_step_each_against_which_something_was_seen_and_the_last():
    failed = (Step(id="1", kind="plan"), Step(id="2", kind="tool", parent="1", error="timed out"))
    repeated = (*search("3", "Marsdiep ferry Teso", "f"), *search("5", "Marsdiep ferry Teso", "f"))
    suspects = localize(build_trace(*failed, *repeated, answer="1907"), failed=True).suspects
    assert [suspect.step for suspect in suspects] == ["1", "5", "9"]


def test_an_answer_in_other_words_does_not_differ_from_a_sentence():
    sentence = "The company that has run the ferry for a century goes back to the people of Texel."
    trace = Trace(id="t", query=QUERY, answer="1907", reference=sentence)
    assert detect_outcome(trace) == "unknown"
    assert detect_outcome(replace(trace, reference="1812")) == "differs"


def test_the_outcome_of_a_yes_no_question_is_its_first_word():
    trace = Trace(id="t", query="Is Texel an island?", answer="No, it has no bridge. Yes.", reference="yes")
    assert detect_outcome(trace) == "differs"


def test_a_team_without_a_known_outcome_is_undecided():
    steps = [
        Step(id=str(n), agent=name, output=text)
        for n, (name, text) in enumerate(
            [
                ("Planner", "Compute the sum of the invoices."),
                ("Coder", "```python\nprint(sum(x))\n```"),
                ("Planner", "The sum is 12."),
            ]
        )
    ]
    trace = Trace(id="t", query="What is the sum of the invoices?", steps=tuple(steps))
    assert localize(trace).status == "cannot tell"
    failed = localize(trace, failed=True)
    assert (failed.status, failed.best) == ("fault", None)


def test_traces_without_steps_or_without_content_are_counted():
    bare = Trace(id="a", query="?", steps=(Step(id="1", kind="retrieve"),))
    findings = localize_faulty_steps([Trace(id="b", query="?"), bare])
    assert (findings.without_steps, findings.traces) == (2, ())


def test_a_repeated_search_that_returns_nothing_new_is_reported():
    query = "company that runs the Marsdiep ferry"
    trace = build_trace(*search("1", query, "f"), *search("3", query, "f"), answer="unknown")
    suspects = localize(trace, failed=True).suspects
    assert "returns no new chunk" in " ".join(text for s in suspects if s.step == "3" for text in s.evidence) or all(
        suspect.step != "3" for suspect in suspects
    )


def test_a_flood_of_steps_is_not_judged():
    steps = [Step(id=str(n), kind="plan", output=f"search({n})") for n in range(5000)]
    finding = localize(Trace(id="t", query=QUERY, steps=tuple(steps)))
    assert (finding.status, finding.suspects) == ("cannot tell", ())


def test_a_well_rewriting_is_not_called_faulty():
    for trace in SimulatedAgent(5).answer_all():
        finding = localize_recorded_step(trace)
        assert finding.best is None or finding.best.kind != "rewrite"


def test_what_is_missing_to_tell_is_printed():
    findings = localize_faulty_steps([replace(trace, reference=None) for trace in SimulatedAgent(5).answer_all()[:3]])
    lines = render_terminal(build_steps(findings, worst=5)).splitlines()
    assert lines[1].startswith("3 traces: ")
    assert "references" in lines[1]


def test_amounts_and_dates_that_were_read_are_not_called_unmentioned():
    """What an answer takes from a step before it is mentioned there, in whatever form: £140.00, 1 April."""
    text = "A lift costs £85.00 for boats up to 8 metres and £140.00 above, from 1 April."
    read = (*search("1", "what does a lift cost", "l"), Step(id="8", kind="read", output=text))
    trace = build_trace(*read, answer=text, reference="£2.00")
    chunks = (*(trace.chunks or ()), Chunk(id="l", text=text))
    finding = localize(replace(trace, chunks=chunks), failed=True)
    assert not [text for suspect in finding.suspects for text in suspect.evidence if "mentions" in text]


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        ("72", "Three adult cards cost 72 euros a year."),
        ('{"temp_c": 4.2, "condition": "light rain"}', "It is 4.2 °C with light rain."),
        ('[{"charge": "a", "amount": 24}]', "I refunded the charge of 24 euros."),
    ],
)
def test_a_number_that_a_tool_returned_bare_is_mentioned_under_any_unit(returned: str, answer: str):
    """No step is said to name what was read nowhere for the unit that it gives to a number of a tool."""
    steps = (
        Step(id="1", kind="plan", output="look_up(it)"),
        Step(id="2", kind="tool", parent="1", output=returned),
        Step(id="3", kind="generate", output=answer),
    )
    wrong = replace(steps[2], output=answer.replace("4", "9").replace("72", "88"))
    for recorded, mentions in ((steps, False), ((*steps[:2], wrong), True)):
        trace = Trace(id="a", query="Look it up.", steps=recorded)
        suspects = localize_faulty_steps([trace], failed=True).traces[0].suspects
        assert any("mentions" in text for suspect in suspects for text in suspect.evidence) == mentions


@pytest.mark.parametrize("name", ["rewrite", "search"])
def test_a_step_that_failed_beside_a_rewriting_is_named(name: str):
    """That a step failed is seen: no other step is named first faulty before it."""

    def fail(*_: object) -> str:
        raise ToolFailure("timed out after 5 s")

    agent = SimulatedAgent(5)
    setattr(agent, name, fail)
    findings = [localize_recorded_step(trace) for trace in agent.answer_all()]
    faults = {finding.suspects[0].fault for finding in findings if finding.status == "fault"}
    assert faults == ({"step_failed"} if name == "rewrite" else {"tool_failed"})
