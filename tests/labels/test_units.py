"""Units that are measured: an answer is called bad exactly if one of its claims is."""

import pytest

from ragfault.diagnosis.causes.rating import rate_answer as rate_outcome
from ragfault.diagnosis.diagnosis import diagnose_trace
from ragfault.labels.judges.units import rate_answer
from ragfault.model.records import AnswerVerdict, Chunk, ClaimVerdict, Trace, Verdicts

TRACE = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="The bus leaves at nine."),), answer="At nine. By bus.")


@pytest.mark.parametrize("grounded", [0.0, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("support", ["supported", "inferred", "unsupported", "contradicted"])
def test_an_answer_passes_exactly_if_its_claims_do(grounded: float, support: str) -> None:
    """Whatever the probability of an answer is, measurement follows its claims, and diagnosis contradicts none."""
    claims = (
        ClaimVerdict(claim="At nine.", start=0, end=8, support="supported", p=0.9),
        ClaimVerdict(claim="By bus.", start=9, end=16, support=support, p=0.6),
    )
    verdicts = Verdicts(trace="1", claim=claims, answer=AnswerVerdict(relevance=1.0, grounded=grounded))
    passes = support in ("supported", "inferred")
    unit = rate_answer(verdicts)
    assert unit is not None
    assert unit.called == (not passes)
    assert rate_outcome(TRACE, verdicts, diagnose_trace(TRACE, verdicts)).outcome != ("bad" if passes else "right")
