"""Records of other tools' tasks, scored one by one: what the scorers for MLflow and Inspect have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.trace_reader import read_traces
from ragfault.judges.loading import DEFAULT_JUDGE


class RecordScorer:
    """Scores records by metrics of one judge, which is loaded once.

    >>> scorer = RecordScorer(["groundedness"], "lexical")
    >>> scored = scorer.score({"question": "When?", "contexts": ["It opens at noon."]}, "It opens at noon.", {})
    >>> scored.values
    {'groundedness': 1.0}
    """

    def __init__(self, metrics: Sequence[str], judge: str = DEFAULT_JUDGE) -> None:
        self._scorer = TraceScorer(judge, metrics=metrics)
        self.metrics = tuple(str(metric) for metric in self._scorer.metrics)
        """The metrics as scores name them."""

    def score(self, inputs: Any, outputs: Any, expectations: Any) -> ScoredTrace:
        """Score what a task was given, what it returned and what was expected of it.

        Each is a text, or fields under any names that `ragfault evaluate` recognises.
        """
        record: dict[str, Any] = {}
        for part, name in ((inputs, "query"), (outputs, "answer"), (expectations, "reference")):
            record |= part if isinstance(part, Mapping) else {} if part is None else {name: part}
        [trace] = read_traces([record])
        return self._scorer(trace)


def explain_score(scored: ScoredTrace, metric: str) -> str:
    """Explain a score: the reason why it is undefined, else the claims that the chunks do not support.

    >>> scorer = RecordScorer(["groundedness"], "lexical")
    >>> scored = scorer.score({"question": "When?", "contexts": ["At noon."]}, "It costs 5 crowns.", {})
    >>> explain_score(scored, "groundedness")
    'unsupported: It costs 5 crowns.'
    """
    [score] = [score for score in scored.scores if score.metric == metric]
    if score.value is None:
        return score.reason or score.status
    bad = [claim for claim in scored.verdicts.claim or () if claim.support in ("unsupported", "contradicted")]
    return "; ".join(f"{claim.support}: {claim.claim}" for claim in bad)
