"""Evidence for the stage of a pipeline that changed between two runs, from their paired traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragfault.analysis.comparison.records import StageEvidence
from ragfault.analysis.comparison.stages.answer_evidence import ANSWER_RULES
from ragfault.analysis.comparison.stages.chunk_evidence import CHUNK_RULES
from ragfault.analysis.comparison.stages.paired_traces import Evidence, PairedTraces, TracePair, give

FIELD_STAGES = {
    "embed": "embedder", "chunk": "chunker", "split": "chunker", "rerank": "reranker", "top_k": "top-k",
    "topk": "top-k", "filter": "filter", "index": "index", "rewrit": "query rewriter", "threshold": "score threshold",
    "max_tokens": "max tokens", "prompt": "prompt", "temperature": "decoding", "model": "model", "llm": "model",
    "parser": "ingestion", "loader": "ingestion", "schema": "output schema",
}  # fmt: skip
"""Words in the name of a field → the stage that it sets; the first that fits."""


def changed_fields(pairs: Sequence[TracePair]) -> dict[str, tuple[str, str]]:
    """Return the recorded fields that have one usual value in each run, another one in the candidate.

    A field differs where at most three values cover each side and no pair agrees.
    """
    names = Counter(name for pair in pairs for name in pair.new.metadata)
    columns = {name: [(p.old.metadata.get(name), p.new.metadata.get(name)) for p in pairs] for name in names}
    columns["model"] = [(pair.old.model, pair.new.model) for pair in pairs]
    changed = {}
    for name, values in columns.items():
        known = [(str(old), str(new)) for old, new in values if old is not None and new is not None]
        sides = [Counter(pair[side] for pair in known) for side in (0, 1)]
        if len(known) < 0.5 * len(values) or not known or any(len(side) > 3 for side in sides):
            continue
        if all(old != new for old, new in known):
            changed[name] = (sides[0].most_common(1)[0][0], sides[1].most_common(1)[0][0])
    return changed


def _field_rules(traces: PairedTraces) -> Evidence:
    """Observe recorded settings that differ between the runs."""
    for name, (old, new) in changed_fields(traces.pairs).items():
        stage = next((stage for word, stage in FIELD_STAGES.items() if word in name.lower()), None)
        if stage is not None:
            yield from give("field", 1.0, f"the runs differ in {name}: {old} → {new}", stage)


def collect_evidence(traces: PairedTraces) -> tuple[StageEvidence, ...]:
    """Collect all evidence that the pairs give, each with its strength and its sentence."""
    observations: list[StageEvidence] = []
    for rule in (*CHUNK_RULES, *ANSWER_RULES, _field_rules):
        observations += [evidence for evidence in rule(traces) if evidence.strength > 0]
    return tuple(observations)
