"""Settings of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from ragfault.io.reading_settings import ReadingSettings
from ragfault.judges.loading import DEFAULT_JUDGE, load_judge, name_cascade
from ragfault.model.errors import UsageError
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
        "Judge: encoder (trained to read, in the package), embedded (trained on words, 14 times as fast), lexical "
        "(only words), none, "
        "onnx:PATH for a model in ONNX: a folder, a file, or OWNER/NAME in the cache of the Hugging Face hub, or "
        "llm:MODEL or llm:PROVIDER/MODEL, which is asked over the network, as are decision:MODEL and "
        "logprobs:MODEL. jury:A,B asks several.",
        NonEmptyText,
    )
    escalate: str | Judge | None = declare(
        None,
        "Second judge, which sees and decides only the answers that `judge` is unsure of, and a tenth of the others "
        "to correct the means.",
        NonEmptyText,
        Flag(metavar="JUDGE"),
    )
    certainty: float | None = declare(
        None,
        "With `escalate`: answers that `judge` calls right or wrong with less than this probability are escalated.",
        Annotated[float, Meta(ge=0.5, le=1, description="a number from 0.5 to 1")],
        Flag(default="0.64"),
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
    def combined_judge(self) -> str | Judge:
        """The judge, or the cascade of it and the one to `escalate` to. Raises UsageError for half of a cascade."""
        if self.escalate is None:
            if self.certainty is not None:
                raise UsageError("certainty says what is escalated. Name the second judge with --escalate.")
            return self.judge
        if isinstance(self.judge, str) and isinstance(self.escalate, str):
            return name_cascade(self.judge, self.escalate, self.certainty)
        from ragfault.judges.combined import DEFAULT_CERTAINTY, combine_judges

        loaded = [load_judge(item) if isinstance(item, str) else item for item in (self.judge, self.escalate)]
        return combine_judges(loaded, self.certainty or DEFAULT_CERTAINTY)

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
