"""Policies: read from TOML, per route, with unknown words refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.apps.guard.policy import load_policy, parse_policy
from ragfault.model.errors import InputError, RagfaultError, UnknownName, UsageError

POLICY = """
certificate = "certificate.json"
aggregate = "majority"
message = "Please ask the office."

[rails.injection]
on = ["retrieval"]
outcome = "fix"

[rails.names]
kind = "pattern"
fail = "open"
options = { patterns = ["Falcon"] }

[routes.billing]
rails = ["names"]
deadline = 0.5
"""


def test_routes_take_what_they_do_not_set_from_the_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    policy = load_policy(tmp_path / "policy.toml")
    billing, other = policy.get_route("billing"), policy.get_route("web")
    assert (billing.rails, billing.deadline, billing.aggregate) == (("names",), 0.5, "majority")
    assert (other.rails, other.deadline, other.message) == (None, 5.0, "Please ask the office.")
    assert policy.certificate == str(tmp_path / "certificate.json")
    assert policy.get_stages("injection") == ("retrieval",)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("agregate = 'any'\n[rails.injection]", UnknownName, 'Did you mean "aggregate"'),
        ("[rails.injection]\noutcom = 'fix'", UnknownName, 'Did you mean "outcome"'),
        ("[rails.sekrets]", UnknownName, 'Did you mean "secrets"'),
        ("[rails.injection]\noptions = {treshold = 0.5}", UnknownName, 'Did you mean "threshold"'),
        ("[rails.injection]\n[routes.web]\nrails = ['injektion']", UnknownName, 'Did you mean "injection"'),
        ("[rails.pattern]\noptions = {patterns = ['(']}", UsageError, "cannot read"),
        ("[rails.pattern]", UsageError, "needs `patterns`"),
        ("[rails.presidio]", InputError, "url"),
        ("[rails.injection]\noutcome = 'explode'", InputError, "outcome"),
        ("[rails.injection]\ntimeout = 0", UsageError, "above 0"),
        ("deadline = 0\n[rails.injection]", UsageError, "deadline"),
        ("threshold = 2\n[rails.groundedness]", InputError, "risk from 0 to 1"),
        ("", UsageError, "names no rail"),
        ("rails = 3", InputError, "is a table"),
        ("[", InputError, "not TOML"),
    ],
)
def test_what_a_policy_cannot_mean_is_refused(text: str, error: type[RagfaultError], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_policy(text)
