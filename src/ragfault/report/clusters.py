"""The clusters of failing traces, for the terminal and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ragfault.clustering import Cluster, Clusters
from ragfault.findings import KINDS
from ragfault.report.plain import LAYERS, clip, named, percent, plural
from ragfault.report.terminal import paint

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["course", "extent", "headline", "legend", "render", "spoken", "standing", "to_json"]

MOST = 6
"""So many kinds of problem are told of a cluster."""

BARS = "▁▂▃▄▅▆▇█"

STYLES = {"rising": "red", "falling": "green", "steady": "dim", "cannot tell": "dim"}


def render(found: Clusters, *, width: int | None = None, colour: bool = False) -> str:
    """The clusters, the largest first, each with what shows it and what mends it."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(headline(found), style="bold"),
        Text(legend(found), style="dim"),
    ]
    for one in found.clusters:
        if one.state == "open":
            parts += _cluster(one)
    if found.singles is not None:
        parts += _cluster(found.singles)
    quiet = [one for one in found.clusters if one.state != "open"]
    if quiet:
        parts.append(Text("\nMuted and resolved", style="bold cyan"))
        parts += [Text(f"  {one.id}  {one.state}  {extent(one)}  {clip(one.name, 100)}") for one in quiet]
    if found.gone:
        parts.append(Text(f"\nNot seen any more: {'; '.join(clip(name, 100) for name in found.gone)}"))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def headline(found: Clusters) -> str:
    """How many traces fail, and in how many ways."""
    if not found.failures:
        return f"None of {plural(found.traces)} fails."
    shown = [one for one in found.clusters if one.state == "open"]
    many = f"{len(shown):,} cluster{'' if len(shown) == 1 else 's'}"
    alone = f", {found.singles.size:,} of them single failures" if found.singles else ""
    return f"{found.failures:,} of {plural(found.traces)} fail{alone}: {many}."


def legend(found: Clusters) -> str:
    """Of which runs the clusters are, and how they were put together."""
    return f"{named(found.runs)} · {found.how} · {clip(found.embedder, 80)}"


def extent(one: Cluster) -> str:
    """The size of a cluster and its share of all traces."""
    share = one.share
    return f"{plural(one.size)}, {percent(share.mean)} [{percent(share.low)}, {percent(share.high)}]"


def standing(one: Cluster) -> str:
    """New, come back, or known since a run; and whose it is."""
    if one.id == "single":
        return ""
    since = f"since {clip(one.since, 60)}" if one.since else ""
    what = "came back" if one.reopened else "new" if one.new else since
    return ", ".join(
        part for part in (what, f"assigned to {clip(one.assigned, 40)}" if one.assigned else "") if part
    )


def course(one: Cluster) -> str:
    """The share of a cluster over runs or time as bars, with the first and last figure; nothing without a course."""
    if not one.points:
        return ""
    means = [point.share.mean for point in one.points]
    top = max(means) or 1.0
    bars = "".join(BARS[round(mean / top * (len(BARS) - 1))] for mean in means)
    ends = f"{percent(means[0])} → {percent(means[-1])}"
    return f"{bars} {ends} ({clip(one.points[0].label, 40)} → {clip(one.points[-1].label, 40)}), {one.trend}"


def spoken(one: Cluster) -> str:
    """What is wrong with its traces, the commonest first."""
    return "; ".join(f"{KINDS[kind].title} ×{count:,}" for kind, count in list(one.kinds.items())[:MOST])  # type: ignore[index]


def _cluster(one: Cluster) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    def inset(*parts: str | tuple[str, str]) -> RenderableType:
        return Padding(Text.assemble(*parts), (0, 0, 0, 4))

    label = "" if one.id == "single" else f"{one.id}  "
    yield Text.assemble("\n", (f"{label}{clip(one.name, 160)}", "bold cyan"))
    said = standing(one)
    layer = "" if one.id == "single" else f"{LAYERS[one.layer]} · "
    yield inset(f"{layer}{extent(one)}", f" · {said}" if said else "")
    if one.points:
        yield inset("trend: ", (course(one), STYLES[one.trend]))
    if one.before is not None:
        before = one.before
        yield inset(
            f"in {clip(before.label, 60)}: {plural(before.failures)}, {percent(before.share.mean)} "
            f"[{percent(before.share.low)}, {percent(before.share.high)}]"
        )
    yield inset((spoken(one), "dim"))
    for each in one.shown:
        yield inset((clip(each.trace, 60), "yellow"), f"  {clip(each.query, 160)}")
        yield Padding(
            Text(f"{each.kind.replace('_', ' ')}: {clip(each.text, 240)}", style="dim"), (0, 0, 0, 6)
        )
    if one.id != "single":
        yield inset(("to mend it: ", "green"), "; ".join(one.remedies))


def to_json(found: Clusters) -> str:
    """All of it as JSON, without what clusters are recognised by."""
    bare = [replace(one, terms={}, keys=(), centroid=()) for one in found.clusters]
    singles = None if found.singles is None else replace(found.singles, terms={}, keys=(), centroid=())
    made = msgspec.to_builtins(replace(found, clusters=tuple(bare), singles=singles))
    for one in [*made["clusters"], *([made["singles"]] if made["singles"] else [])]:
        for name in ("terms", "keys", "centroid"):
            del one[name]
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"
