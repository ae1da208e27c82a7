"""The decision of a tuning, the same for pipelines and for generators: whether another one replaces the present one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ragfault.apps.tune.results import GainVerdict
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig
from ragfault.stats.estimates import Difference
from ragfault.stats.power import detectable_effect
from ragfault.text.number_format import format_interval, format_number

BEST_SCORING = "the best-scoring pipeline"
NEEDED_STEPS = "the best-scoring pipeline without the steps that show no gain"
PRESENT = "the present pipeline"
PLAIN_BM25 = "plain BM25"

EQUIVALENCE_MARGIN = 0.05
"""Loss that the interval of a difference must exclude for something cheaper to count as just as good."""
TOLERANCE = 1e-9
"""Difference below which two means count as equal."""
RULE = (
    "Rule: the present one stays unless another keeps to the bounds and either gains (test at 5 %), or is cheaper, "
    f"measured no lower, and a loss of more than {EQUIVALENCE_MARGIN} is excluded (95 % interval)."
)


class Recommendation(NamedTuple):
    """What is recommended, by its name among the candidates, with the reason."""

    name: str
    reason: str


class Contender(NamedTuple):
    """Something that may replace the present one, measured against it."""

    name: str
    difference: Difference
    """Its values less those of the present one."""
    verdict: GainVerdict
    figures: str
    """The difference in words, with its test."""
    saving: str = ""
    """What it saves, in words; empty where it saves nothing."""
    violation: str = ""
    """The bounds that it breaks, with its figures; empty where it keeps to all."""
    subject: str = ""
    """Its name at the beginning of a sentence, where that is another."""

    @property
    def is_as_good(self) -> bool:
        """True where it was measured no lower, and a loss beyond the margin is excluded."""
        return self.difference.mean >= -TOLERANCE and self.difference.low >= -EQUIVALENCE_MARGIN


def decide(
    present: str,
    contenders: Sequence[Contender],
    gains_over: Callable[[str, str], bool] = lambda *_: False,
    violation: str = "",
) -> Recommendation:
    """Decide what to use by the `RULE`: of several that gain, the first over which no other of them gains.

    `contenders` come the simplest first. `violation` names the bounds that the present one itself breaks: what keeps to
    them then counts as cheaper. What is measured below the present one is never recommended.
    """
    eligible = [contender for contender in contenders if not contender.violation]
    gaining = [contender for contender in eligible if contender.verdict == "gains"]
    remarks = [_describe_rejected(contender) for contender in contenders if contender.violation]
    remarks += [f"The present one itself breaks {violation}."] if violation else []
    if gaining:
        current = gaining[0]
        for contender in gaining[1:]:
            current = contender if gains_over(contender.name, current.name) else current
        return Recommendation(current.name, " ".join([f"It gains {current.figures}.", *remarks]))
    for contender in eligible:
        saving = contender.saving or ("keeps to the bounds" if violation else "")
        if saving and contender.is_as_good:
            reason = f"It is as good within {EQUIVALENCE_MARGIN} ({contender.figures}) and {saving}."
            return Recommendation(contender.name, " ".join([reason, *remarks]))
    reasons = [_describe_no_gain(contender) for contender in reversed(eligible)] or ["Nothing else was left to choose."]
    return Recommendation(present, " ".join([*reasons, *remarks]))


def _describe_no_gain(contender: Contender) -> str:
    verb = "loses" if contender.verdict == "loses" else "shows no gain:"
    return f"{contender.subject or contender.name} {verb} {contender.figures}."


def _describe_rejected(contender: Contender) -> str:
    """Describe a contender that a bound rejects, first of all that it gains."""
    verb = {"gains": "gains", "loses": "loses", "no gain shown": "shows no gain:"}[contender.verdict]
    raise_it = "; relax the bound to use it" if contender.verdict == "gains" else ""
    return (
        f"{contender.subject or contender.name} {verb} {contender.figures}, but breaks {contender.violation}{raise_it}."
    )


def describe_power(deviation: float, questions: int, groups: int, metric: str) -> str | None:
    """Describe before a search which gain the questions that measure can show; None where nothing varies.

    `deviation` is that of the present one's values, about which the differences of pairs vary as much.

    >>> describe_power(0.4, 100, 100, "ndcg@10")
    '100 held-out questions can show a gain of about 0.113 ndcg@10 (80 % power); smaller gains need more questions'
    """
    if not deviation > 0 or groups < 2:
        return None
    gain = format_number(detectable_effect(deviation, questions, questions / groups), 3)
    return (
        f"{questions:,} held-out questions can show a gain of about {gain} {metric} (80 % power); "
        "smaller gains need more questions"
    )


def count_stages(config: PipelineConfig) -> int:
    """Count the stages of a pipeline, an embedder among them."""
    return len(config.stages) + (config.embedder != NO_EMBEDDER)


def order_candidates(
    best: PipelineConfig, present: PipelineConfig, plain_bm25: PipelineConfig, pruned: PipelineConfig | None = None
) -> dict[str, PipelineConfig]:
    """Return the different pipelines that may be recommended by name, the simplest first.

    `pruned` is the best-scoring one without the steps that show no gain.

    The one with fewer stages is simpler, an embedder counted as a stage; of equally many the present one, for which
    nothing has to be changed, and then plain BM25. Milliseconds do not decide: they vary with the load of the machine.

    >>> plain = PipelineConfig()
    >>> reranked = PipelineConfig(stages={**plain.stages, "rerank": "rerank(lexical)"})
    >>> list(order_candidates(reranked, plain, plain))
    ['the present pipeline', 'the best-scoring pipeline']
    """
    candidates_by_name = [(PRESENT, present), (PLAIN_BM25, plain_bm25)]
    candidates_by_name += [(NEEDED_STEPS, pruned)] if pruned is not None and pruned.name != best.name else []
    candidates_by_name.append((BEST_SCORING, best))
    candidates: dict[str, PipelineConfig] = {}
    for name, config in candidates_by_name:
        if config.name not in {known_config.name for known_config in candidates.values()}:
            candidates[name] = config
    return dict(sorted(candidates.items(), key=lambda item: count_stages(item[1])))


def describe_difference(difference: Difference, metric: str) -> str:
    """Return a difference with its interval, metric and number of questions."""
    return f"{format_interval(difference, 3, signed=True)} {metric} on {difference.n:,} held-out questions"
