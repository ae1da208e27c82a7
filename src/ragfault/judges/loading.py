"""Judges: load a judge by its name and apply a domain profile to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.protocols import Judge, VerdictKind

if TYPE_CHECKING:
    from ragfault.judges.calibration import JudgeCalibration
    from ragfault.judges.domain.profile import DomainProfile
    from ragfault.judges.scorer import Scorer
    from ragfault.model.rubrics import Rubric

DEFAULT_JUDGE = "embedded"
"""The judge if none is named."""

JUDGES = {
    "embedded": "ragfault.judges.embedded.judge:EmbeddedJudge",
    "lexical": "ragfault.judges.lexical.entailment:LexicalJudge",
    "encoder": "ragfault.judges.encoder.judge:EncoderJudge",
    "minilm": "ragfault.judges.minilm.judge:MiniLMJudge",
    "none": "ragfault.judges.assembly:NullJudge",
}
"""Name → class of the judge, imported on demand."""
ONNX_PREFIX = "onnx"
"""Before a colon: a model on this machine, whose path follows."""
LLM_PREFIX = "llm"
"""Alone or before a colon: a language model behind an API."""


def load_judge(
    name: str = DEFAULT_JUDGE,
    *,
    profile: str | Path | DomainProfile = "general",
    calibration: str | Path | JudgeCalibration | None = None,
    **options: Any,
) -> Judge:
    """Load a judge by its name, with its options, a domain profile (see `load_profile`) and a calibration to labels.

    "onnx:FOLDER" is a model that was exported to ONNX, and "onnx:OWNER/NAME" one from the cache of the hub.
    "llm:MODEL" and "llm:PROVIDER/MODEL" ask a language model; their options are the fields of
    `ragfault.judges.llm.settings.LLMSettings`, or `settings`, one of these. A `calibration` is what
    `ragfault judge calibrate` wrote. Raises UnknownName for an unknown judge, UsageError for wrong options and for a
    calibration of another judge, InputError for a file that is no calibration.

    >>> load_judge("lexical").fingerprint.split()[0]
    'lexical/6'
    >>> load_judge("lexicon")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no judge "lexicon". Did you mean "lexical"?
    """
    from importlib import import_module

    from ragfault.judges.calibration import wrap_judge

    arguments: tuple[str, ...] = ()
    kind, colon, address = name.partition(":")
    if colon and kind == ONNX_PREFIX:
        target, arguments = "ragfault.judges.onnx.judge:OnnxJudge", (address,)
    elif kind == LLM_PREFIX:
        target, arguments = "ragfault.judges.llm.judge:LLMJudge", (address,)
    elif name in JUDGES:
        target = JUDGES[name]
    else:
        raise UnknownName("judge", name, [*JUDGES, f"{LLM_PREFIX}:MODEL", f"{ONNX_PREFIX}:PATH"])
    module, _, class_name = target.partition(":")
    try:
        judge: Judge = getattr(import_module(module), class_name)(*arguments, **options)
    except TypeError as error:
        raise UsageError(f'the judge "{name}" cannot be made with {options}: {error}') from error
    return wrap_judge(apply_profile(judge, profile), calibration)


def limit_verdicts(judge: str | Judge, kinds: Iterable[VerdictKind] | None) -> dict[str, Any]:
    """Return the option by which a named language model is asked for verdicts of some kinds alone; None: of all.

    >>> limit_verdicts("llm:gpt-4o-mini", ["claim"]), limit_verdicts("embedded", ["claim"])
    ({'verdicts': ('claim',)}, {})
    """
    named = isinstance(judge, str) and judge.partition(":")[0] == LLM_PREFIX
    return {"verdicts": tuple(kinds)} if named and kinds is not None else {}


def list_rubrics(judge: Judge) -> tuple[Rubric, ...]:
    """List the rubrics that a judge was given; none of one that asks no language model.

    >>> list_rubrics(load_judge("lexical"))
    ()
    """
    rubrics: tuple[Rubric, ...] = getattr(getattr(judge, "settings", None), "rubrics", ())
    return rubrics


def apply_profile(judge: Judge, profile: str | Path | DomainProfile) -> Judge:
    """Apply a domain profile to a judge; the general profile changes nothing.

    Return the judge that takes the profile's identifiers and thresholds into account, under a fingerprint of its own.
    Raises what `load_profile` raises, and UsageError for a judge that is neither made from a scorer nor asks a model.

    >>> "legal" in apply_profile(load_judge("lexical"), "legal").fingerprint
    True
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
            f'the judge {judge.fingerprint.split()[0]} takes no domain profile. Leave out "{profile.name}", '
            "or choose a judge of the package, such as lexical."
        )
    from ragfault.judges.domain.judge import ProfiledJudge

    return ProfiledJudge(cast("Scorer", judge), profile)
