"""LlamaIndex query engines that are guarded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.apps.guard.frameworks.llamaindex", "llamaindex", "pip install llama-index-core"):
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.response.schema import Response
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ragfault.apps.guard.actions import ActionSettings, answer_async
from ragfault.apps.guard.decisions import describe_decision
from ragfault.apps.guard.policy import GuardPolicy
from ragfault.apps.guard.rails import run_sync
from ragfault.apps.guard.runtime import Guard
from ragfault.model.records import Chunk

# an engine has its own number of nodes: none to widen
ENGINE_ACTIONS = ActionSettings(("correct", "cut", "abstain"))


class GuardedQueryEngine(BaseQueryEngine):
    """A query engine that answers by another one's retriever and synthesizer, guarded.

    `GuardedQueryEngine(index.as_query_engine(), "policy.toml")`. The engine must retrieve and synthesize apart, as
    RetrieverQueryEngine does: nodes that a rail drops or masks reach no prompt. `strong` (another engine) and
    `settings` are those of `guard.actions.answer`; "widen" does no more than "correct", since the engine has
    its own number of nodes. The response has the nodes that the answer was judged by, and the decision in
    `metadata["guard"]`.
    """

    def __init__(
        self,
        engine: BaseQueryEngine,
        guard: Guard | GuardPolicy | str | Path,
        strong: BaseQueryEngine | None = None,
        settings: ActionSettings = ENGINE_ACTIONS,
    ) -> None:
        super().__init__(engine.callback_manager)
        # the base class has no `aretrieve`
        self._engine: Any = engine
        self._strong, self._settings = strong, settings
        self._guard = guard if isinstance(guard, Guard) else Guard(guard)

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {"engine": self._engine}

    def _query(self, query_bundle: QueryBundle) -> Response:
        return run_sync(self._aquery(query_bundle))

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        retrieved: dict[str, NodeWithScore] = {}
        judged: list[NodeWithScore] = []

        async def retrieve(query: str, size: int) -> list[NodeWithScore]:  # noqa: ARG001 - the engine has its own size
            nodes: list[NodeWithScore] = await self._engine.aretrieve(QueryBundle(query))
            retrieved.update((node.node.node_id, node) for node in nodes)
            return nodes

        def write(engine: BaseQueryEngine) -> Any:
            async def generate(query: str, chunks: Sequence[Chunk], feedback: str) -> str:
                judged[:] = [_restore_node(chunk, retrieved) for chunk in chunks]
                bundle = QueryBundle(f"{query}\n\n{feedback}" if feedback else query)
                return str(await engine.asynthesize(bundle, judged))

            return generate

        guarded = await answer_async(
            self._guard,
            query_bundle.query_str,
            retrieve,
            write(self._engine),
            None if self._strong is None else write(self._strong),
            self._settings,
        )
        decision = describe_decision(guarded.decision)
        return Response(guarded.text, source_nodes=list(judged), metadata={"guard": decision})


def _restore_node(chunk: Chunk, retrieved: dict[str, NodeWithScore]) -> NodeWithScore:
    """Return the node of a chunk; one of the chunk's own text where a rail changed that."""
    node = retrieved.get(chunk.id)
    if node is not None and node.node.get_content() == chunk.text:
        return node
    return NodeWithScore(node=TextNode(id_=chunk.id, text=chunk.text, metadata=chunk.metadata), score=chunk.score)
