"""Tree of spans: the steps of a trace without duplicate records, and the span that wrote the answer.

Instrumentations often record the same work twice; such a span is merged into the step around it.

Instrumentations record the same work twice: LlamaIndex a `_retrieve` inside `retrieve` and a `complete` inside
`predict`, others the call to a model by the framework and again by the client beneath it. Such an operation
goes into the step around it, which then says what either of them said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ragfault.io.otel.semantic_conventions import SpanRole, detect_role
from ragfault.io.otel.spans import OtelSpan, choose_fuller_span

OBSERVER_ROLES = ("judge", "guard")
"""Roles of those who look at what others do: what happens inside of them is not the system's own work."""

LEAF_ROLES = ("llm", "embedding")
"""Roles that cannot really be inside one another."""


class SpanStep(NamedTuple):
    """An operation of a RAG system with what was recorded of it a second time."""

    span: OtelSpan
    role: SpanRole
    duplicates: tuple[SpanStep, ...] = ()
    """The same work, recorded again."""
    outer_roles: tuple[SpanRole, ...] = ()
    """The roles of the steps around it, the nearest first."""
    parent: str | None = None
    """The span id of the nearest step around it."""

    @property
    def records(self) -> tuple[OtelSpan, ...]:
        """All records of this work, the outermost first."""
        return (self.span, *(part for step in self.duplicates for part in step.records))


class SpanTree(NamedTuple):
    """The steps of a trace and its root."""

    root: OtelSpan
    """The operation without a parent, else the first of those whose parent is not there."""
    steps: tuple[SpanStep, ...]
    spans: tuple[OtelSpan, ...]
    """All of them, in order."""

    def select_steps(self, *roles: SpanRole) -> list[SpanStep]:
        """The steps of these roles, in order."""
        return [step for step in self.steps if step.role in roles]


def build_span_tree(spans: Iterable[OtelSpan]) -> SpanTree:
    """The outline of the operations of one trace; of those that share an id, the one that ended last counts.

    >>> held = {"gen_ai.operation.name": "retrieval"}
    >>> outer = OtelSpan(trace="a", id="1", name="R.retrieve", end=9, attributes=held)
    >>> inner = OtelSpan(trace="a", id="2", name="R._retrieve", end=8, parent="1", attributes=held)
    >>> [step] = build_span_tree([inner, outer]).steps
    >>> step.span.id, [part.id for part in step.parts]
    ('1', ['1', '2'])
    """
    kept: dict[str, OtelSpan] = {}
    for one in spans:
        kept[one.id] = choose_fuller_span(kept[one.id], one) if one.id in kept else one
    ordered = tuple(sorted(kept.values(), key=lambda one: (one.start, -one.end, one.id)))
    tree = _SpanTreeBuilder(kept, ordered)
    steps = tuple(step for one in ordered if (step := tree.build_step(one)) is not None)
    return SpanTree(_select_root(ordered, kept), steps, ordered)


def _select_root(ordered: Sequence[OtelSpan], by_id: dict[str, OtelSpan]) -> OtelSpan:
    for one in ordered:
        if one.parent is None:
            return one
    return next((one for one in ordered if one.parent not in by_id), ordered[0])


class _SpanTreeBuilder:
    """Who is inside whom, by the roles that matter."""

    def __init__(self, by_id: dict[str, OtelSpan], ordered: Sequence[OtelSpan]) -> None:
        self.by_id = by_id
        self.roles = {one.id: detect_role(one) for one in ordered}
        self.owners = {one.id: self._get_owner(one) for one in ordered if self.roles[one.id] is not None}
        self.duplicates: dict[str, list[OtelSpan]] = {}
        for one in ordered:
            owner = self.owners.get(one.id)
            if owner is not None and self._is_duplicate(one, owner):
                self.duplicates.setdefault(owner.id, []).append(one)
        self.duplicate_ids = {one.id for found in self.duplicates.values() for one in found}

    def _get_owner(self, span: OtelSpan) -> OtelSpan | None:
        """The nearest operation around it that has a role; parents that go round in a circle have none."""
        met = {span.id}
        parent = self.by_id.get(span.parent or "")
        while parent is not None and parent.id not in met:
            if self.roles[parent.id] is not None:
                return parent
            met.add(parent.id)
            parent = self.by_id.get(parent.parent or "")
        return None

    def _is_duplicate(self, span: OtelSpan, owner: OtelSpan) -> bool:
        """Whether an operation is its owner once more."""
        if self.roles[span.id] != self.roles[owner.id]:
            return False
        if self.roles[span.id] in LEAF_ROLES:
            return True
        name, _, method = span.name.partition(".")
        return bool(method) and owner.name.partition(".")[0] == name and "." in owner.name

    def build_step(self, span: OtelSpan) -> SpanStep | None:
        """The step that an operation is; None for one without a role, a double, and what stands apart."""
        mine = self.roles[span.id]
        if mine is None or mine == "judge" or span.id in self.duplicate_ids:
            return None
        around = self._collect_outer_roles(span)
        if any(outer in OBSERVER_ROLES for outer in around.values()):
            return None
        duplicates = self._collect_duplicates(span, {span.id})
        parent = next((name for name, role in around.items() if role != "part"), None)
        return SpanStep(span, mine, duplicates, tuple(around.values()), parent)

    def _collect_outer_roles(self, span: OtelSpan) -> dict[str, SpanRole]:
        """Map the ids of the steps around a span, the nearest first, to their roles."""
        found: dict[str, SpanRole] = {}
        met = {span.id}
        owner = self.owners.get(span.id)
        while owner is not None and owner.id not in met:
            met.add(owner.id)
            around = self.roles[owner.id]
            if around is not None and owner.id not in self.duplicate_ids:
                found[owner.id] = around
            owner = self.owners.get(owner.id)
        return found

    def _collect_duplicates(self, span: OtelSpan, met: set[str]) -> tuple[SpanStep, ...]:
        mine = self.roles[span.id]
        found = []
        for double in self.duplicates.get(span.id, ()):
            if mine is not None and double.id not in met:
                met.add(double.id)
                found.append(SpanStep(double, mine, self._collect_duplicates(double, met)))
        return tuple(found)


RESPONSE_ID_ATTRIBUTE = "gen_ai.response.id"


class TraceOrigin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The span that a trace is about, and the response that it got."""

    span: str
    """16 hex digits."""
    response: str | None = None
    """What the provider of the model called it."""


def locate_origin(spans: Iterable[OtelSpan]) -> TraceOrigin:
    """The call to a model that ended last, outside of retrieval; where there is none, the root.

    >>> held = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"}
    >>> chat = OtelSpan(trace="a", id="2", parent="1", name="chat", attributes=held)
    >>> locate_origin([OtelSpan(trace="a", id="1", name="ask"), chat])
    Origin(span='2', response='r1')
    """
    outline = build_span_tree(spans)
    writers = [
        step for step in outline.select_steps("llm") if not {"retriever", "reranker"} & set(step.outer_roles)
    ]
    if not writers:
        return TraceOrigin(span=outline.root.id)
    last = max(writers, key=lambda step: (step.span.end, step.span.start, step.span.id))
    named = (part.attributes.get(RESPONSE_ID_ATTRIBUTE) for part in last.records)
    return TraceOrigin(
        span=last.span.id,
        response=next((name for name in named if isinstance(name, str) and name), None),
    )
