"""Metrics of steps."""

from ragfault.metrics import compute_score, parse_metric
from ragfault.records import Chunk, ChunkVerdict, Step, Trace, UseVerdict, Verdicts


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
    for name in ("step_error", "swallowed_error", "redundant_steps", "retrieval_gain", "step_use"):
        assert compute(name) is None
