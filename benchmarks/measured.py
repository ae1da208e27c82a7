"""Measure the latency that a measured retriever adds to its caller, beside the same retriever unmeasured.

    python -m benchmarks.measured --calls 500

Medians of milliseconds a call, in alternating rounds, for a plain function and for retrievers of LangChain and
LlamaIndex, while the background scores every retrieval; and how many of them it scored in the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.instrumentation import MeasuredRetriever

TEXTS = [
    f"The harbour office of pier {number} opens at half past seven on weekdays, and the last ferry to the northern "
    f"island leaves at 22:{10 + number} every evening, except on the first Sunday of the month." * 2
    for number in range(5)
]


def make_plain_retriever(background: BackgroundScorer) -> tuple[Callable, Callable]:
    """Return a plain function as a retriever, and the same measured."""

    def search(query: str) -> list[str]:  # noqa: ARG001 - the shape of a retriever
        return list(TEXTS)

    return search, MeasuredRetriever(search, background)


def make_langchain_retriever(background: BackgroundScorer) -> tuple[Callable, Callable]:
    """Return a LangChain retriever, and the same measured."""
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    from ragfault.integrations.langchain import MeasuredLangChainRetriever as Measured

    class FixedRetriever(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):  # noqa: ARG002
            return [Document(page_content=text, id=str(i)) for i, text in enumerate(TEXTS)]

    return FixedRetriever().invoke, Measured(retriever=FixedRetriever(), background=background).invoke


def make_llamaindex_retriever(background: BackgroundScorer) -> tuple[Callable, Callable]:
    """Return a LlamaIndex retriever, and the same measured."""
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    from ragfault.integrations.llamaindex import MeasuredLlamaIndexRetriever as Measured

    class FixedRetriever(BaseRetriever):
        def _retrieve(self, query_bundle):  # noqa: ARG002
            return [NodeWithScore(node=TextNode(text=text, id_=str(n)), score=0.5) for n, text in enumerate(TEXTS)]

    return FixedRetriever().retrieve, Measured(FixedRetriever(), background).retrieve


RETRIEVERS = {
    "plain": make_plain_retriever,
    "langchain": make_langchain_retriever,
    "llamaindex": make_llamaindex_retriever,
}


def time_calls(retriever: Callable, calls: int, pause: float) -> list[float]:
    """Return the milliseconds of each call; calls come `pause` seconds apart, as those of users do."""
    milliseconds = []
    for number in range(calls):
        start = time.perf_counter()
        retriever(f"When does the last ferry leave from pier {number}?")
        milliseconds.append(1000 * (time.perf_counter() - start))
        time.sleep(pause)
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="calls to a round (default: 200)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between calls (default: 0.01)")
    parser.add_argument("--judge", default="embedded", help="who scores (default: embedded)")
    arguments = parser.parse_args()
    print(f"{'retriever':12}{'alone ms':>10}{'measured ms':>13}{'added ms':>10}{'p99 added':>11}{'scored':>14}")
    for name, make in RETRIEVERS.items():
        count = 0

        def count_score(_: object) -> None:
            nonlocal count
            count += 1

        with BackgroundScorer(count_score, judge=arguments.judge, metrics="retrieval") as background:
            unmeasured, measured = make(background)
            measured("warm up")
            background.flush()
            rounds = [
                (
                    time_calls(unmeasured, arguments.calls, arguments.pause),
                    time_calls(measured, arguments.calls, arguments.pause),
                )
                for _ in range(arguments.rounds)
            ]
        alone_ms, measured_ms = (sorted(value for pair in rounds for value in pair[side]) for side in (0, 1))
        before, after = median(alone_ms), median(measured_ms)
        added_p99 = measured_ms[int(0.99 * len(measured_ms))] - alone_ms[int(0.99 * len(alone_ms))]
        print(
            f"{name:12}{before:10.3f}{after:13.3f}{after - before:10.3f}{added_p99:11.3f}"
            f"{count:>8,} of {len(measured_ms) + 1:,}"
        )


if __name__ == "__main__":
    main()
