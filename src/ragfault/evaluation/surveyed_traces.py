"""Surveyed traces on disk, so that an input is read once: the survey writes them, the judge reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ragfault.diagnosis.causes.endings import AnswerEndings
from ragfault.evaluation.passage_places import ChunkPool
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.attempts import AttemptNames
from ragfault.model.records import Trace

SIZE_BYTES = 4
"""Bytes that state the size of the trace that follows."""


class SurveyedTraces:
    """The traces of an input in order, compressed, in the folder of an unfinished run.

    >>> import tempfile
    >>> with SurveyedTraces(Path(tempfile.mkdtemp()) / "surveyed") as surveyed:
    ...     surveyed.add(Trace(id="1", query="When?"))
    >>> [trace.query for trace in surveyed.read()]
    ['When?']
    """

    def __init__(self, path: Path, numbered: bool = False, pool: ChunkPool | None = None) -> None:
        """Make an empty file; with `numbered`, a repeated id is the next attempt of its query.

        The chunks of all traces are added to the `pool`.
        """
        self.path = path
        self._file: Any = None
        self._encoder = msgspec.msgpack.Encoder()
        self.attempts = AttemptNames(numbered)
        self.endings = AnswerEndings()
        self.pool = pool

    def __enter__(self) -> Self:
        import pyarrow as pa

        with convert_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Chunks repeat from trace to trace: compressed, they take a fraction of the input.
            self._file = pa.output_stream(str(self.path), compression="zstd")
        return self

    def add(self, trace: Trace) -> None:
        """Write the next trace. Raises OutputError if the disk is full."""
        self.endings.add(trace.answer)
        if self.pool is not None:
            self.pool.add(trace)
        content = self._encoder.encode(self.attempts.add(trace))
        with convert_write_errors(self.path):
            self._file.write(len(content).to_bytes(SIZE_BYTES, "big") + content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with convert_write_errors(self.path):
            self._file.close()
        if error is None:
            self.attempts.match_queries(self._decode)

    def read(self) -> Iterator[Trace]:
        """Yield the traces in order, with the ids that they have in a run."""
        return map(self.attempts.rename, self._decode())

    def _decode(self) -> Iterator[Trace]:
        import pyarrow as pa

        decoder = msgspec.msgpack.Decoder(Trace)
        with pa.input_stream(str(self.path), compression="zstd") as file:
            while size := file.read(SIZE_BYTES):
                yield decoder.decode(file.read(int.from_bytes(size, "big")))
