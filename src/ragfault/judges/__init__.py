"""Judges: load a judge by its name and apply a domain profile to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragfault.errors import UnknownName, UsageError
from ragfault.protocols import Judge

if TYPE_CHECKING:
    from ragfault.judges.domain.profile import DomainProfile
    from ragfault.judges.scorer import Scorer

__all__ = ["DEFAULT_JUDGE", "JUDGES", "apply_profile", "load_judge"]

DEFAULT_JUDGE = "embedded"
"""The judge where none is named."""

JUDGES = {
    "embedded": "ragfault.judges.embedded.judge:EmbeddedJudge",
    "lexical": "ragfault.judges.lexical.judge:LexicalJudge",
    "minilm": "ragfault.judges.minilm.judge:MiniLMJudge",
    "none": "ragfault.judges.observation:NullJudge",
}
"""Name → where the judge is made; imported only when asked for."""
ONNX_PREFIX = "onnx"
"""Before a colon: a model on this machine, which stands behind it."""
LLM_PREFIX = "llm"
"""Alone or before a colon: a language model that is asked over the network."""


def load_judge(
    name: str = DEFAULT_JUDGE, *, profile: str | Path | DomainProfile = "general", **options: Any
) -> Judge:
    """The judge of a name, made with its options, and looking through a lens (see `load_lens`).

    "onnx:FOLDER" is a model that was exported to ONNX, and "onnx:OWNER/NAME" one from the cache of the hub.
    "llm:MODEL" and "llm:PROVIDER/MODEL" ask a language model; their options are the fields of
    `ragfault.judges.llm.settings.LLMSettings`, or `settings`, one of these.

    >>> load_judge("lexical").fingerprint.split()[0]
    'lexical/2'
    >>> load_judge("lexicon")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no judge "lexicon". Did you mean "lexical"?
    """
    from importlib import import_module

    given: tuple[str, ...] = ()
    kind, colon, address = name.partition(":")
    if colon and kind == ONNX_PREFIX:
        made, given = "ragfault.judges.onnx.judge:OnnxJudge", (address,)
    elif kind == LLM_PREFIX:
        made, given = "ragfault.judges.llm.judge:LLMJudge", (address,)
    elif name in JUDGES:
        made = JUDGES[name]
    else:
        raise UnknownName("judge", name, [*JUDGES, f"{LLM_PREFIX}:MODEL", f"{ONNX_PREFIX}:PATH"])
    room, _, maker = made.partition(":")
    try:
        judge: Judge = getattr(import_module(room), maker)(*given, **options)
    except TypeError as error:
        raise UsageError(f'the judge "{name}" cannot be made with {options}: {error}') from error
    return apply_profile(judge, profile)


def apply_profile(judge: Judge, profile: str | Path | DomainProfile) -> Judge:
    """A judge that looks through a lens; the general lens adds nothing.

    Raises UsageError for a judge that is neither made from a scorer nor asks a model: there is nothing to look through.
    """
    from ragfault.judges.domain.profile import load_profile

    profile = load_profile(profile)
    if profile.is_empty:
        return judge
    if hasattr(judge, "with_profile"):
        profiled: Judge = judge.with_profile(profile)
        return profiled
    if not hasattr(judge, "open_session"):
        raise UsageError(
            f'the judge {judge.fingerprint.split()[0]} takes no domain profile. Leave out the profile "{profile.name}", '
            "or choose a judge of the package, such as lexical."
        )
    from ragfault.judges.domain.judge import ProfiledJudge

    return ProfiledJudge(cast("Scorer", judge), profile)
