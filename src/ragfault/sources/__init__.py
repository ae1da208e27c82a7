"""Sources: traces from files of many shapes, and back into them; documents of a corpus."""

from ragfault.sources.documents import read_documents
from ragfault.sources.files import MAX_LINE
from ragfault.sources.read import read_traces
from ragfault.sources.schema import schema
from ragfault.sources.shapes import SHAPES
from ragfault.sources.survey import Digest, Survey, survey
from ragfault.sources.write import write_traces

__all__ = [
    "MAX_LINE",
    "SHAPES",
    "Digest",
    "Survey",
    "read_documents",
    "read_traces",
    "schema",
    "survey",
    "write_traces",
]
