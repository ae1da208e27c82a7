"""Judges: load a judge by its name and apply a domain profile to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.protocols import Judge, VerdictKind

if TYPE_CHECKING:
    from ragfault.judges.calibration import JudgeCalibration
    from ragfault.judges.domain.profile import DomainProfile
    from ragfault.judges.scorer import Scorer
    from ragfault.model.rubrics import Rubric

DEFAULT_JUDGE = "encoder"
"""The judge if none is named."""

JUDGES = {
    "encoder": "ragfault.judges.encoder.judge:EncoderJudge",
    "embedded": "ragfault.judges.embedded.judge:EmbeddedJudge",
    "lexical": "ragfault.judges.lexical.entailment:LexicalJudge",
    "none": "ragfault.judges.assembly:NullJudge",
}
"""Name → class of the judge, imported on demand."""
LOCAL_JUDGES = tuple(name for name in JUDGES if name != "none")
"""Judges of the package: they cost nothing to ask again, and always say the same."""
ONNX_PREFIX = "onnx"
"""Before a colon: a model on this machine, whose path follows."""
LLM_PREFIX = "llm"
"""Alone or before a colon: a language model behind an API."""
DECISION_KINDS = ("decision", "logprobs")
"""Before a colon: a model that answers typed questions, at an endpoint for them or as a chat."""
ENDPOINT_MODELS = ("bespoke-minicheck", "granite-guardian", "granite-guardian-vllm", "lynx")
"""Open models of the same table that are asked at a chat endpoint; its name for the model may follow after a colon."""
METERED_KINDS = (LLM_PREFIX, *DECISION_KINDS, *ENDPOINT_MODELS)
"""Kinds of judge that send requests to a model, and take the options of one."""
JURY_PREFIX, CASCADE_PREFIX = "jury", "cascade"
"""Before a colon: judges that decide together, separated by commas; and two, of which the second sees what the first
is unsure of. "cascade@0.8:A,B" sets how certain the first has to be."""
OPEN_MODELS = ("lettucedetect", "minicheck", "minicheck-roberta", "minicheck-deberta", "factcg", "hhem")
"""Open models of `open_models.toml`; a folder may follow after a colon."""
ADDRESSED_KINDS = (*METERED_KINDS, ONNX_PREFIX, *OPEN_MODELS)
"""Kinds of judge that an address may follow, after a colon."""


def split_members(name: str) -> tuple[str, ...]:
    """Return the judges that the name of a jury or a cascade lists; the name itself for any other judge.

    >>> split_members("jury:lexical,onnx:m?labels=a,b,llm:gpt-4o-mini"), split_members("lexical")
    (('lexical', 'onnx:m?labels=a,b', 'llm:gpt-4o-mini'), ('lexical',))
    """
    kind, _, listed = name.partition(":")
    if kind.partition("@")[0] not in (JURY_PREFIX, CASCADE_PREFIX):
        return (name,)
    members: list[str] = []
    for part in listed.split(","):
        # the options of an address may hold commas
        if members and "?" in members[-1] and part.partition(":")[0] not in (*JUDGES, *ADDRESSED_KINDS):
            members[-1] += f",{part}"
        else:
            members.append(part)
    return tuple(members)


def name_cascade(first: str, second: str, certainty: float | None = None) -> str:
    """Return the name of the cascade of two judges.

    >>> name_cascade("embedded", "llm:gpt-4o-mini", 0.8)
    'cascade@0.8:embedded,llm:gpt-4o-mini'
    """
    return f"{CASCADE_PREFIX}{'' if certainty is None else f'@{certainty:g}'}:{first},{second}"


def count_metered(name: str) -> int:
    """Count the judges of a name that send requests to a model.

    >>> count_metered("llm:gpt-4o-mini"), count_metered("jury:embedded,lexical")
    (1, 0)
    """
    return sum(member.partition(":")[0] in METERED_KINDS for member in split_members(name))


def load_judge(
    name: str = DEFAULT_JUDGE,
    *,
    profile: str | Path | DomainProfile = "general",
    calibration: str | Path | JudgeCalibration | None = None,
    **options: Any,
) -> Judge:
    """Load a judge by its name, with its options, a domain profile (see `load_profile`) and a calibration to labels.

    "lettucedetect", "hhem" and others are open models in the cache of the hub, or in a FOLDER: "hhem:FOLDER".
    "onnx:FOLDER" is a model that was exported to ONNX, and "onnx:OWNER/NAME" one from the cache of the hub.
    "llm:MODEL" and "llm:PROVIDER/MODEL" ask a language model; their options are the fields of
    `ragfault.judges.llm.settings.LLMSettings`, or `settings`, one of these. "decision:MODEL" and "logprobs:MODEL" ask
    typed questions, with the same options. "jury:A,B" and "cascade:A,B" combine judges
    (`combine_judges`); options go to those that ask a model. A `calibration` is what `ragfault judge calibrate` wrote.
    Raises UnknownName for an unknown judge, UsageError for wrong options and for a
    calibration of another judge, InputError for a file that is no calibration.

    >>> load_judge("lexical").fingerprint.split()[0]
    'lexical/8'
    >>> load_judge("lexicon")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no judge "lexicon". Did you mean "lexical"?
    """
    from ragfault.judges.calibration import wrap_judge

    members = split_members(name)
    judge = _load_single(name, options) if members == (name,) else _load_combined(name, members, options)
    return wrap_judge(apply_profile(judge, profile), calibration)


def _load_combined(name: str, members: Sequence[str], options: dict[str, Any]) -> Judge:
    """Load a jury or a cascade; a budget is divided among the judges that spend from it."""
    from ragfault.judges.combined import DEFAULT_CERTAINTY, combine_judges

    kind, _, number = name.partition(":")[0].partition("@")
    try:
        certainty = float(number) if number else None
    except ValueError:
        certainty = -1.0
    if certainty is not None and (kind == JURY_PREFIX or not 0.5 <= certainty <= 1):
        raise UsageError(f'"{name}": a certainty is a number from 0.5 to 1, as in cascade@0.8:embedded,llm:MODEL.')
    if options.get("batch_api"):
        raise UsageError(f"--batch-api asks for one judge, and {name} is several. Leave it out.")
    divided = {key: options[key] / count_metered(name) for key in ("budget",) if options.get(key)}
    if options.get("budget_tokens"):
        divided["budget_tokens"] = options["budget_tokens"] // count_metered(name)
    judges = [_load_single(member, {**options, **divided} if count_metered(member) else {}) for member in members]
    return combine_judges(judges, (certainty or DEFAULT_CERTAINTY) if kind == CASCADE_PREFIX else None)


def _load_single(name: str, options: dict[str, Any]) -> Judge:
    """Load a judge that is not made of others."""
    from importlib import import_module

    arguments: tuple[str, ...] = ()
    kind, colon, address = name.partition(":")
    if colon and kind == ONNX_PREFIX:
        target, arguments = "ragfault.judges.onnx.judge:OnnxJudge", (address,)
    elif kind == LLM_PREFIX:
        target, arguments = "ragfault.judges.llm.judge:LLMJudge", (address,)
    elif kind in OPEN_MODELS:
        target, arguments, options = "ragfault.judges.onnx.judge:OnnxJudge", (address,), {**options, "entry": kind}
    elif kind in ENDPOINT_MODELS:
        from ragfault.judges.open_models import load_open_models

        target = "ragfault.judges.decision.judge:DecisionJudge"
        arguments = (address or load_open_models()[kind].endpoint_name,)
        options = {**options, "answer_format": "logprobs", "entry": kind}
    elif kind in DECISION_KINDS:
        target, arguments = "ragfault.judges.decision.judge:DecisionJudge", (address,)
        options = {**options, "answer_format": kind}
    elif name in JUDGES:
        target = JUDGES[name]
    else:
        forms = (
            *(f"{kind}:MODEL" for kind in METERED_KINDS),
            f"{ONNX_PREFIX}:PATH",
            f"{JURY_PREFIX}:A,B",
            f"{CASCADE_PREFIX}:A,B",
        )
        raise UnknownName("judge", name, [*JUDGES, *OPEN_MODELS, *ENDPOINT_MODELS, *forms])
    module, _, class_name = target.partition(":")
    try:
        judge: Judge = getattr(import_module(module), class_name)(*arguments, **options)
    except TypeError as error:
        raise UsageError(f'the judge "{name}" cannot be made with {options}: {error}') from error
    return judge


def limit_verdicts(judge: str | Judge, kinds: Iterable[VerdictKind] | None) -> dict[str, Any]:
    """Return the option by which a named language model is asked for verdicts of some kinds alone; None: of all.

    >>> limit_verdicts("llm:gpt-4o-mini", ["claim"]), limit_verdicts("embedded", ["claim"])
    ({'verdicts': ('claim',)}, {})
    """
    asks = isinstance(judge, str) and count_metered(judge) > 0
    return {"verdicts": tuple(kinds)} if asks and kinds is not None else {}


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
    if (members := getattr(judge, "members", None)) is not None:
        from ragfault.judges.combined import combine_judges

        return combine_judges([apply_profile(member, profile) for member in members], judge.certainty)  # type: ignore[attr-defined]
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
