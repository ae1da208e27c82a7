"""Features of moves."""

import pytest

from ragfault.diagnosis.steps.features import FEATURE_NAMES, compute_features
from ragfault.diagnosis.steps.moves import group_moves
from ragfault.model.records import Step, Trace


@pytest.mark.parametrize(
    ("stated", "novel"),
    [("It costs 1,200 dollars.", 0), ("It costs $1200.", 0), ("It costs $1,300.", 1), ("It is at Nordhafen.", 1)],
)
def test_an_amount_that_was_read_is_not_new_however_it_is_written(stated: str, novel: int):
    steps = (
        Step(id="1", kind="tool", output="The annual berth costs $1,200 at the quay."),
        Step(id="2", kind="generate", output=stated),
    )
    features = compute_features(group_moves(Trace(id="t", query="What does the berth cost?", steps=steps)))
    assert features[1, FEATURE_NAMES.index("novel")] == novel
