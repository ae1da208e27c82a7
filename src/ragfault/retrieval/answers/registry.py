"""The registry of checks: every stage after generation by the name under which a pipeline.toml asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache

from ragfault.judges.loading import DEFAULT_JUDGE, load_judge
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.expressions import Expression, parse_expression
from ragfault.retrieval.answers.checks import (
    AnswerPipeline,
    AnswerStage,
    Writer,
    clarify,
    criticize,
    escalate,
    make_writer,
    repair,
    rephrase,
    verify,
)
from ragfault.retrieval.stage_registry import load_generator

_load_judge = cache(load_judge)


def _load_writer(model: str, budget: float | None) -> Writer:
    generator = load_generator(model, budget)
    assert generator is not None
    return make_writer(generator)


CHECKS: dict[str, Callable[..., AnswerStage]] = {
    "cut": lambda judge=DEFAULT_JUDGE: verify(_load_judge(judge), "cut"),
    "mark": lambda judge=DEFAULT_JUDGE: verify(_load_judge(judge), "mark"),
    "disclaim": lambda judge=DEFAULT_JUDGE, threshold=0.5: verify(_load_judge(judge), "disclaim", threshold=threshold),
    "abstain": lambda judge=DEFAULT_JUDGE, threshold=0.5: verify(_load_judge(judge), "abstain", threshold=threshold),
    "clarify": lambda judge=DEFAULT_JUDGE: clarify(_load_judge(judge)),
    "repair": lambda by, judge=DEFAULT_JUDGE, passes=2, budget=None: repair(
        _load_judge(judge), _load_writer(by, budget), passes=passes
    ),
    "escalate": lambda by, judge=DEFAULT_JUDGE, threshold=0.5, budget=None: escalate(
        _load_judge(judge), _load_writer(by, budget), threshold=threshold
    ),
    "rephrase": lambda by, instruction, judge=DEFAULT_JUDGE, budget=None: rephrase(
        _load_judge(judge), _load_writer(by, budget), instruction
    ),
    "criticize": lambda by, *principles, judge=DEFAULT_JUDGE, budget=None: criticize(
        _load_judge(judge), _load_writer(by, budget), principles
    ),
}
"""Name → how the check is made; `by` is a model, `llm:MODEL`."""


def check_answer_check(expression: str) -> Expression:
    """Parse the expression of a check and test its name and options.

    Raises UnknownName for a name that there is not, UsageError for options that do not fit.

    >>> check_answer_check("cutt(embedded)")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no check "cutt". Did you mean "cut"?
    """
    call = parse_expression(expression)
    if call.name not in CHECKS:
        raise UnknownName("check", call.name, CHECKS)
    shape = inspect.signature(CHECKS[call.name])
    names = [name for name, parameter in shape.parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL]
    for name in call.options:
        if name not in names:
            raise UnknownName(f"option of {call.name}", name, names)
    try:
        shape.bind(*call.arguments, **call.options)
    except TypeError as error:
        raise UsageError(f'the check "{expression}" cannot be made: {error}.') from None
    return call


def make_answer_pipeline(checks: Mapping[str, str]) -> AnswerPipeline:
    """Return the stages after generation of their expressions, in their order.

    Raises UnknownName for a check, an option, a judge or a model that does not exist, UsageError for a wrong value.

    >>> sorted(make_answer_pipeline({"verify": "cut(lexical)", "tone": "mark(lexical)"}).stages)
    ['tone', 'verify']
    """
    stages = {}
    for name, expression in checks.items():
        call = check_answer_check(expression)
        try:
            stages[name] = CHECKS[call.name](*call.arguments, **call.options)
        except (TypeError, ValueError) as error:
            raise UsageError(f'the check "{expression}" cannot be made: {error}.') from error
    return AnswerPipeline(stages)
