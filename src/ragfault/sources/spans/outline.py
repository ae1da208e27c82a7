"""The outline of a trace: its operations as steps, each kept once, in the order of time.

Instrumentations record the same work twice: LlamaIndex a `_retrieve` inside `retrieve` and a `complete` inside
`predict`, others the call to a model by the framework and again by the client beneath it. Such an operation
goes into the step around it, which then says what either of them said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragfault.sources.spans.operation import Operation, fuller
from ragfault.sources.spans.vocabulary import Role, role

__all__ = ["Outline", "Step", "outlined"]

APART = ("judge", "guard")
"""Roles of those who look at what others do: what happens inside of them is not the system's own work."""

SINGLE = ("llm", "embedding")
"""Roles that cannot really be inside one another."""


class Step(NamedTuple):
    """An operation of a RAG system with what was recorded of it a second time."""

    operation: Operation
    role: Role
    inner: tuple[Step, ...] = ()
    """The same work, recorded again."""
    within: tuple[Role, ...] = ()
    """The roles of the steps around it, the nearest first."""

    @property
    def parts(self) -> tuple[Operation, ...]:
        """All records of this work, the outermost first."""
        return (self.operation, *(part for step in self.inner for part in step.parts))


class Outline(NamedTuple):
    """The steps of a trace and its root."""

    root: Operation
    """The operation without a parent, else the first of those whose parent is not there."""
    steps: tuple[Step, ...]
    operations: tuple[Operation, ...]
    """All of them, in order."""

    def of(self, *roles: Role) -> list[Step]:
        """The steps of these roles, in order."""
        return [step for step in self.steps if step.role in roles]


def outlined(operations: Iterable[Operation]) -> Outline:
    """The outline of the operations of one trace; of those that share an id, the one that ended last counts.

    >>> held = {"gen_ai.operation.name": "retrieval"}
    >>> outer = Operation(trace="a", id="1", name="R.retrieve", end=9, attributes=held)
    >>> inner = Operation(trace="a", id="2", name="R._retrieve", end=8, parent="1", attributes=held)
    >>> [step] = outlined([inner, outer]).steps
    >>> step.operation.id, [part.id for part in step.parts]
    ('1', ['1', '2'])
    """
    kept: dict[str, Operation] = {}
    for one in operations:
        kept[one.id] = fuller(kept[one.id], one) if one.id in kept else one
    ordered = tuple(sorted(kept.values(), key=lambda one: (one.start, -one.end, one.id)))
    tree = _Tree(kept, ordered)
    steps = tuple(step for one in ordered if (step := tree.step(one)) is not None)
    return Outline(_root(ordered, kept), steps, ordered)


def _root(ordered: Sequence[Operation], kept: dict[str, Operation]) -> Operation:
    for one in ordered:
        if one.parent is None:
            return one
    return next((one for one in ordered if one.parent not in kept), ordered[0])


class _Tree:
    """Who is inside whom, by the roles that matter."""

    def __init__(self, kept: dict[str, Operation], ordered: Sequence[Operation]) -> None:
        self.kept = kept
        self.roles = {one.id: role(one) for one in ordered}
        self.owners = {one.id: self._owner(one) for one in ordered if self.roles[one.id] is not None}
        self.doubles: dict[str, list[Operation]] = {}
        for one in ordered:
            owner = self.owners.get(one.id)
            if owner is not None and self._same(one, owner):
                self.doubles.setdefault(owner.id, []).append(one)
        self.doubled = {one.id for found in self.doubles.values() for one in found}

    def _owner(self, one: Operation) -> Operation | None:
        """The nearest operation around it that has a role; parents that go round in a circle have none."""
        met = {one.id}
        parent = self.kept.get(one.parent or "")
        while parent is not None and parent.id not in met:
            if self.roles[parent.id] is not None:
                return parent
            met.add(parent.id)
            parent = self.kept.get(parent.parent or "")
        return None

    def _same(self, one: Operation, owner: Operation) -> bool:
        """Whether an operation is its owner once more."""
        if self.roles[one.id] != self.roles[owner.id]:
            return False
        if self.roles[one.id] in SINGLE:
            return True
        name, _, method = one.name.partition(".")
        return bool(method) and owner.name.partition(".")[0] == name and "." in owner.name

    def step(self, one: Operation) -> Step | None:
        """The step that an operation is; None for one without a role, a double, and what stands apart."""
        mine = self.roles[one.id]
        if mine is None or mine == "judge" or one.id in self.doubled:
            return None
        around = self._around(one)
        if any(outer in APART for outer in around):
            return None
        return Step(one, mine, self._inner(one, {one.id}), around)

    def _around(self, one: Operation) -> tuple[Role, ...]:
        found: list[Role] = []
        met = {one.id}
        owner = self.owners.get(one.id)
        while owner is not None and owner.id not in met:
            met.add(owner.id)
            around = self.roles[owner.id]
            if around is not None and owner.id not in self.doubled:
                found.append(around)
            owner = self.owners.get(owner.id)
        return tuple(found)

    def _inner(self, one: Operation, met: set[str]) -> tuple[Step, ...]:
        mine = self.roles[one.id]
        found = []
        for double in self.doubles.get(one.id, ()):
            if mine is not None and double.id not in met:
                met.add(double.id)
                found.append(Step(double, mine, self._inner(double, met)))
        return tuple(found)
