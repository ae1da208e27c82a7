"""Settings of the making of evaluation sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ragfault.model.settings import Flag, NaturalInt, Settings, declare
from ragfault.model.work_settings import ignore_report

if TYPE_CHECKING:
    from ragfault.apps.testsets.making.style import QueryStyle
    from ragfault.apps.testsets.records import QuestionKind
    from ragfault.judges.llm.judge import LLMGenerator
    from ragfault.model.records import Trace

ShareTable = Annotated[dict[str, float], Meta(description="a table of kinds of questions, each with its share")]


class MakingSettings(Settings, frozen=True, kw_only=True):
    """What questions an evaluation set has: `make_testset` explains each field."""

    seed: int = declare(0, "Seed of the random choice of passages.", NaturalInt)
    mix: Mapping[QuestionKind, float] | None = declare(
        None,
        "Shares of the kinds of items.",
        ShareTable,
        Flag(metavar="KIND=SHARE,…", default="every kind that can be made"),
    )
    style: QueryStyle | None = declare(None, "Style of the queries.")
    own: Sequence[Trace] = declare((), "Questions of people, which come first.")
    model: LLMGenerator | None = declare(None, "Language model that words and checks questions.")
    notice: Callable[[str], None] = declare(ignore_report, "Function that is called with the estimate of the calls.")
