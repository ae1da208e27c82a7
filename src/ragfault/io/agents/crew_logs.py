"""Logs of CrewAI: the output of a crew with that of its tasks, and the log file with a row for each event of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ragfault.io.field_values import InvalidRecord

EVENT_KEYS = frozenset(("task", "agent", "status"))
Row = dict[str, Any]


def are_crew_records(samples: Sequence[Row]) -> bool:
    """Tell whether records are outputs of crews or events of their tasks."""
    return bool(samples) and all(_is_output(row) or _is_event(row) for row in samples)


def _is_output(row: Row) -> bool:
    tasks = row.get("tasks_output")
    return isinstance(tasks, list) and bool(tasks) and all(isinstance(task, dict) and "agent" in task for task in tasks)


def _is_event(row: Row) -> bool:
    return row.keys() >= EVENT_KEYS and ("task_name" in row or "timestamp" in row) and "messages" not in row


def join_crew_tasks(rows: Iterable[tuple[int, Any]], parse: Callable[[Any], Row]) -> Iterator[tuple[int, Any]]:
    """Join the tasks of each run of a crew to one record, with a step for each task.

    The question is the one among the inputs of the crew where it is recorded, else the description of its first task.
    In a log of events a run ends where its first task begins again.

    >>> event = {"task_name": "find", "task": "When was Oslo founded?", "agent": "clerk", "status": "started"}
    >>> rows = [(1, event), (2, {**event, "status": "completed", "output": "In 1040."})]
    >>> [(record["query"], record["answer"]) for _, record in join_crew_tasks(rows, dict)]
    [('When was Oslo founded?', 'In 1040.')]
    """
    number, tasks = 0, list[Row]()
    for line, payload in rows:
        try:
            row = payload if line == 0 else parse(payload)
        except InvalidRecord:
            yield line, payload
            continue
        if not isinstance(row, dict) or not (_is_output(row) or _is_event(row)):
            yield line, payload
        elif _is_output(row):
            yield line, _build_record(row["tasks_output"], row)
        elif tasks and row["status"] == "started" and row["task"] == tasks[0]["description"]:
            yield number, _build_record(tasks, {})
            number, tasks = line, [_read_event(row)]
        elif tasks and row["task"] == tasks[-1]["description"]:
            tasks[-1] |= {key: value for key, value in _read_event(row).items() if value is not None}
        else:
            number, tasks = number if tasks else line, [*tasks, _read_event(row)]
    if tasks:
        yield number, _build_record(tasks, {})


def _read_event(row: Row) -> Row:
    failed = str(row["status"]).lower() in ("failed", "error")
    return {
        "description": row["task"],
        "name": row.get("task_name"),
        "agent": row["agent"],
        "raw": None if failed else row.get("output"),
        "error": str(row.get("output") or row.get("error") or "the task failed") if failed else None,
    }


def _build_record(tasks: Sequence[Row], crew: Row) -> Row:
    inputs = crew.get("inputs") if isinstance(crew.get("inputs"), dict) else {}
    texts = [text for key, text in (inputs or {}).items() if key in ("question", "query", "topic", "input", "task")]
    steps = [
        {
            "id": str(i),
            "name": task.get("name"),
            "agent": task.get("agent"),
            "input": task.get("description"),
            "output": task.get("raw"),
            "error": task.get("error"),
            "kind": "generate" if i == len(tasks) else None,
        }
        for i, task in enumerate(tasks, 1)
    ]
    usage = crew.get("token_usage") if isinstance(crew.get("token_usage"), dict) else {}
    return {
        "query": str(texts[0]) if texts else str(tasks[0].get("description") or ""),
        "answer": crew.get("raw") or tasks[-1].get("raw"),
        "steps": [{key: value for key, value in step.items() if value is not None} for step in steps],
        **(
            {"tokens": {"prompt": usage.get("prompt_tokens"), "completion": usage.get("completion_tokens")}}
            if usage
            else {}
        ),
    }
