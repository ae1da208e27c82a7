"""The judge that asks a language model."""

from __future__ import annotations

import asyncio
import threading
import uuid
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ragfault.errors import JudgeError, Stopped
from ragfault.judges.lens import Lens, load_lens
from ragfault.judges.llm.calls import Caller, Counting
from ragfault.judges.llm.endpoint import where
from ragfault.judges.llm.judge_estimate import Estimate, estimated
from ragfault.judges.llm.judge_options import settings_of
from ragfault.judges.llm.judge_session import Session
from ragfault.judges.llm.judging import judged
from ragfault.judges.llm.prices import context
from ragfault.judges.llm.prompts import load_prompts
from ragfault.judges.llm.settings import Settings
from ragfault.ports import PARTS, Part
from ragfault.records import Trace, Usage, Verdicts

__all__ = ["LLM"]

VERSION = "1"


class LLM:
    """A judge that asks a language model, at most twice a trace; paid for, within a budget.

    It is made from settings, or from the name of a model and options (the fields of `Settings`). Nothing is sent
    before it observes; the key is read from the environment then, and held nowhere else.

    >>> LLM("ollama/llama3").fingerprint.split()[:3]
    ['llm/1', 'ollama/llama3', 'at=localhost:11434']
    """

    def __init__(
        self,
        named: str = "",
        *,
        settings: Settings | None = None,
        lens: str | Path | Lens = "general",
        **options: Any,
    ) -> None:
        self.settings = settings if settings is not None else settings_of(named, **options)
        self._told = replace(self.settings, context=self.settings.context or context(self.settings))
        self.lens = load_lens(lens)
        self._prompts = load_prompts(self.lens)
        self._fingerprint = _fingerprint(self.settings, self._prompts.digest, self.lens)
        self._purse, self._afresh = f"judge {uuid.uuid4().hex}", True
        self._session: Session | None = None
        self._usage = Usage()
        self._turn = threading.RLock()

    def __repr__(self) -> str:
        return f"<LLM {self._fingerprint}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.settings, self.lens)

    @property
    def offers(self) -> frozenset[Part]:
        """All parts; what similarity there is comes from words, as with the lexical judge."""
        return frozenset(PARTS)

    @property
    def fingerprint(self) -> str:
        """Name, version, model, place, prompts and parameters."""
        return self._fingerprint

    def with_lens(self, lens: Lens) -> LLM:
        """The same judge with the guidance and the thresholds of a lens."""
        return LLM(settings=self.settings, lens=lens)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, in order, asked for at once; from any thread, also from within an event loop.

        Raises Stopped where no trace can be judged any more, UsageError where the settings do not hold together.
        """
        return self._opened().run(lambda caller: self._all(traces, caller))

    def metered(self, trace: Trace) -> tuple[Verdicts, Usage]:
        """The verdicts on one trace, and what the replies that were paid for came to; raises what `observe` does."""

        async def work(caller: Caller) -> tuple[Verdicts, Usage]:
            counting = Counting(caller)
            return await self._one(trace, counting), counting.usage

        return self._opened().run(work)

    async def _all(self, traces: Sequence[Trace], caller: Caller) -> list[Verdicts]:
        found = await asyncio.gather(*(self._one(trace, caller) for trace in traces), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, Verdicts)]

    async def _one(self, trace: Trace, caller: Caller) -> Verdicts:
        try:
            return await judged(trace, caller, self._told, self._prompts, self._fingerprint)
        except Stopped:
            raise
        except JudgeError as error:
            return Verdicts(trace=trace.id, judge=self._fingerprint, failures={"*": str(error)})

    def estimate(self, traces: Iterable[Trace]) -> Estimate:
        """What judging these traces would send and cost, by kind of call; sends nothing."""
        return estimated(traces, self._told, self._prompts)

    # --- what is spent -----------------------------------------------------------------------------

    def begin(self, purse: str, *, afresh: bool) -> None:
        """Say for what is spent from here on; what was spent for it before counts, unless it is begun `afresh`."""
        with self._turn:
            self.end()
            self._purse, self._afresh = purse, afresh
            self._usage = Usage()
            self._opened()

    @property
    def usage(self) -> Usage:
        """What was spent for this purse until now."""
        session = self._session
        return session.usage if session is not None else self._usage

    def end(self) -> None:
        """Wait for the replies to what was sent, keep them, and close what is open."""
        with self._turn:
            session = self._session
            if session is None:
                return
            try:
                session.close()
            finally:
                self._usage = session.usage
                self._session = None

    def _opened(self) -> Session:
        with self._turn:
            if self._session is None:
                self._session = Session(self.settings, self._purse, afresh=self._afresh)
                self._afresh = False
                weakref.finalize(self, Session.close, self._session)
            return self._session


def _again(settings: Settings, lens: Lens) -> LLM:
    """The judge on the other side of a pickle."""
    return LLM(settings=settings, lens=lens)


def _fingerprint(settings: Settings, prompts: str, lens: Lens) -> str:
    """One line of all that bears on the verdicts."""
    said = [
        f"llm/{VERSION}",
        f"{settings.provider}/{settings.model}".replace(" ", "_"),
        f"at={where(settings)}",
        f"prompts={prompts}",
        f"temperature={'own' if settings.temperature is None else format(settings.temperature, 'g')}",
        f"tokens={settings.max_tokens}",
    ]
    if settings.votes > 1:
        said.append(f"votes={settings.votes}")
    if settings.context is not None:
        said.append(f"context={settings.context}")
    if settings.images != "data":
        said.append(f"images={settings.images}")
    if settings.structured != "auto":
        said.append(f"structured={settings.structured}")
    if settings.reverse:
        said.append("reverse")
    if settings.parameters:
        written = msgspec.json.encode(settings.parameters, order="deterministic").decode()
        said.append(f"parameters={written.replace(' ', '_')}")
    if not lens.plain:
        said.append(f"lens={lens.name}:{lens.digest}")
    return " ".join(said)
