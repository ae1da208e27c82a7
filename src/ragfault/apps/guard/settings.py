"""Settings of the certification of a guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from ragfault.labels.settings import LabelSettings
from ragfault.model.settings import Flag, OpenShare, TextList, declare

PositiveShare = Annotated[float, Meta(gt=0, le=1, description="a number above 0, up to 1")]


class CertificateSettings(LabelSettings, frozen=True, kw_only=True):
    """What a certificate promises, on which thresholds it is tested, and by which labels: `certify` explains it."""

    alpha: float = declare(0.1, "Largest share of bad answers among the released ones.", OpenShare)
    delta: float = declare(0.1, "Chance that the promise is broken.", OpenShare)
    start: float | None = declare(
        None,
        "Share of the answers from which thresholds are tested; choose it before seeing labels.",
        PositiveShare,
        Flag(metavar="SHARE", default="the most promising share up to 0.5"),
    )
    routes: Sequence[str] = declare(
        (),
        "Certify this route apart, with its share of delta.",
        TextList,
        Flag(names=("--route",), metavar="ROUTE", default="one threshold for all"),
    )
    ranking: Literal["risk", "words"] = declare(
        "risk",
        "Order of the answers: the judge's risk, or one that counts unsupported words, too; choose it before seeing "
        "labels.",
        Literal["risk", "words"],
    )
