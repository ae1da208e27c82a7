"""Policies of the guard: rails and their settings for every route, read from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.guard.rails import Aggregation, Outcome, Stage
from ragfault.apps.guard.scanning.backends import BACKENDS
from ragfault.apps.guard.scanning.scanners import SCANNERS, make_scanner
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.whole_files import parse_toml, read_text

GROUNDEDNESS = "groundedness"
"""Kind of the rail that asks the judge and holds back by the threshold of a certificate."""
DEFAULT_MESSAGE = "I cannot answer this reliably from the documents."
DEFAULT_STAGES: dict[str, tuple[Stage, ...]] = {
    "injection": ("retrieval",),
    "jailbreak": ("input",),
    "hidden": ("input", "retrieval"),
    "toxicity": ("input", "output"),
    "secrets": ("retrieval", "output"),
    "personal_data": ("output",),
    "links": ("retrieval", "output"),
    GROUNDEDNESS: ("output",),
    "length": ("input",),
}
"""Kind → stages, where a policy does not say; ("input", "output") for the others."""


class RailSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one rail in a policy."""

    kind: str = ""
    """A scanner, a back-end, or groundedness; empty: the rail's name."""
    on: tuple[Stage, ...] = ()
    outcome: Outcome = "block"
    """What becomes of a finding; "fix" masks it, drops the chunk, or cuts the sentence."""
    timeout: float = 1.0
    fail: Literal["closed", "open"] = "closed"
    weight: float = 1.0
    options: dict[str, Any] = {}


class RoutePolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy of one route, or of all that have none of their own."""

    rails: tuple[str, ...] | None = None
    """Names of the rails that apply, in order; None: all."""
    aggregate: Aggregation = "any"
    share: float = 0.5
    """Share of the weight from which "weighted" blocks."""
    deadline: float = 5.0
    """Seconds for all rails of a request together."""
    message: str = DEFAULT_MESSAGE
    """Words of the answer where one is held back."""
    withdrawn: Literal["flag", "block"] = "flag"
    """What becomes of an answer that would be released once the promise is withdrawn."""


class GuardPolicy(Struct, frozen=True, kw_only=True):
    """Rails, the policy of every route, and the certificate that groundedness goes by."""

    rails: dict[str, RailSettings]
    default: RoutePolicy = RoutePolicy()
    routes: dict[str, RoutePolicy] = {}
    certificate: str | None = None
    """File of the certificate, relative to the policy's."""
    threshold: float | None = None
    """Risk that is released where there is no certificate; nothing is promised then."""

    def get_route(self, route: str | None) -> RoutePolicy:
        """Return the policy of a route."""
        return self.routes.get(route or "", self.default)

    def get_stages(self, name: str) -> tuple[Stage, ...]:
        """Return the stages of a rail."""
        settings = self.rails[name]
        return settings.on or DEFAULT_STAGES.get(settings.kind or name, ("input", "output"))


def load_policy(path: str | Path) -> GuardPolicy:
    """Load a policy from a TOML file. Raises what `parse_policy` raises; InputError where it cannot be read."""
    file = Path(path)
    policy = parse_policy(read_text(file), str(path))
    if policy.certificate is None:
        return policy
    return replace(policy, certificate=str(file.parent / policy.certificate))


def parse_policy(text: str, source: str = "policy") -> GuardPolicy:
    """Parse a policy.

    Raises InputError for text that is no TOML or a value of the wrong kind, UnknownName for an unknown key, rail or
    scanner, UsageError for a rail that cannot be made.

    >>> policy = parse_policy('[rails.injection]\\n[routes.billing]\\nmessage = "Ask us."')
    >>> policy.get_route("billing").message, policy.get_stages("injection")
    ('Ask us.', ('retrieval',))
    >>> parse_policy('[rails.injction]')
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no kind of rail in policy "injction". Did you mean "injection"?
    """
    table = parse_toml(text, source)
    keys = ("certificate", "threshold", "rails", "routes", *RoutePolicy.__struct_fields__)
    _check_keys(source, "key", table, keys)
    base = {key: value for key, value in table.items() if key in RoutePolicy.__struct_fields__ and key != "rails"}
    rails = {name: _read_rail(name, row, source) for name, row in _get_table(table, "rails", source).items()}
    if not rails:
        raise UsageError(f"{source} names no rail. Add one, such as [rails.injection].")
    routes = {
        name: _convert({**base, **_get_row(row, f"[routes.{name}]", source)}, RoutePolicy, f"[routes.{name}]", source)
        for name, row in _get_table(table, "routes", source).items()
    }
    default = _convert(base, RoutePolicy, "the policy", source)
    for route in (default, *routes.values()):
        for rail in route.rails or ():
            if rail not in rails:
                raise UnknownName(f"rail in {source}", rail, rails)
        if not (route.deadline > 0 and 0 < route.share <= 1):
            raise UsageError(f"{source}: deadline is above 0, and share above 0 and at most 1.")
    certificate, threshold = table.get("certificate"), table.get("threshold")
    if not isinstance(certificate, str | None):
        raise InputError(f"{source}: certificate is the name of a file.")
    if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise InputError(f"{source}: threshold is a risk from 0 to 1.")
    return GuardPolicy(rails=rails, default=default, routes=routes, certificate=certificate, threshold=threshold)


def _read_rail(name: str, row: Any, source: str) -> RailSettings:
    settings: RailSettings = _convert(_get_row(row, f"[rails.{name}]", source), RailSettings, f"[rails.{name}]", source)
    kind = settings.kind or name
    kinds = (*SCANNERS, *BACKENDS, GROUNDEDNESS)
    if kind not in kinds:
        raise UnknownName(f"kind of rail in {source}", kind, kinds)
    if settings.timeout <= 0 or settings.weight < 0:
        raise UsageError(f"{source}: timeout of [rails.{name}] is above 0, and weight at least 0.")
    if kind in SCANNERS:
        make_scanner(kind, settings.options)
    elif kind in BACKENDS:
        _convert(settings.options, BACKENDS[kind], f"options of [rails.{name}]", source)
    elif settings.options:
        raise UnknownName(f"option of {GROUNDEDNESS}", next(iter(settings.options)), ("no options",))
    return settings


def _get_table(table: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    return _get_row(table.get(name, {}), f"[{name}]", source)


def _get_row(row: Any, key_path: str, source: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InputError(f"{source}: {key_path} is a table.")
    return row


def _check_keys(source: str, kind: str, table: Mapping[str, Any], known_keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in known_keys:
            raise UnknownName(f"{kind} in {source}", key, known_keys)


def _convert(row: dict[str, Any], type_: Any, key_path: str, source: str) -> Any:
    _check_keys(source, f"key of {key_path}", row, type_.__struct_fields__)
    try:
        return msgspec.convert(row, type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {key_path}: {error}") from None
