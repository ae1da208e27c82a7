"""Judges: whoever makes the verdicts on a trace."""

from __future__ import annotations

from typing import Any

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Judge

__all__ = ["JUDGES", "load_judge"]

JUDGES = {
    "lexical": "ragfault.judges.lexical:Lexical",
    "minilm": "ragfault.judges.cross.minilm:MiniLM",
    "none": "ragfault.judges.blind:Blind",
}
"""Name → where the judge is made; imported only when asked for."""


def load_judge(name: str = "lexical", **options: Any) -> Judge:
    """The judge of a name, made with its options.

    >>> load_judge("lexical").fingerprint.split()[0]
    'lexical/2'
    >>> load_judge("lexicon")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no judge "lexicon". Did you mean "lexical"?
    """
    from importlib import import_module

    if name not in JUDGES:
        raise UnknownName("judge", name, JUDGES)
    room, _, maker = JUDGES[name].partition(":")
    try:
        judge: Judge = getattr(import_module(room), maker)(**options)
    except TypeError as error:
        raise UsageError(f'the judge "{name}" cannot be made with {options}: {error}') from error
    return judge
