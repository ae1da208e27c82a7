"""Tree of spans: the steps of a trace without duplicate records, and the span that wrote the answer.

Instrumentations often record the same work twice; such a span is merged into the step around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import NamedTuple, TypeVar

from msgspec import Struct

from ragfault.io.otel.semantic_conventions import SpanRole, detect_role, get_stated_kind
from ragfault.io.otel.spans import OtelSpan, choose_fuller_span
from ragfault.model.records import StepKind

OBSERVER_ROLES = ("judge", "guard")
"""Roles of spans that observe the system; work inside of them is not the system's own."""
LEAF_ROLES = ("llm", "embedding")
"""Roles that never nest: an inner span of the same role is a duplicate."""
STATING_ROLES = ("llm", "stage", "planner", "tool")
"""Roles whose kind the span may state: metadata are passed on to searches within a rewriting, too."""
INNER_ROLES = (None, "llm", "embedding", "part", "stage", *OBSERVER_ROLES)
"""Roles that a stage may enclose as its own work: what encloses a search is more than a rewriting."""


class SpanStep(Struct, frozen=True, eq=False, dict=True):
    """A span of a RAG system with the spans that record the same work again."""

    span: OtelSpan
    role: SpanRole
    duplicates: tuple[SpanStep, ...] = ()
    """The same work, recorded again."""
    outer_roles: tuple[SpanRole, ...] = ()
    """The roles of the steps around it, the nearest first."""
    parent: str | None = None
    """The span id of the nearest step around it."""
    kind: StepKind | None = None
    """The kind that the span states, or of a call of a model the stage that it is the work of."""

    @property
    def records(self) -> tuple[OtelSpan, ...]:
        """Return all spans of this work, the outermost first."""
        if not self.duplicates:
            return (self.span,)
        return (self.span, *(item for step in self.duplicates for item in step.records))


Content = TypeVar("Content")


def read_once(read: Callable[[SpanStep], Content]) -> Callable[[SpanStep], Content]:
    """Make a function of a step compute its result once a step: a trace and its steps show the same content."""
    name = read.__name__

    @wraps(read)
    def get(step: SpanStep) -> Content:
        contents = step.__dict__
        if name not in contents:
            contents[name] = read(step)
        content: Content = contents[name]
        return content

    return get


class SpanTree(NamedTuple):
    """The steps of a trace and its root."""

    root: OtelSpan
    """The span without a parent, else the first whose parent is missing."""
    steps: tuple[SpanStep, ...]
    spans: tuple[OtelSpan, ...]
    """All spans, in order."""
    attribute_names: frozenset[str] = frozenset()
    """The names of the attributes of any span, and of the resource of the root."""

    def select_steps(self, *roles: SpanRole) -> list[SpanStep]:
        """Return the steps of these roles, in order."""
        return [step for step in self.steps if step.role in roles]


def build_span_tree(spans: Iterable[OtelSpan]) -> SpanTree:
    """Build the tree of the spans of one trace; of spans with the same id the one that ended last counts.

    >>> held = {"gen_ai.operation.name": "retrieval"}
    >>> outer = OtelSpan(trace="a", id="1", name="R.retrieve", end=9, attributes=held)
    >>> inner = OtelSpan(trace="a", id="2", name="R._retrieve", end=8, parent="1", attributes=held)
    >>> [step] = build_span_tree([inner, outer]).steps
    >>> step.span.id, [part.id for part in step.records]
    ('1', ['1', '2'])
    """
    by_id: dict[str, OtelSpan] = {}
    for span in spans:
        by_id[span.id] = choose_fuller_span(by_id[span.id], span) if span.id in by_id else span
    ordered = tuple(sorted(by_id.values(), key=lambda span: (span.start, -span.end, span.id)))
    tree = _SpanTreeBuilder(by_id, ordered)
    steps = tuple(step for span in ordered if (step := tree.build_step(span)) is not None)
    root = _select_root(ordered, by_id)
    names = frozenset(root.resource).union(*(span.attributes for span in ordered))
    return SpanTree(root, steps, ordered, names)


def _select_root(ordered: Sequence[OtelSpan], by_id: dict[str, OtelSpan]) -> OtelSpan:
    for span in ordered:
        if span.parent is None:
            return span
    return next((span for span in ordered if span.parent not in by_id), ordered[0])


class _SpanTreeBuilder:
    """Nesting of spans by their roles."""

    def __init__(self, by_id: dict[str, OtelSpan], ordered: Sequence[OtelSpan]) -> None:
        self.by_id = by_id
        self.roles = {span.id: detect_role(span) for span in ordered}
        self.owners = {span.id: self._get_owner(span) for span in ordered if self.roles[span.id] is not None}
        self.duplicates: dict[str, list[OtelSpan]] = {}
        for span in ordered:
            owner = self.owners.get(span.id)
            if owner is not None and self._is_duplicate(span, owner):
                self.duplicates.setdefault(owner.id, []).append(span)
        self.duplicate_ids = {span.id for spans in self.duplicates.values() for span in spans}
        self.stages = self._collect_stages(ordered)

    def _collect_stages(self, ordered: Sequence[OtelSpan]) -> dict[str, StepKind]:
        """Map the ids of the stages that enclose nothing but calls of models to their kinds."""
        stages = {
            span.id: kind
            for span in ordered
            if self.roles[span.id] == "stage" and (kind := get_stated_kind(span.attributes)) is not None
        }
        for span in ordered if stages else ():
            if self.roles[span.id] not in INNER_ROLES:
                for name in self._collect_outer_roles(span):
                    stages.pop(name, None)
        return stages

    def _get_owner(self, span: OtelSpan) -> OtelSpan | None:
        """Return the nearest span around it that has a role; None where parents form a circle."""
        met = {span.id}
        parent = self.by_id.get(span.parent or "")
        while parent is not None and parent.id not in met:
            if self.roles[parent.id] is not None:
                return parent
            met.add(parent.id)
            parent = self.by_id.get(parent.parent or "")
        return None

    def _is_duplicate(self, span: OtelSpan, owner: OtelSpan) -> bool:
        """Tell whether a span records the same work as its owner."""
        if self.roles[span.id] != self.roles[owner.id]:
            return False
        if self.roles[span.id] in LEAF_ROLES:
            return True
        name, _, method = span.name.partition(".")
        return bool(method) and owner.name.partition(".")[0] == name and "." in owner.name

    def build_step(self, span: OtelSpan) -> SpanStep | None:
        """Build the step of a span; None for one without a role, a duplicate or an observer."""
        mine = self.roles[span.id]
        if mine is None or mine == "judge" or span.id in self.duplicate_ids:
            return None
        around = self._collect_outer_roles(span)
        if any(outer in OBSERVER_ROLES for outer in around.values()):
            return None
        duplicates = self._collect_duplicates(span, {span.id})
        parent = next((name for name, role in around.items() if role != "part"), None)
        stated = get_stated_kind(span.attributes) if mine in STATING_ROLES else None
        if stated is None and mine == "llm" and parent is not None:
            stated = self.stages.get(parent)
        return SpanStep(span, mine, duplicates, tuple(around.values()), parent, stated)

    def _collect_outer_roles(self, span: OtelSpan) -> dict[str, SpanRole]:
        """Map the ids of the steps around a span, the nearest first, to their roles."""
        roles: dict[str, SpanRole] = {}
        met = {span.id}
        owner = self.owners.get(span.id)
        while owner is not None and owner.id not in met:
            met.add(owner.id)
            around = self.roles[owner.id]
            if around is not None and owner.id not in self.duplicate_ids:
                roles[owner.id] = around
            owner = self.owners.get(owner.id)
        return roles

    def _collect_duplicates(self, span: OtelSpan, met: set[str]) -> tuple[SpanStep, ...]:
        mine = self.roles[span.id]
        steps = []
        for double in self.duplicates.get(span.id, ()):
            if mine is not None and double.id not in met:
                met.add(double.id)
                steps.append(SpanStep(double, mine, self._collect_duplicates(double, met)))
        return tuple(steps)


RESPONSE_ID_ATTRIBUTE = "gen_ai.response.id"


class TraceOrigin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The span that wrote the answer, and the id of the response."""

    span: str
    """16 hex digits."""
    response: str | None = None
    """The response id of the model provider."""


def locate_origin(spans: Iterable[OtelSpan]) -> TraceOrigin:
    """Locate the model call that ended last, outside of retrieval; without one, the root.

    >>> held = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"}
    >>> chat = OtelSpan(trace="a", id="2", parent="1", name="chat", attributes=held)
    >>> locate_origin([OtelSpan(trace="a", id="1", name="ask"), chat])
    TraceOrigin(span='2', response='r1')
    """
    outline = build_span_tree(spans)
    writers = [step for step in outline.select_steps("llm") if not {"retriever", "reranker"} & set(step.outer_roles)]
    if not writers:
        return TraceOrigin(span=outline.root.id)
    last = max(writers, key=lambda step: (step.span.end, step.span.start, step.span.id))
    named = (item.attributes.get(RESPONSE_ID_ATTRIBUTE) for item in last.records)
    return TraceOrigin(
        span=last.span.id, response=next((name for name in named if isinstance(name, str) and name), None)
    )
