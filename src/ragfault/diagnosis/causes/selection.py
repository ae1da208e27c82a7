"""The traces of a run whose answers are bad for given causes, for commands that work on some traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from ragfault.diagnosis.causes.records import AnswerCause, name_option
from ragfault.diagnosis.causes.summary import rank_example
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.io.runs.run import AnyRun
from ragfault.model.causes import CauseName
from ragfault.model.errors import UnknownName, UsageError


def parse_causes(names: Sequence[str]) -> tuple[CauseName, ...]:
    """Return the causes that are named as the option takes them.

    Raises UnknownName for another name, with the names that there are.

    >>> parse_causes(["not-retrieved", "refused"])
    ('not_retrieved', 'refused')
    """
    known: dict[str, CauseName] = {name_option(name): name for name in get_args(CauseName)}
    for name in names:
        if name.replace("_", "-") not in known:
            raise UnknownName("cause", name, known, listed=True)
    return tuple(known[name.replace("_", "-")] for name in names)


def select_causes(source: AnyRun | RunTable, names: Sequence[str]) -> list[AnswerCause]:
    """Select the answers of a run that are bad for one of these causes, those that show it most surely first.

    Raises UnknownName for a cause that there is not, UsageError where no answer of the run has one of them.
    """
    causes = parse_causes(names)
    all_causes = open_table(source).causes
    chosen = [cause for cause in all_causes if cause.cause in causes]
    if not chosen:
        present = sorted({name_option(cause.cause) for cause in all_causes if cause.cause is not None})
        raise UsageError(
            f"no bad answer of the run has the cause {' or '.join(map(name_option, causes))}. "
            f"The causes of this run are: {', '.join(present) or 'none'}."
        )
    return sorted(chosen, key=rank_example)
