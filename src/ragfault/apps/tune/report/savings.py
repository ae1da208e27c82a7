"""Calculator of savings as one HTML page: every input can be changed, and each figure stands beside its formula."""

from __future__ import annotations

from ragfault.apps.tune.savings import (
    EPSILON,
    MONTHS_PER_YEAR,
    MS_PER_HOUR,
    TOKEN_GAIN_SHARE,
    Savings,
    describe_impacts,
)
from ragfault.report.html.environment import render_page
from ragfault.text.number_format import format_cost, format_number, format_signed

PAIRED_INPUTS = (
    ("precision", "Precision, 0 to 1", 1),
    ("recall", "Recall, 0 to 1", 1),
    ("latency", "Latency of a query, ms", None),
)
"""Inputs with a value before and after: field, label, greatest value."""

SINGLE_INPUTS = (
    ("queries", "Queries a month"),
    ("cost", "US$ a query, before"),
    ("extra", "US$ that each query costs more afterwards"),
    ("tokens", "Tokens ×; empty: by the gain in precision"),
)


def render_savings_html(savings: Savings) -> str:
    """Render savings as one HTML page that computes them again when an input changes.

    The figures are those of `savings` until then, also where no script runs.
    """
    values = {"queries": savings.queries, "cost": savings.cost, "extra": savings.extra}
    if savings.is_measured:
        values["tokens"] = savings.tokens
    return render_page(
        "savings.html",
        ("page.css", "agreement.css", "savings.css"),
        ("theme.js", "open_theme.js", "savings.js"),
        package="ragfault.apps.tune.report",
        name="What better retrieval saves",
        facts=(*savings.warnings, *describe_impacts(savings), *savings.basis),
        sections=(("result", "Result"), ("inputs", "Inputs"), ("figures", "Figures")),
        saved=format_cost(savings.saved),
        yearly=format_cost(savings.yearly),
        fell=bool(savings.fell),
        exhausted=savings.tokens == 0 and not savings.is_measured,
        pairs=[(name, label, greatest, getattr(savings, name)) for name, label, greatest in PAIRED_INPUTS],
        singles=[(name, label, values.get(name)) for name, label in SINGLE_INPUTS],
        rows=_build_rows(savings),
    )


def _build_rows(savings: Savings) -> list[tuple[str, ...]]:
    """Build the rows of the figures: id, name, formula, before, after."""
    quality, monthly, irrelevant = savings.quality, savings.monthly, savings.irrelevant
    waiting = savings.waiting or (None, None)
    by_rule = f"as measured; else 1 − {TOKEN_GAIN_SHARE:g} × (precision after − before) ÷ precision before, at least 0"
    return [
        (
            "quality",
            "Quality",
            f"2 × precision × recall ÷ (precision + recall + {EPSILON:f})",
            *(format_number(value, 3) for value in quality),
        ),
        ("gain", "Gain in quality, %", "100 × (after − before) ÷ before", "", format_signed(savings.gain, 1)),
        ("factor", "Tokens ×", by_rule, "", format_number(savings.tokens, 3)),
        (
            "monthly",
            "Cost a month",
            "queries × US$ a query; after: that × tokens + queries × what each costs more",
            *map(format_cost, monthly),
        ),
        (
            "irrelevant",
            "Of it for irrelevant chunks, at most",
            "the part that follows the tokens × (1 − precision), as if a query cost nothing but its chunks",
            *map(format_cost, irrelevant),
        ),
        ("saved", "Saved a month", "cost before − cost after", "", format_cost(savings.saved)),
        ("yearly", "Saved a year", f"{MONTHS_PER_YEAR} × saved a month", "", format_cost(savings.yearly)),
        (
            "waiting",
            "Waiting time a month, hours",
            f"queries × latency ÷ {MS_PER_HOUR:,}",
            *map(format_number, waiting),
        ),
    ]
