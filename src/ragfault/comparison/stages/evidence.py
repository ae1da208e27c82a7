"""Evidence for the stage of a pipeline that changed between two runs, from their paired traces."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ragfault.comparison.records import StageEvidence
from ragfault.comparison.stages.answer_evidence import answer_rules
from ragfault.comparison.stages.chunk_evidence import chunk_rules
from ragfault.comparison.stages.field_evidence import chunk_field_rules, setting_rules
from ragfault.comparison.stages.paired_traces import PairedTraces
from ragfault.comparison.stages.query_evidence import query_rules
from ragfault.comparison.stages.text_evidence import text_rules

RULES = (text_rules, chunk_rules, query_rules, chunk_field_rules, answer_rules, setting_rules)


EXPLANATIONS = (
    (("texts", "other value", "order by score", "sign"), ("other set", "even loss")),
    (("repeated",), ("longer",)),
    (("vanished",), ("even loss",)),
    (("misses facts", "answer of another query"), ("refusals", "longer")),
)
"""Observations of a cause, and those that follow from it: other chunks are found, answers are longer or refuse."""


def collect_evidence(traces: PairedTraces) -> tuple[StageEvidence, ...]:
    """Collect all evidence that the pairs give, each with its strength and its sentence."""
    observations = [evidence for rule in RULES for evidence in rule(traces) if evidence.strength > 0]
    return discount_explained(observations)


def discount_explained(observations: Sequence[StageEvidence]) -> tuple[StageEvidence, ...]:
    """Reduce the strength of the observations that others explain, by four fifths of the strength of these."""
    parts: dict[str, float] = {}
    for causes, effects in EXPLANATIONS:
        cause = max((item.strength for item in observations if item.name in causes), default=0.0)
        parts |= {name: min(parts.get(name, 1.0), 1 - 0.8 * cause) for name in effects}
    return tuple(replace(item, strength=round(item.strength * parts.get(item.name, 1.0), 4)) for item in observations)
