"""Records of an investigation."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.stats.estimates import Interval


class ClaimOrigins(Struct, frozen=True, kw_only=True):
    """Origin of the unsupported and contradicted claims of a run."""

    claims: int
    traces: int
    """Traces with at least one such claim."""
    from_retrieval: Interval
    """Share of these claims on traces whose chunks did not hold what was asked for, by trace or conversation."""
    without_fault: float | None
    """The same share among the traces without such a claim; None where there is none. What both have is no cause."""


class Quotation(Struct, frozen=True, kw_only=True):
    """A stretch of a recorded text, character by character as it stands there."""

    run: Literal["baseline", "candidate"]
    trace: str
    chunk: str | None
    """The chunk that holds it; None: the answer does."""
    start: int
    end: int
    text: str
    reason: str
    """Why it is quoted."""


class HypothesisTest(Struct, frozen=True, kw_only=True):
    """Test of a hypothesis by a command of the package."""

    command: str
    outcome: Literal["supports", "contradicts", "cannot tell"]
    reason: str


class Hypothesis(Struct, frozen=True, kw_only=True):
    """Possible cause, and what its tests say."""

    layer: str
    stage: str | None
    """Stage of the pipeline, where two runs are compared and show one; else None."""
    text: str
    outcome: Literal["supported", "possible", "ruled out", "cannot tell"]
    confidence: float | None
    """In [0, 1]; None where there is no evidence for one."""
    tests: tuple[HypothesisTest, ...]


class Investigation(Struct, frozen=True, kw_only=True):
    """Root cause of what is wrong with a run, with its evidence, a fix and a test for the fix."""

    verdict: Literal["fault", "no fault", "cannot tell"]
    sentence: str
    layer: str | None
    stage: str | None
    confidence: float | None
    """Of the first hypothesis."""
    hypotheses: tuple[Hypothesis, ...]
    """The most credible first, those that were ruled out last."""
    quotes: tuple[Quotation, ...]
    fix: tuple[str, ...]
    """Changes to make, the cheapest first."""
    fix_test: tuple[str, ...]
    """Commands that keep the cases, and that tell whether the fault is gone."""
    cases: tuple[str, ...]
    """Ids of the traces of the test."""
    origins: ClaimOrigins | None
    """Where the unsupported claims of the run come from; None where it has none."""
    warnings: tuple[str, ...] = ()
    """What the verdict may rest on besides the system: languages, markup, samples, differences of the record."""


class ModelInvestigation(Struct, frozen=True, kw_only=True):
    """Conclusion of a language model, with the investigation without one beside it."""

    model: str
    layer: str | None
    """None: it came to no conclusion."""
    stage: str | None
    cause: str
    """The root cause in the model's words, or why there is none."""
    fix: str
    confidence: float | None
    """By the model itself, in [0, 1]; not calibrated."""
    agrees: bool | None
    """Whether the investigation without a model names the same layer; None without a conclusion."""
    quotes: tuple[Quotation, ...]
    """Those that stand in the record character by character."""
    rejected_quotes: int
    """Quotes of the model that do not stand there, and are left out."""
    calls: tuple[str, ...]
    """The tools it called, in order."""
    without_model: Investigation
