"""Investigation of a run: hypotheses tested with the package's own analyses, quotes, a fix and a test for it."""

from ragfault.analysis.investigation.hypotheses import investigate, measure_claim_origins
from ragfault.analysis.investigation.records import (
    ClaimOrigins,
    Hypothesis,
    Investigation,
    ModelInvestigation,
    Quotation,
)

__all__ = [
    "ClaimOrigins", "Hypothesis", "Investigation", "ModelInvestigation", "Quotation", "investigate",
    "measure_claim_origins",
]  # fmt: skip
