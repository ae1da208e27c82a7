"""LangChain chains that are guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.apps.guard.frameworks.langchain", "langchain", "pip install langchain-core"):
    from langchain_core.documents import Document
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from ragfault.apps.guard.actions import DEFAULT_ACTIONS, ActionSettings, answer_async
from ragfault.apps.guard.policy import GuardPolicy
from ragfault.apps.guard.rails import run_sync
from ragfault.apps.guard.runtime import Guard
from ragfault.model.records import Chunk

QUESTION_KEYS = ("question", "query", "input")
"""Keys of an input with several fields that hold the question."""


def guard_chain(
    retriever: Runnable[str, list[Document]],
    generator: Runnable[dict[str, str], Any],
    guard: Guard | GuardPolicy | str | Path,
    strong: Runnable[dict[str, str], Any] | None = None,
    settings: ActionSettings = DEFAULT_ACTIONS,
) -> Runnable[Any, str]:
    """Return a chain from a question to a guarded answer: retrieve, check, generate, decide, act, else abstain.

    `generator` gets the keys question, context (the texts of the passages) and feedback (empty at first), such as
    `prompt | model | StrOutputParser()`. `guard` may be a policy or its file; `strong` and `settings` are those
    of `guard.actions.answer`; `settings.k` passages are asked of retrievers with `search_kwargs`, others return as many
    as they do. The input is a text or has a question, query or input. Plain, async and batched calls are guarded, and
    a stream gives the answer at once, when it is decided on.
    """
    guarded_by = guard if isinstance(guard, Guard) else Guard(guard)

    async def guard_async(question: Any, config: RunnableConfig) -> str:
        def write(runnable: Runnable[dict[str, str], Any]) -> Any:
            async def generate(query: str, chunks: Sequence[Chunk], feedback: str) -> str:
                context = "\n\n".join(chunk.text for chunk in chunks)
                inputs = {"question": query, "context": context, "feedback": feedback}
                return _get_text(await runnable.ainvoke(inputs, config))

            return generate

        async def retrieve(query: str, size: int) -> list[Document]:
            limits = getattr(retriever, "search_kwargs", None)
            options: dict[str, Any] = {"k": size} if isinstance(limits, dict) else {}
            return await retriever.ainvoke(query, config, **options)

        guarded = await answer_async(
            guarded_by,
            _get_question(question),
            retrieve,
            write(generator),
            None if strong is None else write(strong),
            settings,
        )
        return guarded.text

    def guard_plain(question: Any, config: RunnableConfig) -> str:
        return run_sync(guard_async(question, config))

    return RunnableLambda(guard_plain, afunc=guard_async, name="guard")


def _get_question(question: Any) -> str:
    if isinstance(question, str):
        return question
    if isinstance(question, Mapping):
        for key in QUESTION_KEYS:
            if isinstance(question.get(key), str):
                return str(question[key])
    raise UsageError("a guarded chain takes a text, or an object with a question, a query or an input.")


def _get_text(message: Any) -> str:
    """Return the text of what a generator returns: a text or a message."""
    if isinstance(message, str):
        return message
    text = getattr(message, "text", None)
    text = text() if callable(text) and not isinstance(text, str) else text
    if isinstance(text, str):
        return str(text)
    raise UsageError(f"the generator returned {type(message).__name__}, which is neither a text nor a message.")
