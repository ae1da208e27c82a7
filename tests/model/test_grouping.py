"""Groups of items: by a key, by position, and of what shares a mark with others."""

from __future__ import annotations

import random

from ragfault.model.grouping import group_by, group_positions, join_by_marks


def test_groups_hold_each_item_once_in_its_order():
    """Concatenated groups are the items, sorted stably by the first occurrence of their key."""
    items = [random.Random(7).randrange(5) * 10 + number % 10 for number in range(40)]
    groups = group_by(items, lambda item: item // 10)
    first = {key: items.index(groups[key][0]) for key in groups}
    assert [item for group in groups.values() for item in group] == sorted(items, key=lambda item: first[item // 10])


def test_positions_lead_back_to_the_keys():
    """At every position stands the key under which it is listed, and no position is missing."""
    keys = random.Random(7).choices("abcde", k=40)
    groups = group_positions(keys)
    assert sorted((at, key) for key, positions in groups.items() for at in positions) == list(enumerate(keys))


def test_names_are_of_one_group_exactly_where_a_path_of_shared_marks_joins_them():
    """Groups are the connected components, as repeated merging of sets that meet gives them."""
    rng = random.Random(7)
    marks = {name: rng.sample(range(60), rng.randint(1, 3)) for name in range(30)}
    components: list[tuple[set[int], set[int]]] = []
    for name, own in marks.items():
        names, reach = {name}, set(own)
        for component in [component for component in components if component[1] & set(own)]:
            components.remove(component)
            names, reach = names | component[0], reach | component[1]
        components.append((names, reach))
    groups = join_by_marks(marks)
    observed = {frozenset(name for name in marks if groups[name] == group) for group in groups.values()}
    assert observed == {frozenset(names) for names, _ in components}
    assert 1 < len(observed) < len(marks)
