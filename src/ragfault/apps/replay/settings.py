"""Settings of a replay."""

from __future__ import annotations

from collections.abc import Callable

from ragfault.model.settings import Flag, NaturalInt, NonEmptyText, PathText, Settings, SeveralInt, TextList, declare
from ragfault.model.work_settings import ignore_report

TRACES_OF_CAUSE = 30
"""Traces of one cause that are asked again: they tell 27 of 30 from 15 of 30, and cost at most 120 calls."""


class ReplaySettings(Settings, frozen=True, kw_only=True):
    """Which causes are put to the proof, and how often the model is asked."""

    causes: tuple[str, ...] = declare(
        (),
        "Only answers that are bad for this cause, such as not-retrieved.",
        TextList,
        Flag(names=("--cause",), metavar="NAME", default="every cause", parse=tuple),
    )
    sample: int | None = declare(
        None,
        "Most traces of each cause, queries of a fix, or pairs of a change; of more a random sample. 0: all.",
        NaturalInt,
        Flag(metavar="N", default="30, 100 or 50"),
    )
    attempts: int = declare(
        3, "Most attempts to prove a cause; one or two more are made without the change.", SeveralInt, Flag(metavar="N")
    )
    judge: str | None = declare(
        None, "Judge of the answers, as for `evaluate`.", NonEmptyText, Flag(default="that of the run")
    )
    corpus: str | None = declare(
        None, "Documents or chunks, in which passages that gold names are looked up.", PathText, Flag(metavar="PATH")
    )
    redact: str | None = declare(
        None,
        "Replace these in all that is sent, stored and shown: email, phone, card, key, or all.",
        NonEmptyText,
        Flag(metavar="KINDS"),
    )
    seed: int = declare(0, "Seed of the sample.", NaturalInt)
    on_notice: Callable[[str], None] = declare(ignore_report, "Function that is called with messages for the user.")
