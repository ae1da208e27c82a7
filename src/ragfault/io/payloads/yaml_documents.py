"""YAML: the records of one document, of a list, or of several documents, without the objects that YAML may create."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragfault.io.field_values import InvalidRecord, build_plain_row
from ragfault.model.errors import InputError

MAX_ALIASED = 100_000
"""Values that aliases may repeat: `&a [*b, *b]` over a few levels stands for billions."""
CONVERT = (
    "python -c 'import sys, json, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout, default=str)' "
    "< {name} > traces.json"
)


def read_yaml_records(text: bytes, name: str) -> Iterator[tuple[int, Any]]:
    r"""Yield the items of each document that is a list, and any other document, with their lines.

    Raises `InputError` for text that is not YAML, for a tag that creates an object, for aliases that repeat too much,
    and without PyYAML.

    >>> list(read_yaml_records(b"- query: When?\n- query: Who?\n", "t.yaml"))
    [(1, {'query': 'When?'}), (2, {'query': 'Who?'})]
    """
    try:
        import yaml
    except ImportError:
        way = f"Install it (pip install pyyaml), or convert the file where it is: {CONVERT.format(name=name)}"
        raise InputError(f"{name}: YAML is read by PyYAML. {way}") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while loader.check_node():
            document = loader.get_node()
            _check_aliases(document, name)
            for node in document.value if isinstance(document, yaml.SequenceNode) else [document]:
                value = loader.construct_document(node)
                line = node.start_mark.line + 1
                is_record = isinstance(value, dict)
                yield line, build_plain_row(value) if is_record else InvalidRecord(f"Expected `object`, got {value!r}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        reason = getattr(error, "problem", None) or str(error)
        raise InputError(f"{name} cannot be read as YAML: {reason}{where}") from None
    except RecursionError:
        raise InputError(f"{name} cannot be read as YAML: it is nested too deeply") from None
    finally:
        loader.dispose()


def _check_aliases(document: Any, name: str) -> None:
    """Raise `InputError` if aliases repeat more values than `MAX_ALIASED`, or a value within itself."""
    sizes: dict[int, int] = {}

    def measure(node: Any) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        # until it is measured, a node that holds itself
        sizes[id(node)] = MAX_ALIASED * len(sizes) + MAX_ALIASED + 1
        parts = node.value if isinstance(node.value, list) else ()
        flat = [part for item in parts for part in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(map(measure, flat))
        return sizes[id(node)]

    if measure(document) - len(sizes) > MAX_ALIASED:
        raise InputError(f"{name}: an alias repeats more than {MAX_ALIASED:,} values, or a value within itself")
