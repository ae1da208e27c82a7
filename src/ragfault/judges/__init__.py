"""Judges: whoever makes the verdicts on a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Judge

if TYPE_CHECKING:
    from ragfault.judges.lens import Lens
    from ragfault.judges.scorer import Scorer

__all__ = ["DEFAULT", "JUDGES", "load_judge", "through"]

DEFAULT = "embedded"
"""The judge where none is named."""

JUDGES = {
    "embedded": "ragfault.judges.embedded.meaning:Embedded",
    "lexical": "ragfault.judges.lexical:Lexical",
    "minilm": "ragfault.judges.cross.minilm:MiniLM",
    "none": "ragfault.judges.blind:Blind",
}
"""Name → where the judge is made; imported only when asked for."""
EXPORTED = "onnx"
"""Before a colon: a model on this machine, which stands behind it."""
ASKED = "llm"
"""Alone or before a colon: a language model that is asked over the network."""


def load_judge(name: str = DEFAULT, *, lens: str | Path | Lens = "general", **options: Any) -> Judge:
    """The judge of a name, made with its options, and looking through a lens (see `load_lens`).

    "onnx:FOLDER" is a model that was exported to ONNX, and "onnx:OWNER/NAME" one from the cache of the hub.
    "llm:MODEL" and "llm:PROVIDER/MODEL" ask a language model; their options are the fields of
    `ragfault.judges.llm.settings.Settings`, or `settings`, one of these.

    >>> load_judge("lexical").fingerprint.split()[0]
    'lexical/2'
    >>> load_judge("lexicon")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no judge "lexicon". Did you mean "lexical"?
    """
    from importlib import import_module

    given: tuple[str, ...] = ()
    kind, colon, address = name.partition(":")
    if colon and kind == EXPORTED:
        made, given = "ragfault.judges.exported.scorer:Exported", (address,)
    elif kind == ASKED:
        made, given = "ragfault.judges.llm.judge:LLM", (address,)
    elif name in JUDGES:
        made = JUDGES[name]
    else:
        raise UnknownName("judge", name, [*JUDGES, f"{ASKED}:MODEL", f"{EXPORTED}:PATH"])
    room, _, maker = made.partition(":")
    try:
        judge: Judge = getattr(import_module(room), maker)(*given, **options)
    except TypeError as error:
        raise UsageError(f'the judge "{name}" cannot be made with {options}: {error}') from error
    return through(judge, lens)


def through(judge: Judge, lens: str | Path | Lens) -> Judge:
    """A judge that looks through a lens; the general lens adds nothing.

    Raises UsageError for a judge that is neither made from a scorer nor asks a model: there is nothing to look through.
    """
    from ragfault.judges.lens import load_lens

    lens = load_lens(lens)
    if lens.plain:
        return judge
    if hasattr(judge, "with_lens"):
        seeing: Judge = judge.with_lens(lens)
        return seeing
    if not hasattr(judge, "read"):
        raise UsageError(
            f'the judge {judge.fingerprint.split()[0]} takes no lens. Leave out the lens "{lens.name}", '
            "or choose a judge of the package, such as lexical."
        )
    from ragfault.judges.lensed import Lensed

    return Lensed(cast("Scorer", judge), lens)
