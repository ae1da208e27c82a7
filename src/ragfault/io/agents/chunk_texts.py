"""Texts of chunks that a trace names by id alone, joined from the documents that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ragfault.io.decoder import NoticeCallback
from ragfault.io.documents import read_documents
from ragfault.io.files import InputPaths
from ragfault.records import Chunk, Trace

SHOWN_IDS = 3


def join_chunk_texts(
    traces: Iterable[Trace], documents: InputPaths, notice: NoticeCallback | None = None
) -> Iterator[Trace]:
    """Yield traces whose chunks without a text have that of the document with their id.

    A chunk that names its document and its place there, and whose id is no document's, has the text of that place. What
    no document holds stays without a text; how many chunks that is, and the first of their ids, is said to `notice` at
    the end. Raises what `read_documents` raises.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "corpus.jsonl"
    >>> _ = path.write_text('{"id": "ferry", "text": "The ferry leaves at six."}')
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="ferry", score=0.9), Chunk(id="dog")))
    >>> [chunk.text for chunk in next(join_chunk_texts([trace], path)).chunks]
    ['The ferry leaves at six.', '']
    """
    texts = {document.id: document.text for document in read_documents(documents, notice=notice)}
    joined, missing, absent = 0, 0, dict[str, None]()
    for trace in traces:
        chunks = []
        for chunk in trace.chunks or ():
            text = chunk.text or _find_text(chunk, texts)
            if not chunk.text:
                joined, missing = joined + bool(text), missing + (not text)
                absent |= {} if text else {chunk.id: None}
            chunks.append(replace(chunk, text=text))
        yield replace(trace, chunks=tuple(chunks)) if chunks else trace
    if notice is not None and joined + missing:
        rest = f"; no document for {missing:,}: {', '.join(list(absent)[:SHOWN_IDS])}" if missing else ""
        notice(f"{joined:,} of {joined + missing:,} chunks without a text have that of a document{rest}")


def _find_text(chunk: Chunk, texts: dict[str, str]) -> str:
    if chunk.id in texts:
        return texts[chunk.id]
    if chunk.document is None or chunk.start is None or chunk.end is None:
        return ""
    return texts.get(chunk.document, "")[chunk.start : chunk.end]
