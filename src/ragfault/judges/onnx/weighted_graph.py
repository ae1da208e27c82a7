"""Graph in ONNX whose weights are kept apart from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class WeightedGraph:
    """A graph that is loaded with the weights that it names."""

    def __init__(self, graph: bytes, weights: Mapping[str, Array], threads: int = 1) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        # Kept as long as the session, which refers to them.
        self._weights = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensor)) for tensor in weights.values()
        ]
        settings.add_external_initializers(list(weights), self._weights)
        self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])

    def run(self, outputs: Sequence[str], feed: dict[str, Array]) -> list[Array]:
        """Return some outputs of the graph for its inputs."""
        results: list[Array] = self._session.run(outputs, feed)
        return results
