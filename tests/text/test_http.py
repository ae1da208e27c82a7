"""Laws of the parser of Retry-After."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.text.http import parse_retry_after


def test_a_date_is_the_time_from_now():
    """A date in the future gives the seconds until then, one in the past 0; one without a zone is UTC."""
    later = datetime.now(UTC) + timedelta(seconds=20)
    assert 15 < (parse_retry_after(format_datetime(later, usegmt=True)) or 0) <= 20
    assert 15 < (parse_retry_after(format_datetime(later.replace(tzinfo=None))) or 0) <= 20
    assert parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0


@pytest.mark.parametrize(
    "text",
    [
        "-3",
        "nan",
        "1e400",
        "²",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        "Wed, 21 Oct 2099 07:28:00 +99999999999999",
    ],
)
def test_an_invalid_header_requests_no_wait(text: str):
    """A negative, infinite or impossible value is no request, and raises nothing."""
    assert parse_retry_after(text) is None


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()))
def test_the_result_is_none_or_a_finite_wait(value: str | None, milliseconds: str | None):
    """Any header gives None or a finite number of seconds, at least 0."""
    seconds = parse_retry_after(value, milliseconds)
    assert seconds is None or (seconds >= 0 and math.isfinite(seconds))
