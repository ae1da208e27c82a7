"""Ray: an evaluation on the worker processes of a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from uuid import uuid4

from ragfault.errors import MissingExtra, RunError, UsageError

__all__ = ["Ray"]

P = TypeVar("P")
R = TypeVar("R")

AHEAD = 3
"""Pieces under way for each processor: one at work, the others so that it never waits, and that a cluster grows."""
RETRIES = 8
"""How often a piece is begun again whose worker, or machine, was lost."""
MEMORY = 256 * 2**20
"""Bytes of shared memory of a cluster that is started here; nothing large passes through it."""


class Ray:
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

    def spread(self, work: Callable[[P], R], pieces: Iterable[P]) -> Iterator[R]:
        """What the work makes of each piece, as they are done.

        Raises MissingExtra where Ray is not installed, UsageError where no cluster answers, and RunError where pieces
        are lost again and again.
        """
        ray = _ray()
        with self._connected(ray):
            task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_do)
            held, name = [ray.put(work)], uuid4().hex
            under_way: list[Any] = []
            try:
                for piece in pieces:
                    under_way.append(task.remote(held, name, piece))
                    while len(under_way) >= self._room(ray):
                        done, under_way = ray.wait(under_way)
                        yield from (_result(ray, one) for one in done)
                while under_way:
                    done, under_way = ray.wait(under_way)
                    yield from (_result(ray, one) for one in done)
            finally:
                for one in under_way:
                    ray.cancel(one)

    def _room(self, ray: Any) -> int:
        """How many pieces may be under way."""
        there = int(ray.cluster_resources().get("CPU", 1))
        if self.workers is not None and self.workers < there:
            return self.workers
        return AHEAD * max(1, there)

    @contextlib.contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        """Connect to the cluster, where this process is not; and leave it then."""
        if ray.is_initialized():
            yield
            return
        local = {"num_cpus": self.workers, "include_dashboard": False, "object_store_memory": MEMORY}
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


def _ray() -> Any:
    """The package, with its usage statistics switched off."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra("--ray", "ray") from None
    return ray


def _result(ray: Any, done: Any) -> Any:
    """What came of a piece; what the work raised is raised as itself."""
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        raise RunError(
            f"a piece of the work was lost {RETRIES + 1} times with its worker ({type(error).__name__}; out of memory, "
            "perhaps). What was done is kept: run the same command again, on larger machines or with a smaller --batch."
        ) from None


_held: dict[str, Callable[[Any], Any]] = {}
"""The work that this worker process has met last, by its name, so that a judge is loaded once."""


def _do(held: list[Any], name: str, piece: Any) -> Any:
    """Do a piece on a worker of the cluster."""
    if name not in _held:
        import ray

        _held.clear()
        _held[name] = ray.get(held[0])
    return _held[name](piece)
