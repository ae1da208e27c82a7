"""Laws of the numeric threads of a judge."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np  # noqa: F401 - its linear algebra has the threads
import pytest
from threadpoolctl import ThreadpoolController

from ragfault.judges.embedded.judge import EmbeddedJudge, EmbeddedSession
from ragfault.judges.loading import load_judge
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.model.records import Chunk, Trace


def count_threads() -> list[int]:
    """Return how many threads the linear algebra of numpy has; a judge needs that of no other library."""
    libraries = ThreadpoolController().lib_controllers
    return [item.num_threads for item in libraries if item.user_api == "blas" and "numpy" in item.filepath]


@pytest.fixture
def two_threads():
    """Give the linear algebra two threads."""
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if 2 not in (before := count_threads()):
            pytest.skip("the linear algebra of numpy cannot have two threads here")
        yield before


def test_a_judge_works_with_one_thread_and_gives_the_others_back(two_threads: list[int], monkeypatch):
    """Two threads take several times the processor time of one on small products."""
    seen: list[list[int]] = []
    open_session = EmbeddedJudge.open_session

    def watch(self: EmbeddedJudge, query: str, history: Sequence[str] = ()) -> EmbeddedSession:
        seen.append(count_threads())
        return open_session(self, query, history)

    monkeypatch.setattr(EmbeddedJudge, "open_session", watch)
    trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),), answer="At noon.")
    load_judge("embedded").observe([trace])
    assert seen
    assert {number for numbers in seen for number in numbers} == {1}
    assert count_threads() == two_threads


def test_judges_of_several_python_threads_leave_as_many_numeric_threads_as_there_were(two_threads: list[int]):
    """Whichever of overlapping judges ends last, no limit of another is left behind."""
    inside = threading.Barrier(3, timeout=30)

    def work() -> None:
        with use_one_thread():
            inside.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    with use_one_thread():
        inside.wait()
        for thread in threads:
            thread.join(30)
    assert count_threads() == two_threads
