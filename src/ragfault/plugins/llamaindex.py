"""LlamaIndex: a retriever that is scored in the background, and stays a retriever of LlamaIndex."""

from __future__ import annotations

import time

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.plugins.llamaindex", "llamaindex", "pip install llama-index-core") from None

from ragfault.online import Background
from ragfault.online.retriever import failed, submit

__all__ = ["MeasuredRetriever"]


class MeasuredRetriever(BaseRetriever):
    """A retriever of LlamaIndex that hands on what another one finds, and has it scored in the background.

    It stands in query engines wherever the other one stood. Nodes come back unchanged, errors are raised as they were;
    both also reach the background.
    """

    def __init__(self, retriever: BaseRetriever, background: Background, *, route: str | None = None) -> None:
        super().__init__()
        self._retriever, self._background, self._route = retriever, background, route

    def retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """What the other one finds; the way round `_retrieve` would do all the work of a retrieval twice."""
        begin = time.perf_counter()
        try:
            found = self._retriever.retrieve(str_or_query_bundle)
        except Exception as error:
            self._background.submit(failed(_text(str_or_query_bundle), error, begin, self._route))
            raise
        submit(self._background, _text(str_or_query_bundle), found, begin, self._route)
        return found

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """The same, awaited."""
        begin = time.perf_counter()
        try:
            found = await self._retriever.aretrieve(str_or_query_bundle)
        except Exception as error:
            self._background.submit(failed(_text(str_or_query_bundle), error, begin, self._route))
            raise
        submit(self._background, _text(str_or_query_bundle), found, begin, self._route)
        return found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve(query_bundle)


def _text(query: QueryType) -> str:
    return query.query_str if isinstance(query, QueryBundle) else query
