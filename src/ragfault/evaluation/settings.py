"""Settings of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragfault.io.reading_settings import ReadingSettings
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.settings import Flag, NonEmptyText, PathText, PositiveInt, Settings, Switch, TextList, declare
from ragfault.model.work_settings import EXECUTOR, RAY, WORKERS, ignore_report

if TYPE_CHECKING:
    from ragfault.judges.calibration import JudgeCalibration
    from ragfault.judges.domain.profile import DomainProfile
    from ragfault.judges.llm.settings import LLMSettings
    from ragfault.model.protocols import Executor, Judge
    from ragfault.model.records import GoldMode, Usage
    from ragfault.model.rubrics import Rubric
    from ragfault.retrieval.index import ChunkIndex


class EvaluationSettings(ReadingSettings, frozen=True, kw_only=True):
    """How traces are read, judged and scored: `evaluate` explains each field."""

    metrics: str | Sequence[str | Rubric] = declare(
        "default", "A metric such as ndcg@10, a layer, `default` or `all`.", TextList, Flag(names=("-m", "--metrics"))
    )
    metrics_by: str | Sequence[str] = declare(
        (),
        "Metrics of the traces with a tag (route, model, or a key of the metadata), separated by commas; others get "
        "all metrics.",
        TextList,
        Flag(metavar="FIELD=VALUE:METRICS"),
    )
    judge: str | Judge = declare(
        DEFAULT_JUDGE,
        "Judge: embedded (trained, in the package), lexical (only words), minilm (a small language model), none, "
        "onnx:PATH for a model in ONNX: a folder, a file, or OWNER/NAME in the cache of the Hugging Face hub, or "
        "llm:MODEL or llm:PROVIDER/MODEL, which is asked over the network.",
        NonEmptyText,
    )
    options: Mapping[str, Any] | LLMSettings | None = declare(
        None, "Settings of a judge that is named: for llm:MODEL those of the table [llm]."
    )
    profile: str | Path | DomainProfile = declare(
        "general",
        "Domain profile, whose terms must match exactly: legal, medical, financial, technical, or a TOML file.",
        NonEmptyText,
        Flag(metavar="NAME|FILE"),
    )
    calibration: str | Path | JudgeCalibration | None = declare(
        None, "Calibration of this judge, written by `ragfault judge calibrate -o`.", PathText, Flag(metavar="FILE")
    )
    trusted: str | Path | ChunkIndex | None = declare(
        None,
        "Trusted documents: claims are also checked against the nearest of their passages, for factual_accuracy.",
        PathText,
        Flag(metavar="PATH"),
    )
    gold: GoldMode = declare(
        "apply",
        "Gold, facts, references and answerability labels: apply them before the judge's verdicts, or ignore them in "
        "metrics that read verdicts.",
        Literal["apply", "ignore"],
    )
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    batch: int | None = declare(
        None,
        "Batch size: traces judged and saved together.",
        PositiveInt,
        Flag(default="64; 1024 without a judge; up to 1024 on a cluster"),
    )
    skip_bad: bool = declare(
        False, "Skip lines that are not traces and write them to OUT.bad.jsonl.", Switch, is_key=False
    )
    force: bool = declare(False, "Replace an existing run at OUT.", Switch, is_key=False)
    on_progress: Callable[[int, int], None] = declare(
        ignore_report, "Function that is called with the number of finished traces and of all."
    )
    on_usage: Callable[[Usage], None] = declare(
        ignore_report, "Function that is called with the usage of a metered judge so far."
    )
    on_notice: Callable[[str], None] = declare(ignore_report, "Function that is called with messages for the user.")

    @property
    def tag_choices(self) -> tuple[str, ...]:
        """The choices of `metrics_by`."""
        return (self.metrics_by,) if isinstance(self.metrics_by, str) else tuple(self.metrics_by)


class RescoringSettings(Settings, frozen=True, kw_only=True):
    """How the verdicts of a run are scored again: `rescore` explains each field."""

    metrics: str | Sequence[str] | None = declare(
        None, "Metrics, as for evaluate.", TextList, Flag(names=("-m", "--metrics"), default="those of RUN")
    )
    gold: GoldMode | None = declare(
        None,
        "Gold, facts, references and answerability labels: apply them before the judge's verdicts, or ignore them in "
        "metrics that read verdicts.",
        Literal["apply", "ignore"],
        Flag(default="as in RUN"),
    )
    workers: int | None = WORKERS
    ray: str | None = RAY
    executor: Executor | None = EXECUTOR
    force: bool = declare(False, "Replace an existing run at OUT.", Switch, is_key=False)
