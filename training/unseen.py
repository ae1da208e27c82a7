"""A trained judge that says of each answer what its parts say that have not seen its source.

Its shipped weights have seen every labelled answer, and would measure better on them than on others. So each claim
gets the odds of the fold in which its source was left out; all that follows is as in the judge itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

from ragfault.judges import load_judge
from ragfault.judges.assembly import assemble_verdicts
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.judge import EmbeddedSession
from ragfault.judges.embedded.support import WeighedClaims
from ragfault.protocols import Judge, VerdictKind
from ragfault.records import Trace, Verdicts

__all__ = ["Unseen", "unseen"]


def unseen(name: str, retained: Path, key: str) -> Judge:
    """Return the judge of a name, on answers of one set."""
    return Unseen(name, retained, key.split("_", maxsplit=1)[0])


class Unseen:
    """A judge whose weights are taken from the folds in which a source was left out."""

    def __init__(self, name: str, retained: Path, key: str) -> None:
        self._judge: Any = load_judge(name)
        with np.load(retained) as arrays:
            start, odds, full = arrays["start"], arrays["odds"], arrays["answers"]
            self._known = {
                item.partition(" ")[2]: (odds[start[i] : start[i + 1]], float(full[i]))
                for i, item in enumerate(arrays["ids"].tolist())
                if item.startswith(f"{key} ")
            }
        self._trace = ""

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """That of the judge."""
        return self._judge.offers  # type: ignore[no-any-return]

    @property
    def fingerprint(self) -> str:
        """That of the judge."""
        return str(self._judge.fingerprint)

    def open_session(self, query: str = "") -> Any:
        """Open a session for the current trace."""
        session = self._judge.open_session(query)
        odds = self._known.get(self._trace)
        if odds is not None:
            swap(session if isinstance(session, EmbeddedSession) else session.embedded, *odds)
        return session

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace."""
        result = []
        for trace in traces:
            self._trace = trace.id
            result.append(assemble_verdicts(trace, self))
        return result


def swap(words: EmbeddedSession, odds: np.ndarray[Any, Any], full: float) -> None:
    """Let a session take the odds of all claims of an answer, and of the answer, from elsewhere."""
    weigh = words.weigh_claims

    def other(self: EmbeddedSession, claims: Sequence[str], passages: Sequence[Passage]) -> WeighedClaims | None:
        weighed = weigh(claims, passages)
        if weighed is None or len(weighed.odds) != len(odds):
            return weighed
        weighed = weighed._replace(odds=odds, answer_odds=full)
        self._weighed_by_claims[tuple(claims)] = weighed
        return weighed

    words.weigh_claims = MethodType(other, words)  # type: ignore[method-assign]
