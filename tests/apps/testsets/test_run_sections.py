"""Laws of what the report of a run on a made set says of its level."""

from __future__ import annotations

from ragfault import evaluate
from ragfault.apps.testsets.run_sections import build_sections
from ragfault.diagnosis.question_levels import is_synthetic
from ragfault.model.records import Chunk, Gold, Trace

SYNTHETIC = {"provenance": {"maker": "testset/2"}}


def make_trace(at: int, *, is_hit: bool, synthetic: bool) -> Trace:
    chunk = Chunk(id="gold" if is_hit else "other", text="The pier is open.")
    metadata = SYNTHETIC if synthetic else {"kind": "own"}
    return Trace(id=f"{at}", query=f"What of {at}?", gold=Gold(chunks={"gold": 1}), chunks=(chunk,), metadata=metadata)


def test_the_report_of_a_run_on_a_set_states_the_level_and_that_of_traffic_nothing(tmp_path):
    generated = [make_trace(at, is_hit=True, synthetic=True) for at in range(10)]
    own = [make_trace(at, is_hit=at % 2 == 0, synthetic=False) for at in range(10, 20)]
    assert is_synthetic(generated[0])
    runs = {
        name: evaluate(traces, tmp_path / name, metrics=["recall@5"], judge="none")
        for name, traces in {"mixed": generated + own, "generated": generated, "traffic": own}.items()
    }
    mixed, only_generated, traffic = (build_sections(runs[name]) for name in ("mixed", "generated", "traffic"))
    assert "0.50 [0.24, 0.76] on 10 of people" in str(mixed)
    assert "not a level of the system" in str(only_generated)
    assert traffic == []
