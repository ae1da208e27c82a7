"""What a tuning says in plain sentences."""

from __future__ import annotations

from ragfault.tuning.records import Gain, Tuned

__all__ = ["cost", "sentence", "sentences", "spread"]

NAMES = {
    "query": "changing the query",
    "filter": "filtering",
    "retrieve": "searching",
    "fusion": "fusing",
    "rerank": "reranking",
    "select": "selecting",
    "compress": "compressing",
    "chunker": "cutting",
}
QUICK = 0.5
"""Milliseconds below which nothing is said of them."""
FEW = 20
"""Tokens below which nothing is said of them."""


def spread(gain: Gain) -> str:
    """A gain with its interval: "0.06 [0.03, 0.09]"."""
    found = gain.difference
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def cost(gain: Gain) -> str:
    """What a gain costs or saves; nothing where that is little.

    A cost is of the mean query.
    """
    parts = []
    if abs(gain.ms) >= QUICK:
        parts.append(f"{'costs' if gain.ms > 0 else 'saves'} {abs(gain.ms):,.0f} ms")
    if abs(gain.tokens) >= FEW:
        parts.append(f"{'costs' if gain.tokens > 0 else 'saves'} {abs(gain.tokens):,.0f} tokens")
    return " and ".join(parts)


def sentence(gain: Gain, metric: str) -> str:
    """A gain in a sentence: what, by how much, at what cost, and whether that is shown."""
    subject = f"{NAMES.get(gain.what, gain.what)} by {gain.ours}"
    if gain.theirs != "none":
        subject += f" instead of {gain.theirs}"
    paid = cost(gain)
    figures = spread(gain)
    if gain.shown == "gains":
        return f"{subject} gains {figures} {metric}" + (f" and {paid}" if paid else "") + "."
    if gain.shown == "loses":
        return f"{subject} loses {figures} {metric}" + (f" and {paid}" if paid else "") + "."
    return f"{subject}: no gain is shown, {figures} {metric}" + (f"; it {paid}" if paid else "") + "."


def sentences(found: Tuned) -> tuple[str, ...]:
    """What came of a tuning, the most important first."""
    said = []
    for gain in found.gains:
        verb = {"gains": "gains", "loses": "LOSES", "no gain shown": "shows no gain:"}[gain.shown]
        paid = cost(gain)
        said.append(
            f"Against {gain.what} the recommended pipeline {verb} {spread(gain)} {found.metric} on "
            f"{found.held_out:,} held-out questions (p = {gain.adjusted:.3g})"
            + (f" and {paid}" if paid else "")
            + "."
        )
    said += [_capital(sentence(gain, found.metric)) for gain in found.steps]
    said += [_refused(gain, found.metric) for gain in found.rejected]
    if found.stopped:
        said.append(f"The budget was spent at the step {found.stopped}: what follows it was not searched.")
    return tuple(said)


def _refused(gain: Gain, metric: str) -> str:
    """A candidate that was not taken: the gain is of what was taken, so that its own is the opposite."""
    found = gain.difference
    own = f"{0 - found.mean:+.3f} [{-found.high:+.3f}, {-found.low:+.3f}]"
    name = f"{NAMES.get(gain.what, gain.what)} by {gain.theirs}"
    instead = "" if gain.ours == "none" else f" in place of {gain.ours}"
    if gain.shown == "no gain shown":
        return _capital(f"{name}{instead} gains nothing that is shown: {own} {metric}.")
    verb = "would lose" if gain.shown == "gains" else "would have gained"
    return _capital(f"{name}{instead} {verb} {own} {metric}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
