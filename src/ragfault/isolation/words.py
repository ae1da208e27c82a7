"""The verdict on a metric in words: which part made the change, and what is not known of the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ragfault.isolation.records import Attribution, Effect

__all__ = ["told"]


def told(found: Attribution) -> Attribution:
    """The attribution with its verdict."""
    return replace(found, verdict=f"{'. '.join(_sentences(found))}.")


def _sentences(found: Attribution) -> list[str]:
    if found.total is None:
        lost = f", though {found.lost:,} are in some" if found.lost else ""
        return [f"No query is scored in every configuration{lost}"]
    movers = [share for share in found.shares if share.moved]
    open_ = [share for share in found.shares if share.state == "cannot tell"]
    same = [share.parts[0] for share in found.shares if share.same]
    rest = [share.parts[0] for share in found.shares if share.state == "steady" and not share.same]
    told = [_moved(movers, found)] if movers else []
    if open_:
        told.append(_open(open_))
    if rest:
        told.append(f"{_row(rest)} did not move it by more than {found.margin:.2g}")
    if same:
        told.append(f"{_row(same)} changed nothing that it reads")
    return told + [_together(pair) for pair in found.interactions if pair.moved]


def _moved(movers: Sequence[Effect], found: Attribution) -> str:
    """Who moved it, the strongest first."""
    assert found.total is not None
    order = sorted(movers, key=lambda share: -abs(share.difference.mean))
    pieces = []
    for share in order:
        verb = "raised" if share.difference.mean > 0 else "lowered"
        pieces.append(f"{share.parts[0]} {verb} it by {abs(share.difference.mean):.3f}")
    return f"{_row(pieces)}, of a whole change of {found.total.difference.mean:+.3f}".replace("-", "−")


def _open(shares: Sequence[Effect]) -> str:
    """For whom it cannot be told, and how many queries would tell."""
    names = _row([share.parts[0] for share in shares])
    needs = [share.needed for share in shares]
    known = [need for need in needs if need is not None]
    enough = f"; about {max(known):,} scored queries would" if len(known) == len(needs) else ""
    return f"Of {names} it cannot be told{enough}"


def _together(pair: Effect) -> str:
    size = f"{pair.difference.mean:+.3f}".replace("-", "−")
    return f"{_row(pair.parts)} depend on each other: swapped together they do {size} more than one by one"


def _row(names: Sequence[str]) -> str:
    """Names in a row.

    >>> _row(["a"]), _row(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
