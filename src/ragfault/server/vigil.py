"""The vigil: drops called by the sequential test as minutes come in, each with its beginning and the layer to blame.

The state of every test is a few numbers, kept in the store as JSON, so that a server that was ended goes on watching.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ragfault.findings.changes import Fault
from ragfault.findings.monitoring import watched
from ragfault.findings.monitoring_blaming import blame
from ragfault.findings.monitoring_detecting import CALM, Call, Watch, advance, bar, began, begin, reference
from ragfault.findings.monitoring_windows import DAY, Key, Series
from ragfault.runs import Measure

__all__ = ["Beat", "Called", "Vigil", "beat", "fault", "name", "opened", "packed"]

LATE = 2
"""Minutes that are waited before one is taken in: traces are judged a little after they come."""


class Beat(Struct, frozen=True, kw_only=True):
    """One metric on one route under watch."""

    metric: str
    route: str | None
    watch: Watch | None = None
    """None: the reference is still being gathered."""
    call: Call | None = None
    """A drop that is called and not over."""


class Called(Struct, frozen=True, kw_only=True):
    """A drop that was just called, or is just over."""

    metric: str
    route: str | None
    call: Call
    over: bool = False


class Vigil(Struct, frozen=True, kw_only=True):
    """All that is under watch, by `name`."""

    beats: dict[str, Beat] = {}


def packed(state: Vigil) -> str:
    """The state as a text; JSON has no infinity, so that it is MessagePack beneath."""
    return base64.b64encode(msgspec.msgpack.encode(state)).decode()


def opened(text: str) -> Vigil:
    """The state that a text is; the empty text is nothing under watch.

    >>> opened(packed(Vigil())) == opened("") == Vigil()
    True
    """
    return msgspec.msgpack.decode(base64.b64decode(text), type=Vigil) if text else Vigil()


def name(metric: str, route: str | None) -> str:
    """What a metric on a route is called in the state."""
    return msgspec.json.encode([metric, route or ""]).decode()


def beat(
    state: Vigil,
    all_: Mapping[Key, Series],
    measures: Mapping[str, Measure],
    until: int,
    length: int,
    rate: float,
) -> tuple[Vigil, tuple[Called, ...]]:
    """Take in the minutes to before `until`, and say which drops were called and which are over.

    The first `length` minutes of a metric on a route are its reference. After a call nothing is called until the mean
    is back at the floor over as many minutes as the call took, at least 90.
    """
    beats, told = dict(state.beats), []
    for metric, route, _ in watched({key: each for key, each in all_.items() if key[2] is None}):
        whole, known = all_[metric, route, None], measures[metric]
        old = beats.get(name(metric, route), Beat(metric=metric, route=route))
        new = _referred(old, whole, known, until, length, rate) if old.watch is None else old
        new, called = _advanced(new, whole, until - LATE, rate)
        beats[name(metric, route)] = new
        told += [called] if called is not None else []
    return Vigil(beats=beats), tuple(told)


def _referred(old: Beat, whole: Series, known: Measure, until: int, length: int, rate: float) -> Beat:
    """Begin to watch where the reference is long enough."""
    if not whole.minutes.size or until - LATE - int(whole.minutes[0]) < length:
        return old
    first = int(whole.minutes[0])
    made = reference((old.metric, old.route), whole.between(first, first + length), known, rate=rate)
    return old if made is None else msgspec.structs.replace(old, watch=begin(made, made.last))


def _advanced(old: Beat, whole: Series, until: int, rate: float) -> tuple[Beat, Called | None]:
    """Take in the minutes that are new."""
    watch = old.watch
    if watch is None:
        return old, None
    live = whole.between(watch.minute + 1, until)
    if old.call is not None:
        return _rested(old, watch, whole, until)
    for at, minute in enumerate(live.minutes.tolist()):
        watch = advance(watch, minute, float(live.n[at]), float(live.sum[at]), float(live.squares[at]))
        if watch.level >= bar(rate):
            first, low, high = began(whole, watch)
            call = Call(called=minute, began=first, earliest=low, latest=high, level=watch.level)
            made = msgspec.structs.replace(old, watch=watch, call=call)
            return made, Called(metric=old.metric, route=old.route, call=call)
    return msgspec.structs.replace(old, watch=watch), None


def _rested(old: Beat, watch: Watch, whole: Series, until: int) -> tuple[Beat, Called | None]:
    """Watch anew where the mean is back at the floor."""
    call, found = old.call, watch.reference
    assert call is not None
    window = max(CALM, call.called - call.began)
    mean = whole.between(until - window, until).mean
    if mean is None or until <= call.called + window:
        return old, None
    unit = (mean - found.low) / (found.high - found.low)
    if (unit if found.rising else 1 - unit) < found.floor:
        return old, None
    over = msgspec.structs.replace(call, recovered=until - 1)
    made = msgspec.structs.replace(old, watch=begin(found, until), call=None)
    return made, Called(metric=old.metric, route=old.route, call=over, over=True)


def fault(
    all_: Mapping[Key, Series],
    measures: Mapping[str, Measure],
    route: str | None,
    since: int,
    until: int,
) -> Fault | None:
    """The layer that the decision tree names between the day before a minute and the time since; None where none."""
    return blame(all_, measures, route, (since - DAY, since), (since, until)).fault
