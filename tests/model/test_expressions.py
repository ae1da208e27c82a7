"""Tests of the syntax `name(value, key=value)@k`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.model.errors import UsageError
from ragfault.model.expressions import format_expression, parse_expression

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(
    names,
    st.lists(scalars | st.lists(scalars), max_size=3),
    st.dictionaries(names, scalars, max_size=3),
    st.none() | st.integers(1, 10**9 - 1),
)
def test_parse_inverts_format(name: str, values: list[object], options: dict[str, object], cutoff: int | None):
    """A formatted expression parses to the same name, values, options and cut-off."""
    expression = parse_expression(format_expression(name, values, options, cutoff))
    assert (expression.name, list(expression.arguments), expression.options) == (name, values, options)
    assert expression.cutoff == cutoff


@pytest.mark.parametrize(
    ("text", "values", "options"),
    [
        ("top( 5 )", (5,), {}),
        ("top(5,)", (5,), {}),
        ("context_relevance(none=0, low=.5)", (), {"none": 0, "low": 0.5}),
        ("restrict(document=['a b', c-1], since=2024-01)", (), {"document": ["a b", "c-1"], "since": "2024-01"}),
        ("f((1, 2), -3, TRUE, None)", ([1, 2], -3, True, None), {}),
        ("sentence:acme/e5(256)", (256,), {}),
    ],
)
def test_values_have_types(text: str, values: tuple[object, ...], options: dict[str, object]):
    """Numbers, literals, words, quoted texts and lists are told apart."""
    expression = parse_expression(text)
    assert (expression.arguments, expression.options) == (values, options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not an expression"),
        ("top(", "is not an expression"),
        ("top)5(", "is not an expression"),
        ("top(5", "is not an expression"),
        ("ndcg@0", "at least 1"),
        ("ndcg@-1", "is not an expression"),
        ("top(__import__('os'))", "cannot read"),
        ("top(1+1)", "cannot read"),
        ("top(k=1, 5)", "cannot read"),
        ("top([1, 2)", "cannot read"),
        ("top(k=1, k=2)", "given twice"),
        ("top(1e999)", "too large"),
        ('f(part="\\x")', "Quote a text as JSON does"),
    ],
)
def test_malformed_text_is_refused(text: str, message: str):
    """A malformed text raises UsageError and is never evaluated."""
    with pytest.raises(UsageError, match=message):
        parse_expression(text)
