"""Options of judges that call a language model, and the estimate of their cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ragfault.judges.loading import count_metered
from ragfault.model.errors import UsageError
from ragfault.options.output import align_columns, combine_options, print_json
from ragfault.text.number_format import format_cost

if TYPE_CHECKING:
    from ragfault.judges.llm.estimates import CallEstimate, CostEstimate


DIRECT_FLAGS = ("base_url", "temperature", "max_tokens", "votes", "concurrency", "timeout")
LLM_FLAGS = (*DIRECT_FLAGS, "budget", "price", "cache", "param", "reverse", "rubrics")
"""The options that `add_llm_options` adds, as a verb gets them."""
EVALUATE_LLM_FLAGS = (*LLM_FLAGS, "batch_api")
"""The same with those that `evaluate` alone has."""
BUDGET_PATTERN = re.compile(r"(?:us\$|\$|usd)?\s*([\d_,]*\.?\d+)\s*(k|m)?\s*(tokens?|us\$|\$|usd)?", re.IGNORECASE)
MULTIPLIERS = {"": 1, "k": 1_000, "m": 1_000_000}


add_endpoint_options = combine_options(
    click.option("--base-url", metavar="URL", help="Base URL of the endpoint, up to /v1.  [default: the provider's]"),
    click.option(
        "--temperature", metavar="NUMBER|none", help="Sampling temperature; none: the service's default.  [default: 0]"
    ),
    click.option("--max-tokens", type=click.IntRange(1), help="Maximum tokens of a reply.  [default: 4096]"),
    click.option("--concurrency", type=click.IntRange(1), help="Maximum concurrent calls.  [default: 16]"),
    click.option(
        "--timeout", type=click.FloatRange(0, min_open=True), help="Time-out of one attempt in seconds.  [default: 120]"
    ),
    click.option(
        "--budget",
        multiple=True,
        metavar="AMOUNT",
        help='Spending limit, never exceeded: 5 (US$) or "200000 tokens". Repeatable.',
    ),
    click.option("--price", metavar="IN,OUT", help="Price in US$ per million tokens sent and received."),
    click.option("--cache", metavar="FILE|none", help="File that stores paid replies for reuse."),
    click.option("--param", multiple=True, metavar="KEY=VALUE", help="Additional request parameter. Repeatable."),
)
"""Add the options of a verb that asks a model."""

add_llm_options = combine_options(
    add_endpoint_options,
    click.option("--votes", type=click.IntRange(1), help="Calls per verdict, combined by vote.  [default: 1]"),
    click.option("--reverse", is_flag=True, help="Also measure answer relevance by generated questions."),
    click.option("--rubrics", metavar="FILE", help="Judge answers by the rubrics of a TOML file, too."),
)
"""Add the options of a judge that asks a model; each may also be set in the table [llm] of the settings."""


def resolve_judge_options(judge: str | None, flags: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the options of a named judge, flags before the settings' table [llm]; none if it asks no model.

    Raises UsageError where flags are given to a judge that asks no model, or cannot be read.
    """
    set_flags = {name: flags[name] for name in EVALUATE_LLM_FLAGS if flags.get(name) not in (None, (), False)}
    if judge is None or not count_metered(judge):
        if set_flags:
            amounts = ", ".join(f"--{name.replace('_', '-')}" for name in set_flags)
            raise UsageError(f"{amounts}: only for a judge that calls a model. Name one with --judge llm:MODEL.")
        return {}
    resolved = {**table, **{name: set_flags[name] for name in DIRECT_FLAGS if name in set_flags}}
    if "temperature" in resolved:
        resolved["temperature"] = _parse_temperature(resolved["temperature"])
    if "budget" in set_flags or "budget" in table:
        resolved.pop("budget", None)
        amounts = set_flags.get("budget") or table["budget"]
        resolved |= parse_budgets([amounts] if isinstance(amounts, str | int | float) else amounts)
    if "price" in set_flags:
        resolved["price"] = _parse_price(set_flags["price"])
    if "param" in set_flags:
        resolved["parameters"] = {**table.get("parameters", {}), **dict(map(_parse_parameter, set_flags["param"]))}
    if "rubrics" in resolved or "rubrics" in set_flags:
        from ragfault.model.rubrics import load_rubrics

        resolved["rubrics"] = load_rubrics(set_flags.get("rubrics") or resolved["rubrics"])
    return {**resolved, **{name: set_flags[name] for name in ("cache", "reverse", "batch_api") if name in set_flags}}


def parse_budgets(amounts: Sequence[str | float]) -> dict[str, float]:
    """Parse budgets in US$ or tokens.

    >>> parse_budgets(["$2.50", "200k tokens"])
    {'budget': 2.5, 'budget_tokens': 200000}
    """
    budgets: dict[str, float] = {}
    for text in amounts:
        match = BUDGET_PATTERN.fullmatch(str(text).strip())
        if match is None:
            raise UsageError(
                f'the budget "{text}" is not an amount. Write --budget 5 (US$), or --budget "200000 tokens".'
            )
        amount = float(match[1].replace(",", "").replace("_", "")) * MULTIPLIERS[(match[2] or "").lower()]
        if (match[3] or "").lower().startswith("token"):
            budgets["budget_tokens"] = int(amount)
        else:
            budgets["budget"] = amount
    return budgets


def _parse_temperature(text: Any) -> float | None:
    if str(text).lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise UsageError(f'--temperature is a number or none, not "{text}".') from None


def _parse_price(text: str) -> tuple[float, float]:
    try:
        sent, received = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f'--price is US$ per million tokens sent and received, such as 0.15,0.6, not "{text}".'
        ) from None
    return sent, received


def _parse_parameter(text: str) -> tuple[str, Any]:
    import msgspec

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f'--param is KEY=VALUE, such as seed=7, not "{text}".')
    try:
        return name.strip(), msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name.strip(), value


def estimate_cost(traces: Any, judge: str | None, options: Mapping[str, Any], profile: str) -> CostEstimate:
    """Estimate what judging traces would send and cost; sends nothing."""
    from ragfault.judges.loading import DEFAULT_JUDGE, load_judge

    loaded = load_judge(judge or DEFAULT_JUDGE, profile=profile, **options)
    if not hasattr(loaded, "estimate"):
        raise UsageError(
            f"--dry-run estimates what calls of a model cost, and {judge or DEFAULT_JUDGE} calls none. "
            "Name a judge such as llm:MODEL."
        )
    estimate: CostEstimate = loaded.estimate(traces)
    return estimate


def print_estimate(estimate: CostEstimate, kind: str | None) -> None:
    """Print an estimate as a table, or as JSON."""
    if kind == "json":
        print_json(estimate)
    else:
        click.echo(format_estimate(estimate))


def format_estimate(estimate: CostEstimate) -> str:
    """Format an estimate as a table for each judge that calls a model, and how it was made."""
    from ragfault.judges.llm.estimates import CHARACTERS_PER_TOKEN

    models = estimate.members or (estimate,)
    kinds = [call_kind for model in models for call_kind in model.kinds]
    tables = [f"{model.traces:,} traces, judged by {model.judge}:\n\n{_format_calls(model.kinds)}" for model in models]
    if len(models) > 1:
        costs = (_add_costs(kinds, "cost"), _add_costs(kinds, "max_cost"))
        calls = sum(call_kind.calls for call_kind in kinds)
        tables.append(f"All judges: {calls:,} calls, {costs[0]}, at the most {costs[1]}")
    sizes = {item.kind: item.completion // (item.calls - item.cached) for item in kinds if item.calls > item.cached}
    size = ", ".join(f"{tokens} tokens for {name}" for name, tokens in sizes.items()) or "no length"
    lost = f"\n{estimate.too_long:,} traces are too long to be asked about." if estimate.too_long else ""
    return (
        "Nothing was sent. "
        + "\n\n".join(tables)
        + f"\n\nTokens are estimated: {CHARACTERS_PER_TOKEN} characters to one, and replies of {size}. At the most: "
        "were every reply as long as --max-tokens. What a reply lacks is asked for once more, which comes on "
        f"top.{lost}"
    )


def _format_calls(kinds: Sequence[CallEstimate]) -> str:
    """Format the calls of a model as a table, a row for each kind and one for all."""
    rows: list[tuple[str, ...]] = [
        ("calls", "in all", "in the cache", "tokens to send", "to receive", "cost", "at the most")
    ]
    names = ("calls", "cached", "prompt", "completion")
    for call_kind in kinds:
        numbers = (f"{getattr(call_kind, name):,}" for name in names)
        rows.append((call_kind.kind, *numbers, format_cost(call_kind.cost), format_cost(call_kind.max_cost)))
    total = (f"{sum(getattr(call_kind, name) for call_kind in kinds):,}" for name in names)
    rows.append(("together", *total, _add_costs(kinds, "cost"), _add_costs(kinds, "max_cost")))
    return "\n".join(align_columns(rows, left=1))


def _add_costs(kinds: Sequence[CallEstimate], name: str) -> str:
    costs = [getattr(call_kind, name) for call_kind in kinds]
    return format_cost(None if None in costs else sum(costs))
