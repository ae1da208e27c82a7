"""LangChain: a retriever that is scored in the background, and stays a retriever of LangChain."""

from __future__ import annotations

import time
from typing import Any

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.plugins.langchain", "langchain", "pip install langchain-core") from None

from ragfault.online import Background
from ragfault.online.retriever import failed, submit

__all__ = ["MeasuredRetriever"]


class MeasuredRetriever(BaseRetriever):
    """A retriever of LangChain that hands on what another one finds, and has it scored in the background.

    It stands in chains wherever the other one stood: `MeasuredRetriever(retriever=…, background=…)`. Documents come
    back unchanged, errors are raised as they were; both also reach the background.
    """

    retriever: BaseRetriever
    background: Any
    """A `ragfault.online.Background`."""
    route: str | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        begin = time.perf_counter()
        try:
            found = self.retriever.invoke(query, config={"callbacks": run_manager.get_child()})
        except Exception as error:
            self._to.submit(failed(query, error, begin, self.route))
            raise
        submit(self._to, query, found, begin, self.route)
        return found

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        begin = time.perf_counter()
        try:
            found = await self.retriever.ainvoke(query, config={"callbacks": run_manager.get_child()})
        except Exception as error:
            self._to.submit(failed(query, error, begin, self.route))
            raise
        submit(self._to, query, found, begin, self.route)
        return found

    @property
    def _to(self) -> Background:
        made: Background = self.background
        return made
