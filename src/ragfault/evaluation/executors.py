"""Executors of an evaluation: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar
from uuid import uuid4

from ragfault.errors import MissingExtra, RunError, UsageError
from ragfault.judges.observation import prepare_worker

P = TypeVar("P")
R = TypeVar("R")

ITEMS_PER_WORKER = 3
"""Pieces under way for each worker: one at work, and others so that it never waits."""


class ProcessExecutor:
    """Worker processes of this machine, started afresh; they end when this process does.

    >>> sorted(ProcessExecutor(1).map_unordered(len, ["one", "three"]))
    [3, 5]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise UsageError(f"workers are at least 1, got {workers}.")
        self.workers = workers

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """What the work makes of each piece, as they are done."""
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_initialize_worker,
            initargs=(task_function,),
        )
        under_way: set[Future[R]] = set()
        try:
            for piece in items:
                under_way.add(pool.submit(_run_task, piece))
                if len(under_way) >= ITEMS_PER_WORKER * self.workers:
                    finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while under_way:
                finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BrokenProcessPool:
            raise RunError(
                "a worker process was killed (out of memory, perhaps). What was done is kept: "
                "run the same command again, with fewer --workers or a smaller --batch."
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker_task: Callable[[Any], Any] | None = None


def _initialize_worker(task_function: Callable[[Any], Any]) -> None:
    """Make a worker process ready for the work."""
    global _worker_task  # noqa: PLW0603
    prepare_worker()
    _worker_task = task_function


def _run_task(item: Any) -> Any:
    assert _worker_task is not None
    return _worker_task(item)


ITEMS_PER_CPU = 3
"""Pieces under way for each processor: one at work, the others so that it never waits, and that a cluster grows."""
MAX_RETRIES = 8
"""How often a piece is begun again whose worker, or machine, was lost."""
LOCAL_OBJECT_STORE_BYTES = 256 * 2**20
"""Bytes of shared memory of a cluster that is started here; nothing large passes through it."""


class RayExecutor:
    """Worker processes of a Ray cluster; of one that is started here and ends with the work, for `"local"`.

    A piece is a task of one processor. One whose worker or node is lost is begun again elsewhere, 8 times at the most.
    `workers` bounds how many are at work at once; None: all processors of the cluster, also those that join later.
    A process that is connected to a cluster already stays so, whatever the address. Nothing is told to anybody: the
    usage statistics of Ray are switched off.
    """

    def __init__(self, address: str = "local", workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers are at least 1, got {workers}.")
        self.address, self.workers = address, workers

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """What the work makes of each piece, as they are done.

        Raises MissingExtra where Ray is not installed, UsageError where no cluster answers, and RunError where pieces
        are lost again and again.
        """
        ray = _import_ray()
        with self._connect(ray):
            task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES, scheduling_strategy="SPREAD")(
                _run_ray_task
            )
            held, name = [ray.put(task_function)], uuid4().hex
            under_way: list[Any] = []
            try:
                for piece in items:
                    under_way.append(task.remote(held, name, piece))
                    while len(under_way) >= self._limit_in_flight(ray):
                        done, under_way = ray.wait(under_way)
                        yield from (_get_result(ray, one) for one in done)
                while under_way:
                    done, under_way = ray.wait(under_way)
                    yield from (_get_result(ray, one) for one in done)
            finally:
                for one in under_way:
                    ray.cancel(one)

    def _limit_in_flight(self, ray: Any) -> int:
        """How many pieces may be under way."""
        there = int(ray.cluster_resources().get("CPU", 1))
        if self.workers is not None and self.workers < there:
            return self.workers
        return ITEMS_PER_CPU * max(1, there)

    @contextlib.contextmanager
    def _connect(self, ray: Any) -> Iterator[None]:
        """Connect to the cluster, where this process is not; and leave it then."""
        if ray.is_initialized():
            yield
            return
        local = {
            "num_cpus": self.workers,
            "include_dashboard": False,
            "object_store_memory": LOCAL_OBJECT_STORE_BYTES,
        }
        try:
            ray.init(
                self.address,
                log_to_driver=False,
                logging_level="ERROR",
                **(local if self.address == "local" else {}),
            )
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            said = str(error).strip().splitlines()[:1]
            raise UsageError(
                f"no Ray cluster answers at {self.address} ({''.join(said)}). "
                "Give --ray local to start one here, --ray auto on a machine of the cluster, or its HOST:PORT."
            ) from None
        try:
            yield
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    """The package, with its usage statistics switched off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra("--ray", "ray") from None
    return ray


def _get_result(ray: Any, reference: Any) -> Any:
    """What came of a piece; what the work raised is raised as itself."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        raise RunError(
            f"a piece of the work was lost {MAX_RETRIES + 1} times with its worker ({type(error).__name__}; out of memory, "
            "perhaps). What was done is kept: run the same command again, on larger machines or with a smaller --batch."
        ) from None


_cached_tasks: dict[str, Callable[[Any], Any]] = {}
"""The work that this worker process has met last, by its name, so that a judge is loaded once."""


def _run_ray_task(task_references: list[Any], task_id: str, item: Any) -> Any:
    """Do a piece on a worker of the cluster."""
    if task_id not in _cached_tasks:
        import ray

        _cached_tasks.clear()
        _cached_tasks[task_id] = ray.get(task_references[0])
    return _cached_tasks[task_id](item)
