"""A trained judge with cross-fitted odds: each claim has those of weights that were not fitted on its source.

The packaged weights were fitted on every labelled answer, and would measure better on these than on others. All that
follows from the odds is computed as in the judge itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

from ragfault.judges.assembly import assemble_verdicts
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.judge import EmbeddedSession
from ragfault.judges.embedded.support import WeighedClaims
from ragfault.judges.loading import load_judge
from ragfault.model.protocols import Judge, VerdictKind
from ragfault.model.records import Trace, Verdicts

__all__ = ["CrossFittedJudge", "load_cross_fitted_judge"]


def load_cross_fitted_judge(name: str, predictions_file: Path, key: str) -> Judge:
    """Load a judge by name, with the cross-fitted odds of the answers of one set."""
    return CrossFittedJudge(name, predictions_file, key.split("_", maxsplit=1)[0])


class CrossFittedJudge:
    """A judge whose odds of known answers come from folds in which their source was held out."""

    def __init__(self, name: str, predictions_file: Path, key: str) -> None:
        self._judge: Any = load_judge(name)
        with np.load(predictions_file) as arrays:
            start, odds, answer_odds = arrays["start"], arrays["odds"], arrays["answers"]
            self._known = {
                item.partition(" ")[2]: (odds[start[i] : start[i + 1]], float(answer_odds[i]))
                for i, item in enumerate(arrays["ids"].tolist())
                if item.startswith(f"{key} ")
            }
        self._trace = ""
        self.misfits: set[str] = set()
        """Answers that have other claims than when they were predicted: they have the odds of the packaged weights."""

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """The kinds of verdicts of the judge."""
        return self._judge.offers  # type: ignore[no-any-return]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the judge."""
        return str(self._judge.fingerprint)

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> Any:
        """Open a session for the current trace."""
        session = self._judge.open_session(query, history)
        odds = self._known.get(self._trace)
        if odds is not None:
            replace_odds(session if isinstance(session, EmbeddedSession) else session.embedded, *odds)
        return session

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace."""
        result = []
        for trace in traces:
            self._trace = trace.id
            verdicts = assemble_verdicts(trace, self)
            known = self._known.get(trace.id)
            if known is not None and verdicts.claim and len(verdicts.claim) != len(known[0]):
                self.misfits.add(trace.id)
            result.append(verdicts)
        return result


def replace_odds(session: EmbeddedSession, odds: np.ndarray[Any, Any], answer_odds: float) -> None:
    """Make a session take given log-odds for the claims of an answer and for the answer."""
    weigh = session.weigh_claims

    def weigh_from_predictions(
        self: EmbeddedSession, claims: Sequence[str], passages: Sequence[Passage]
    ) -> WeighedClaims | None:
        weighed = weigh(claims, passages)
        if weighed is None or len(weighed.odds) != len(odds):
            return weighed
        weighed = weighed._replace(odds=odds, answer_odds=answer_odds)
        self._weighed_by_claims[tuple(claims)] = weighed
        return weighed

    session.weigh_claims = MethodType(weigh_from_predictions, session)  # type: ignore[method-assign]
