"""The judge that checks, and what is known of a trace that it could not judge."""

from __future__ import annotations

import time
from typing import NamedTuple, cast

from ragfault.errors import Stopped, UsageError
from ragfault.judges import load_judge
from ragfault.judges.llm.judge import LLM
from ragfault.records import Usage, Verdicts
from ragfault.server.settings import Settings
from ragfault.store import Checking, Store

__all__ = ["Asked", "Lost", "checking", "paid"]

REPLIES = "replies.sqlite"
"""The file in the folder of the store that keeps replies and what was spent, where no other is named."""

Asked = tuple[Verdicts, Usage] | Stopped
"""What came of asking: verdicts and what they came to, or what stopped the judge."""


class Lost(NamedTuple):
    """A trace that the judge failed on."""

    answers: int
    """How often the judge had answered before."""
    tries: int = 0
    until: float = 0.0
    """It is not asked about before this, by the monotonic clock."""

    def later(self, first: float, longest: float) -> Lost:
        """The same after one more failure: asked about again after `first` seconds, and twice as many each time."""
        pause = min(longest, first * 2.0**self.tries)
        return Lost(self.answers, self.tries + 1, time.monotonic() + pause)


def paid(settings: Settings) -> LLM:
    """The judge that checks, with its file of replies beside the store.

    It is opened once, so that a key that lacks is told here. Raises what that and `load_judge` raise, and UsageError
    for a judge that costs nothing.
    """
    name = settings.check or ""
    if name.partition(":")[0] != "llm":
        raise UsageError(
            f'a sample is checked by a judge that asks a model, not by "{name}". Name llm:MODEL.'
        )
    options = {"cache": str(settings.files / REPLIES), **settings.asking}
    judge = cast(LLM, load_judge(name, lens=settings.lens, **options))
    judge.begin("checks", afresh=True)
    judge.end()
    return judge


def checking(store: Store) -> Checking:
    """Where a store keeps checks. Raises UsageError where it keeps none."""
    found = store.checking
    if found is None:
        raise UsageError("this store keeps no checks. Leave out --check, or name a folder with --store.")
    return found
