"""Executor of an evaluation on the workers of a Celery app."""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ragfault.model.errors import RunError, UsageError

P = TypeVar("P")
R = TypeVar("R")
TASK_NAME = "ragfault.run_item"
POLL_SECONDS = 0.1
"""Time between two looks at the results."""


class CeleryExecutor:
    """Workers of a Celery app that has a result backend and the task of `register_task`.

    Batches travel as pickles: only those you trust may write to the broker. At most `in_flight` of them are under way
    at once. A batch whose worker is lost is delivered again by the broker. Where no batch ends for `timeout` seconds,
    the evaluation stops, and the same command resumes it.

    Raises UsageError for a number below 1.
    """

    def __init__(self, app: Any, *, in_flight: int = 16, timeout: float = 3600, queue: str | None = None) -> None:
        if in_flight < 1 or timeout <= 0:
            raise UsageError(f"in_flight is at least 1 and timeout above 0, got {in_flight} and {timeout:g}.")
        self.app, self.in_flight, self.timeout, self.queue = app, in_flight, timeout, queue

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """Yield the result of each item as it is finished.

        Raises UsageError where the app keeps no results, RunError where no worker ends a batch in time, and what the
        task raised.
        """
        if type(self.app.backend).__name__ == "DisabledBackend":
            raise UsageError('the Celery app keeps no results. Give it a backend: Celery("jobs", backend="redis://…").')
        function, waiting = _pack(task_function), list[Any]()
        try:
            for item in items:
                options = {} if self.queue is None else {"queue": self.queue}
                waiting.append(self.app.send_task(TASK_NAME, args=[function, _pack(item)], **options))
                if len(waiting) >= self.in_flight:
                    yield from self._collect(waiting)
            while waiting:
                yield from self._collect(waiting)
        finally:
            for result in waiting:
                result.revoke()

    def _collect(self, waiting: list[Any]) -> Iterator[Any]:
        """Wait until a batch is finished; yield the results of all that are, and take them from the list."""
        end = time.monotonic() + self.timeout
        while not (finished := [result for result in waiting if result.ready()]):
            if time.monotonic() > end:
                raise RunError(
                    f"no Celery worker ended a batch within {self.timeout:g} s. Finished batches are kept: start "
                    "workers whose app has `register_task(app)`, and run the same command again."
                )
            time.sleep(POLL_SECONDS)
        for result in finished:
            waiting.remove(result)
            try:
                is_error, outcome = _unpack(result.get())
            finally:
                result.forget()
            if is_error:
                raise outcome
            yield outcome


def register_task(app: Any) -> None:
    """Register the task of an evaluation in a Celery app, for its workers."""
    app.task(name=TASK_NAME, acks_late=True, reject_on_worker_lost=True)(run_packed_item)


def run_packed_item(function: str, item: str) -> str:
    """Run the task on an item, on a worker; return its result, or what it raised.

    >>> _unpack(run_packed_item(_pack(len), _pack("three")))
    (False, 5)
    """
    try:
        return _pack((False, _unpack(function)(_unpack(item))))
    except Exception as error:  # noqa: BLE001 - it is raised where the evaluation was started
        return _pack((True, error))


def _pack(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpack(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
