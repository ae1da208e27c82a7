"""Executors of work: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar
from uuid import uuid4

from ragfault.judges.assembly import prepare_worker
from ragfault.model.errors import RunError, UsageError, require_extra
from ragfault.model.protocols import Executor

P = TypeVar("P")
R = TypeVar("R")
# items in flight for each worker: one in work, the others so that it never waits
ITEMS_PER_WORKER = 3


class ProcessExecutor:
    """Spawned worker processes of this machine; they end with this process.

    >>> sorted(ProcessExecutor(1).map_unordered(len, ["one", "three"]))
    [3, 5]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise UsageError(f"workers are at least 1, got {workers}.")
        self.workers = workers

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """Yield the result of each item as it is finished."""
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_initialize_worker,
            initargs=(task_function,),
        )
        in_flight: set[Future[R]] = set()
        try:
            for item in items:
                in_flight.add(pool.submit(_run_task, item))
                if len(in_flight) >= ITEMS_PER_WORKER * self.workers:
                    finished, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while in_flight:
                finished, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BrokenProcessPool:
            raise RunError(
                "a worker process was killed (out of memory, perhaps). Run the same command again, with fewer "
                "--workers; an evaluation goes on after its finished batches, and may have a smaller --batch."
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def choose_executor(workers: int | None, executor: Executor | None = None, ray: str | None = None) -> Executor | None:
    """Return the executor, else a Ray cluster, else processes of this machine; None: one worker, which is this process.

    Raises UsageError for less than one worker.
    """
    if executor is not None or ray is None:
        return executor or (None if workers in (None, 1) else ProcessExecutor(workers or 0))
    return RayExecutor(ray, workers)


_worker_task: Callable[[Any], Any] | None = None


def _initialize_worker(task_function: Callable[[Any], Any]) -> None:
    """Prepare a worker process for the task."""
    global _worker_task  # noqa: PLW0603
    prepare_worker()
    _worker_task = task_function


def _run_task(item: Any) -> Any:
    assert _worker_task is not None
    return _worker_task(item)


ITEMS_PER_CPU = 3
"""Items in flight for each processor: one in work, the others so that it never waits, and that a cluster scales up."""
# number of times an item is repeated whose worker or machine was lost
MAX_RETRIES = 8
LOCAL_OBJECT_STORE_BYTES = 256 * 2**20
"""Shared memory of a cluster that is started here; nothing large passes through it."""


class RayExecutor:
    """Worker processes of a Ray cluster; `"local"` starts one here that ends with the work.

    An item is a task of one processor. An item whose worker or node is lost is repeated elsewhere, at most 8 times.
    `workers` limits the items in work at once; None: all processors of the cluster, also those that join later.
    A process that is already connected to a cluster stays connected, whatever the address. The usage statistics of
    Ray are switched off.
    """

    def __init__(self, address: str = "local", workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers are at least 1, got {workers}.")
        self.address, self.workers = address, workers

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """Yield the result of each item as it is finished.

        Raises MissingExtra if Ray is not installed, UsageError if no cluster answers, and RunError if items are lost
        repeatedly.
        """
        ray = _import_ray()
        with self._connect(ray):
            task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES, scheduling_strategy="SPREAD")(_run_ray_task)
            task_references, task_id = [ray.put(task_function)], uuid4().hex
            in_flight: list[Any] = []
            try:
                for item in items:
                    in_flight.append(task.remote(task_references, task_id, item))
                    while len(in_flight) >= self._limit_in_flight(ray):
                        done, in_flight = ray.wait(in_flight)
                        yield from (_get_result(ray, reference) for reference in done)
                while in_flight:
                    done, in_flight = ray.wait(in_flight)
                    yield from (_get_result(ray, reference) for reference in done)
            finally:
                for reference in in_flight:
                    ray.cancel(reference)

    def _limit_in_flight(self, ray: Any) -> int:
        """Return the number of items that may be in flight."""
        cpus = int(ray.cluster_resources().get("CPU", 1))
        if self.workers is not None and self.workers < cpus:
            return self.workers
        return ITEMS_PER_CPU * max(1, cpus)

    @contextlib.contextmanager
    def _connect(self, ray: Any) -> Iterator[None]:
        """Connect to the cluster and disconnect again, unless this process is connected already."""
        if ray.is_initialized():
            yield
            return
        local = {"num_cpus": self.workers, "include_dashboard": False, "object_store_memory": LOCAL_OBJECT_STORE_BYTES}
        try:
            ray.init(
                self.address, log_to_driver=False, logging_level="ERROR", **(local if self.address == "local" else {})
            )
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            message = str(error).strip().splitlines()[:1]
            raise UsageError(
                f"no Ray cluster answers at {self.address} ({''.join(message)}). "
                'Give --ray "local" to start one here, --ray "auto" on a machine of the cluster, or its HOST:PORT.'
            ) from None
        try:
            yield
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    """Import Ray with its usage statistics switched off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with require_extra("a Ray cluster", "ray"):
        import ray
    return ray


def _get_result(ray: Any, reference: Any) -> Any:
    """Return the result of an item; raise what the task raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        raise RunError(
            f"a batch was lost {MAX_RETRIES + 1} times with its worker ({type(error).__name__}; out of memory?)."
            " Run the same command again on larger machines; an evaluation goes on after its finished batches, and "
            "may have a smaller --batch."
        ) from None


_cached_tasks: dict[str, Callable[[Any], Any]] = {}
"""The latest task of this worker process by its id, so that a judge is loaded once."""


def _run_ray_task(task_references: list[Any], task_id: str, item: Any) -> Any:
    """Run the task on an item, on a worker of the cluster."""
    if task_id not in _cached_tasks:
        import ray

        _cached_tasks.clear()
        _cached_tasks[task_id] = ray.get(task_references[0])
    return _cached_tasks[task_id](item)
