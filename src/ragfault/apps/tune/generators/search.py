"""Choosing by replay of recorded answers, and searching the settings of a generator by calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import fields, replace

from ragfault.apps.tune.generators.choice import (
    ChoiceTerms,
    GeneratorPool,
    HumanValues,
    QuestionParts,
    choose_generator,
    replay_null,
)
from ragfault.apps.tune.generators.proof import find_violation
from ragfault.apps.tune.generators.race import MIN_ROUND, GeneratorRace, RaceTerms, average_repetitions, race_generators
from ragfault.apps.tune.generators.recorded import (
    AnswerScorer,
    RecordedAnswers,
    join_answers,
    make_question_key,
    parse_generation_metric,
)
from ragfault.apps.tune.generators.records import AnswerOutcome, GeneratorChoice, RaceRound
from ragfault.apps.tune.settings import GeneratorSettings
from ragfault.io.runs.copies import group_trace
from ragfault.judges.llm.prompts.request_plan import estimate_tokens
from ragfault.judges.llm.transport.budget import NANO, load_cost_function
from ragfault.model.errors import InputError, UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts
from ragfault.retrieval.generation.answering import answer_trace, compose_request, load_writer
from ragfault.retrieval.generation.settings import (
    SEARCHED_SETTINGS,
    AnswerExample,
    AnswerFormat,
    ChunkOrder,
    CitationStyle,
    GeneratorConfig,
)
from ragfault.stats.intervals import wilson_interval

THREADS = 8
"""Calls of a generator at once."""

REPLY_TOKENS = 200
"""Tokens of a reply that an estimate of its price assumes."""
WARM_UP = -1
"""Number of the repetition of a model's first call, whose answer is not used."""

AnswerQuestion = Callable[[GeneratorConfig, Trace, int], Trace]
"""Settings, question with chunks, and number of the repetition → the trace with an answer."""


DEFAULT_SETTINGS = GeneratorSettings()


def choose_recorded(
    recorded: Mapping[str, Sequence[Trace]],
    present: str | None = None,
    settings: GeneratorSettings = DEFAULT_SETTINGS,
    *,
    judge: Judge | None = None,
    verdicts: Mapping[int, Verdicts] | None = None,
    people: Mapping[str, Mapping[str, float]] | None = None,
) -> GeneratorChoice:
    """Choose among generators by their recorded answers to the same questions, without a call.

    `recorded` maps generators to traces; `present` is the one in use, by default the first. Several answers of a
    generator to a question are repetitions. `verdicts` are stored ones, by the identity of the trace; other answers go
    to the `judge` when the race needs them. `people` maps generators to values of the metric by trace id, which correct
    the gain. With `null_replays` the procedure is repeated so often on shuffled names, where nothing differs, and a
    note says how often it showed a gain. Raises what `join_answers` and `choose_generator` raise.

    >>> def answer(name, at):
    ...     return Trace(id=str(at), query=f"Question {at}?", answer=name, reference="right")
    >>> recorded = {name: [answer(name, at) for at in range(40)] for name in ("wrong", "right")}
    >>> choice = choose_recorded(recorded, settings=GeneratorSettings(metric="exact_match"))
    >>> choice.recommended, choice.gain.verdict
    ('right', 'gains')
    """
    joined = join_answers(recorded)
    scorer = AnswerScorer(parse_generation_metric(settings.metric), judge, verdicts)
    null_replays = settings.null_replays
    repetitions = joined.repetitions
    groups = joined.groups

    def measure(name: str, positions: Sequence[int]) -> list[Sequence[AnswerOutcome]]:
        rows = [joined.answers[name][i][:repetitions] for i in positions]
        outcomes = iter(scorer.score([trace for row in rows for trace in row]))
        return [[next(outcomes) for _ in row] for row in rows]

    def control(name: str, positions: Sequence[int]) -> tuple[list[float], list[float]] | None:
        if repetitions < 2:
            return None
        rows = measure(name, positions)
        return [row[0].value for row in rows], [row[1].value for row in rows]

    first_name = present or joined.names[0]
    inner = make_choice_terms(scorer, judge, settings, len(joined.names) * len(groups), repetitions)
    notes = list(joined.notes)
    if null_replays:
        table = [
            average_repetitions(measure(name, range(len(groups))))
            for name in (first_name, *(name for name in joined.names if name != first_name))
        ]
        share = replay_null(table, groups, null_replays, inner, seed=settings.seed)
        low, high = wilson_interval(share * null_replays, null_replays)
        notes.append(
            f"with the names of the generators shuffled on every question, where nothing differs, a gain was shown in "
            f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {null_replays:,} replays"
        )
    values = None if people is None else _place_people(people, joined)
    choice = choose_generator(
        GeneratorPool(joined.names, groups, measure, values, control, settings.notice), first_name, inner
    )
    return replace(choice, notes=(*notes, *choice.notes))


def make_choice_terms(
    scorer: AnswerScorer,
    judge: Judge | None,
    settings: GeneratorSettings,
    answers: int,
    repetitions: int,
    control: bool = False,
) -> ChoiceTerms:
    """Return the terms of a choice within a share of the first answers of every generator to every question."""
    return ChoiceTerms(
        str(scorer.metric),
        judge.fingerprint if judge is not None else "none",
        None if settings.share is None else int(settings.share * answers * repetitions + 1e-6),
        repetitions,
        settings.holdout,
        settings.bounds,
        settings.seed,
        scorer.limits,
        control and repetitions == 1,
    )


def _place_people(people: Mapping[str, Mapping[str, float]], joined: RecordedAnswers) -> HumanValues:
    """Return human values by the positions of the questions, from those by trace id."""
    return {
        name: {i: people[name][row[0].id] for i, row in enumerate(joined.answers[name]) if row[0].id in people[name]}
        for name in joined.names
        if name in people
    }


class GeneratorSpace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of the settings that are searched; a setting without values stays as it is."""

    model: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    order: tuple[ChunkOrder, ...] = ()
    temperature: tuple[float, ...] = ()
    max_tokens: tuple[int, ...] = ()
    format: tuple[AnswerFormat, ...] = ()
    citations: tuple[CitationStyle, ...] = ()
    examples: tuple[tuple[AnswerExample, ...], ...] = ()

    @property
    def size(self) -> int:
        """Number of combinations; the present values count among them."""
        return prod(len(getattr(self, field.name)) + 1 for field in fields(self) if getattr(self, field.name))


class GeneratorBench:
    """Generators that are called: settings by name, their answers and outcomes, each made once."""

    def __init__(
        self, questions: Sequence[Trace], scorer: AnswerScorer, answer: AnswerQuestion, repetitions: int = 1
    ) -> None:
        self.questions, self.scorer, self._answer, self.repetitions = tuple(questions), scorer, answer, repetitions
        self.groups = [group_trace(question) for question in questions]
        self.configs: dict[str, GeneratorConfig] = {}
        self._answers: dict[tuple[str, int, int], Trace] = {}
        self._warm: set[str] = set()
        self.calls = 0
        """Answers requested so far."""

    def add(self, config: GeneratorConfig) -> str:
        """Add settings, and return their name."""
        self.configs[config.name] = config
        return config.name

    def get_answer(self, name: str, position: int) -> Trace:
        """Return the first answer to a question that was made."""
        return self._answers[name, position, 0]

    def answer(self, name: str, keys: Sequence[tuple[int, int]]) -> list[Trace]:
        """Return the answers to questions by position and repetition; those that are missing are requested."""
        missing = [key for key in dict.fromkeys(keys) if (name, *key) not in self._answers]
        self.calls += len(missing)
        config = self.configs[name]
        if missing and config.model not in self._warm:
            # the first call may load the model: it is made alone, and its time is no generator's
            self._answer(config, self.questions[missing[0][0]], WARM_UP)
            self._warm.add(config.model)
        with ThreadPoolExecutor(THREADS) as pool:
            work = [pool.submit(self._answer, config, self.questions[i], repetition) for i, repetition in missing]
            for key, future in zip(missing, work, strict=True):
                self._answers[(name, *key)] = future.result()
        return [self._answers[(name, *key)] for key in keys]

    def measure(self, name: str, positions: Sequence[int]) -> list[list[AnswerOutcome]]:
        """Return the outcomes of a generator on questions, one for each repetition."""
        keys = [(i, repetition) for i in positions for repetition in range(self.repetitions)]
        outcomes = iter(self.scorer.score(self.answer(name, keys)))
        return [[next(outcomes) for _ in range(self.repetitions)] for _ in positions]

    def make_pool(self, name: str, settings: GeneratorSettings) -> GeneratorPool:
        """Return the pool of one generator, to which a search adds; with a control it can answer twice."""
        pool = GeneratorPool([name], self.groups, self.measure, notice=settings.notice)
        return pool._replace(control=self.measure_twice) if settings.control else pool

    def measure_twice(self, name: str, positions: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return the values of a first and of a second answer to each question."""
        first, second = (
            self.scorer.score(self.answer(name, [(i, repetition) for i in positions])) for repetition in (0, 1)
        )
        return [outcome.value for outcome in first], [outcome.value for outcome in second]


def search_generators(
    questions: Sequence[Trace],
    present: GeneratorConfig,
    space: GeneratorSpace,
    settings: GeneratorSettings = DEFAULT_SETTINGS,
    *,
    judge: Judge | None = None,
    answer: AnswerQuestion | None = None,
) -> tuple[GeneratorChoice, GeneratorConfig]:
    """Search the settings of a generator by calling it, and measure the best against the present one.

    The `questions` carry the chunks that the generator sees. The models are raced first, the other settings one after
    the other with what won before. `answer` calls the generator, by default the endpoint of `llm:MODEL`. If `control`
    is set, the present generator answers the held-out questions a second time. Returns the choice, and the settings to
    use.

    Raises InputError for questions without chunks or fewer than 20, UsageError for a space with nothing in it.
    """
    bench = make_bench(questions, settings, judge, answer)
    name = bench.add(present)
    stages = [setting for setting in SEARCHED_SETTINGS if getattr(space, setting)]
    if not stages:
        raise UsageError("the space holds nothing to search. Give values of a setting, such as model or chunks.")

    def search(parts: QuestionParts) -> GeneratorRace:
        return _search_settings(bench, present, space, stages, parts, settings)

    repetitions, answers = settings.repetitions, space.size * len(bench.questions)
    inner = make_choice_terms(bench.scorer, judge, settings, answers, repetitions, settings.control)
    choice = choose_generator(bench.make_pool(name, settings), name, inner, search)
    choice = replace(choice, grid_calls=answers * repetitions)
    return choice, bench.configs[choice.recommended]


class AnswerPrice(NamedTuple):
    """What an answer of some settings costs, estimated."""

    name: str
    model: str
    prompt: int
    """Mean tokens sent."""
    cost: float | None
    """US$, for a reply of `REPLY_TOKENS`; None where no price is known."""


def price_answers(questions: Sequence[Trace], configs: Sequence[GeneratorConfig]) -> list[AnswerPrice]:
    """Estimate the tokens and the price of an answer by each settings, without a call.

    Raises InputError for questions without chunks, UsageError for a model that is not `llm:MODEL`.

    >>> from ragfault.model.records import Chunk
    >>> question = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At ten."),))
    >>> [price.cost for price in price_answers([question], [GeneratorConfig(model="llm:ollama/llama3")])]
    [0.0]
    """
    shown = [trace for trace in questions if trace.chunks]
    if not shown:
        raise InputError("no question has chunks. Give traces of a retrieval: each with its query and its chunks.")
    prices = []
    for config in configs:
        requests = [compose_request(config, trace) for trace in shown]
        sizes = [estimate_tokens(f"{r.instructions}{''.join(part.text for part in r.parts)}") for r in requests]
        cost = load_cost_function(load_writer(config).settings)(round(fmean(sizes)), REPLY_TOKENS)
        prices.append(
            AnswerPrice(config.name, config.model, round(fmean(sizes)), None if cost is None else cost / NANO)
        )
    return prices


def make_bench(
    questions: Sequence[Trace], settings: GeneratorSettings, judge: Judge | None, answer: AnswerQuestion | None
) -> GeneratorBench:
    """Return the bench of questions, the same question once. Raises InputError where none has chunks."""
    distinct = list({make_question_key(trace): trace for trace in questions if trace.chunks}.values())
    if not distinct:
        raise InputError("no question has chunks. Give traces of a retrieval: each with its query and its chunks.")
    call = answer or (lambda config, trace, repetition: answer_trace(config, trace, repetition=repetition))
    scorer = AnswerScorer(parse_generation_metric(settings.metric), judge)
    return GeneratorBench(distinct, scorer, call, settings.repetitions)


def _search_settings(
    bench: GeneratorBench,
    present: GeneratorConfig,
    space: GeneratorSpace,
    stages: Sequence[str],
    parts: QuestionParts,
    settings: GeneratorSettings,
) -> GeneratorRace:
    """Race the values of one setting after the other, the calls divided by the number of values."""
    best, rounds, undecided = present, list[RaceRound](), tuple[str, ...]()
    outcomes: dict[str, list[Sequence[AnswerOutcome]]] = {}
    counts = {setting: len(getattr(space, setting)) + 1 for setting in stages}
    for setting in stages:
        candidates = [best, *(replace(best, **{setting: value}) for value in getattr(space, setting))]
        names = list(dict.fromkeys(bench.add(config) for config in candidates))
        if len(names) < 2:
            continue
        calls = None
        if parts.calls is not None:
            calls = max(
                parts.calls * counts[setting] // sum(counts.values()), len(names) * settings.repetitions * MIN_ROUND
            )
        race = race_generators(
            names,
            len(parts.selection),
            lambda name, positions: bench.measure(name, [parts.selection[i] for i in positions]),
            RaceTerms(calls, settings.repetitions),
            exclude=lambda rows: find_violation(settings.bounds, rows) is not None,
        )
        best, undecided = bench.configs[race.chosen], race.undecided
        rounds += race.rounds
        for name, rows in race.outcomes.items():
            outcomes[name] = max(outcomes.get(name, []), rows, key=len)
    return GeneratorRace(best.name, undecided, tuple(rounds), bench.calls, outcomes)
