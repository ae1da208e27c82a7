"""An evaluation on a Ray cluster of two nodes, one of whose workers is killed and one of whose nodes is removed.

    python tests/support/ray_cluster.py TRACES OUT

Run as a process of its own, since Ray leaves threads behind. Says what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ragfault.model.protocols import VerdictKind
from ragfault.model.records import Chunk, ChunkVerdict, Trace, Verdicts


class RecordingJudge:
    """A judge that takes its time, and writes down which process on which node it was asked by."""

    offers: frozenset[VerdictKind] = frozenset({"chunk"})
    fingerprint = "watched/1"

    def __init__(self, log: Path | None = None, wait: float = 0) -> None:
        self.log, self.wait = log, wait

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        if self.log is not None:
            import ray

            with self.log.open("a") as file:
                node = ray.get_runtime_context().get_node_id()
                file.write(f"{node} {os.getpid()} {traces[0].id} {len(traces)}\n")
        time.sleep(self.wait * len(traces))
        return [
            Verdicts(
                trace=trace.id,
                chunk=tuple(ChunkVerdict(chunk=chunk.id, relevance=len(chunk.text) % 7 / 7) for chunk in trace.chunks),
            )
            for trace in traces
        ]


def build_traces(count: int) -> list[Trace]:
    """Return traces that differ in their chunks and answers."""
    return [
        Trace(
            id=f"t{n}",
            query=f"Where is berth {n}?",
            chunks=tuple(Chunk(id=f"c{n}-{k}", text=f"Berth {n} lies {'far ' * k}east.") for k in range(n % 4)),
            answer=None if n % 9 == 0 else f"Berth {n} lies east.",
        )
        for n in range(count)
    ]


def main(traces: str, out: str) -> None:
    from ray.cluster_utils import Cluster

    from ragfault.evaluation.evaluator import evaluate
    from ragfault.executors import RayExecutor

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False},
    )
    second = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()
    log = Path(out).with_name("log")
    lost: list[str] = []

    def kill_worker(done: int, total: int) -> None:
        seen = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        if not lost and done > total / 8 and seen:
            lost.append("worker")
            os.kill(int(seen[-1][1]), signal.SIGKILL)
        elif lost == ["worker"] and done > total / 3 and len({line[0] for line in seen}) == 2:
            lost.append("node")
            cluster.remove_node(second, allow_graceful=False)

    run = evaluate(
        traces,
        out,
        judge=RecordingJudge(log, 0.004),
        metrics=["context_relevance", "redundancy", "error"],
        batch=16,
        executor=RayExecutor(cluster.address),
        on_progress=kill_worker,
    )
    seen = [line.split() for line in log.read_text().splitlines()]
    report = {
        "lost": lost,
        "nodes": len({line[0] for line in seen}),
        "asked": sum(int(line[3]) for line in seen),
        "traces": run.manifest.traces,
        "telemetry": os.environ["RAY_USAGE_STATS_ENABLED"],
    }
    cluster.shutdown()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    sys.path[0:0] = [str(Path(__file__).parent)]
    # The judge has to be known to the workers by the name of its module.
    from ray_cluster import main as run_main

    run_main(*sys.argv[1:])
