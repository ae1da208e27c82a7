"""What answers requests again, as the command line names it, and what asking it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ragfault.apps.replay.app_asking import Redact, load_address, load_app
from ragfault.apps.replay.asking import AskedRequest, Asker, ModelAsker, apply_settings
from ragfault.apps.replay.records import ReplayPlan
from ragfault.judges.llm.estimates import CHARACTERS_PER_TOKEN, REPLY_TOKENS
from ragfault.judges.llm.settings import PROVIDERS, LLMSettings, build_settings
from ragfault.judges.llm.transport.budget import NANO, load_cost_function
from ragfault.model.errors import UsageError
from ragfault.options.llm_judge import EVALUATE_LLM_FLAGS, resolve_judge_options
from ragfault.text.number_format import format_cost, format_count


class ReplayTarget(NamedTuple):
    """What answers: exactly one of a model, an app and an address."""

    model: LLMSettings | None = None
    app: str | None = None
    url: str | None = None
    cache: str | None = None
    fixed: frozenset[str] = frozenset()
    """Settings of the requests that the command gives; the others are those that were recorded."""

    @property
    def needs_messages(self) -> bool:
        """Whether it answers recorded requests; else it gets query, chunks and history."""
        return self.model is not None

    @property
    def name(self) -> str:
        """What is asked."""
        return f"{self.model.provider}/{self.model.model}" if self.model else self.app or self.url or ""

    def plan(self, requests: Sequence[AskedRequest], *, traces: int, repeats: int = 1) -> ReplayPlan:
        """Plan to ask each of the requests so often; nothing is known of the price of an app of the user.

        >>> from ragfault.model.records import ConversationTurn, Trace
        >>> turn = ConversationTurn(role="user", text="x" * 4000)
        >>> request = AskedRequest((turn,), Trace(id="1", query="When?"), (), 1)
        >>> plan = ReplayTarget(LLMSettings(model="m", price=(1.0, 0.0))).plan([request], traces=1, repeats=4)
        >>> plan.calls, plan.tokens, plan.cost, plan.temperatures, plan.temperature_source
        (4, 4000, 0.004, (0.0,), 'default')
        """
        calls = repeats * len(requests)
        if self.model is None:
            return ReplayPlan(model=self.name, traces=traces, calls=calls)
        asked = [apply_settings(self.model, request.settings, self.fixed) for request in requests]
        price = load_cost_function(self.model)
        sizes = [sum(len(turn.text) for turn in request.messages) // CHARACTERS_PER_TOKEN for request in requests]
        usual = [min(REPLY_TOKENS["answer"], own.max_tokens) for own in asked]
        most = [own.max_tokens for own in asked]
        return ReplayPlan(
            model=self.name,
            traces=traces,
            calls=calls,
            tokens=repeats * sum(sizes),
            cost=_add_costs([price(*pair) for pair in zip(sizes, usual, strict=True)], repeats),
            max_cost=_add_costs([price(*pair) for pair in zip(sizes, most, strict=True)], repeats),
            temperatures=tuple(sorted({own.temperature for own in asked}, key=lambda value: (value is None, value))),
            temperature_source="given"
            if "temperature" in self.fixed
            else "recorded"
            if any(name == "temperature" for request in requests for name, _ in request.settings)
            else "default",
        )

    def rename(self, name: str) -> ReplayTarget:
        """Return the target with another model, app or address in place of its own."""
        if self.model is None:
            return self._replace(app=self.app and name, url=self.url and name)
        provider, slash, model = name_model(name).partition("/")
        if not slash or provider not in PROVIDERS:
            provider, model = self.model.provider, name
        return self._replace(model=msgspec.structs.replace(self.model, provider=provider, model=model))

    def open(self, budget_id: str, *, fresh: bool, redact: Redact = str) -> Asker:
        """Open what answers."""
        if self.model is not None:
            return ModelAsker(self.model, budget_id, fresh=fresh, fixed=self.fixed)
        if self.app is not None:
            return load_app(self.app, self.cache, redact)
        return load_address(self.url or "", self.cache, redact)


def _add_costs(costs: Iterable[int | None], repeats: int) -> float | None:
    total = 0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return repeats * total / NANO


def read_target(options: Mapping[str, Any], table: Mapping[str, Any]) -> ReplayTarget:
    """Read what answers from the options. Raises UsageError unless exactly one is named."""
    model, app, url = options["model"], options["app_name"], options["url"]
    if sum(name is not None for name in (model, app, url)) != 1:
        raise UsageError("name what answers, one of --model PROVIDER:MODEL, --app FILE.py:NAME and --url URL.")
    if model is None:
        given = [name for name in EVALUATE_LLM_FLAGS if name != "cache" and options.get(name) not in (None, (), False)]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} is an option of --model, and no model is named.")
        return ReplayTarget(app=app, url=url, cache=options["cache"])
    known = {key: value for key, value in table.items() if key not in ("votes", "reverse", "rubrics")}
    settings = build_settings(name_model(model), **resolve_judge_options("llm:", options, known))
    fixed = {name for name in ("temperature", "max_tokens") if options[name] is not None}
    return ReplayTarget(settings, fixed=frozenset(fixed))


def name_model(text: str) -> str:
    """Return the name of a model as settings have it: PROVIDER/MODEL.

    >>> name_model("openai:gpt-4o"), name_model("org/model:4b")
    ('openai/gpt-4o', 'org/model:4b')
    """
    provider, colon, name = text.removeprefix("llm:").partition(":")
    return f"{provider}/{name}" if colon and provider in PROVIDERS else text.removeprefix("llm:")


def describe_plan(plan: ReplayPlan, what: str = "trace") -> str:
    """Describe what will be asked with which temperature, and what it costs at most."""
    text = f"asking {plan.model}: {format_count(plan.traces, what)}, at most {plan.calls:,} calls"
    if not plan.temperatures:
        return text
    named = ", ".join("the service's default" if value is None else f"{value:g}" for value in plan.temperatures)
    source = {"given": "as given", "recorded": "as recorded", "default": "none is recorded"}[plan.temperature_source]
    text += f", temperature {named} ({source})"
    if plan.cost is None:
        return f"{text}, about {plan.tokens:,} tokens to send; the price is not known"
    most = format_cost(plan.max_cost)
    return f"{text}, about {format_cost(plan.cost)} ({most} if every reply has full length)"
