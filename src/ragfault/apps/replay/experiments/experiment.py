"""Queries asked in several configurations of a system, each once: the experiment behind fixes and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.apps.replay.asking import AskedAnswer, AskedRequest, Asker, ask_until_stopped
from ragfault.apps.replay.interventions import change_trace
from ragfault.apps.replay.rating import AnswerRater
from ragfault.apps.replay.records import AskedQuery, ConfigurationCost, ConfiguredAnswer
from ragfault.model.records import Trace

RIGHTNESS = {"right": 1.0, "unsure": 0.5, "bad": 0.0}
"""The value of an answer; one that cannot be told counts half."""


class PlannedQuery(NamedTuple):
    """A query with its request in each configuration, or the reason why there are none."""

    trace: Trace
    requests: tuple[AskedRequest, ...] = ()
    refused: str = ""
    cluster: int = 0
    """Queries of one cluster are not independent."""


class Experiment(NamedTuple):
    """Configurations, and the queries that are asked in each of them."""

    configurations: tuple[str, ...]
    queries: tuple[PlannedQuery, ...]
    askers: tuple[int, ...] = ()
    """Which of several systems answers in each configuration, from 0; empty: the one that there is."""

    @property
    def asked(self) -> list[PlannedQuery]:
        """The queries that have requests."""
        return [query for query in self.queries if query.requests]

    @property
    def refused(self) -> tuple[tuple[str, int], ...]:
        """Each reason why queries are not asked, and of how many, the most frequent first."""
        return tuple(Counter(query.refused for query in self.queries if not query.requests).most_common())

    def list_requests(self) -> list[tuple[int, AskedRequest]]:
        """List the requests that differ, each with the system that answers it."""
        return [(number, request) for query in self.asked for (number, _), request in self._distinguish(query).items()]

    def _distinguish(self, query: PlannedQuery) -> dict[tuple[int, bytes], AskedRequest]:
        return {self.make_key(place, request): request for place, request in enumerate(query.requests)}

    def make_key(self, place: int, request: AskedRequest) -> tuple[int, bytes]:
        """Return what tells the request of a configuration from the others of its query."""
        chunks = () if request.messages else tuple((chunk.id, chunk.text) for chunk in request.chunks)
        number = self.askers[place] if self.askers else 0
        return number, msgspec.json.encode((request.messages, chunks, request.settings))


class ExperimentAnswers(NamedTuple):
    """The answers of an experiment."""

    queries: tuple[AskedQuery, ...]
    costs: tuple[ConfigurationCost, ...]
    """In the order of the configurations."""
    values: NDArray[np.float64]
    """Configurations by queries: the rightness of the answer; NaN where there is none."""
    clusters: list[int]
    stopped: str | None


def ask_experiment(
    experiment: Experiment, askers: Sequence[Asker], rater: AnswerRater, redact: Callable[[str], str]
) -> ExperimentAnswers:
    """Ask every query in each configuration. Requests that are the same have the same answer, and are asked once."""
    listed = experiment.list_requests()
    answers: dict[int, AskedAnswer] = {}
    stopped: str | None = None
    for number, asker in enumerate(askers):
        places = [place for place, (own, _) in enumerate(listed) if own == number]
        given, stopped = ask_until_stopped(asker, [listed[place][1] for place in places], redact)
        answers |= {place: answer for place, answer in zip(places, given, strict=True) if answer is not None}
        if stopped is not None:
            break
    return _collect(experiment, _order_answers(experiment, answers), rater, stopped)


def _order_answers(
    experiment: Experiment, answers: dict[int, AskedAnswer]
) -> list[tuple[PlannedQuery, list[AskedAnswer | None]]]:
    """Return each query with its answers in the order of the configurations."""
    place = 0
    ordered = []
    for query in experiment.asked:
        keys = [experiment.make_key(at, request) for at, request in enumerate(query.requests)]
        places = {key: place + at for at, key in enumerate(dict.fromkeys(keys))}
        place += len(places)
        ordered.append((query, [answers.get(places[key]) for key in keys]))
    return ordered


def _collect(
    experiment: Experiment,
    ordered: Sequence[tuple[PlannedQuery, list[AskedAnswer | None]]],
    rater: AnswerRater,
    stopped: str | None,
) -> ExperimentAnswers:
    """Rate the answers, and add up what each configuration cost."""
    flat = [(request, answer) for query, own in ordered for request, answer in zip(query.requests, own, strict=True)]
    rated = iter(
        rater.rate(
            [
                change_trace(request.trace, request.chunks, answer.text)
                for request, answer in flat
                if answer is not None and answer.text is not None
            ]
        )
    )
    outcomes = [next(rated) if answer is not None and answer.text is not None else None for _, answer in flat]
    names, width = experiment.configurations, len(experiment.configurations)
    values = np.array([RIGHTNESS[outcome] if outcome else np.nan for outcome in outcomes]).reshape(-1, width).T
    configured = [
        ConfiguredAnswer(
            configuration=names[at % width],
            chunks=tuple(chunk.id for chunk in request.chunks),
            answer=None if answer is None else answer.text,
            outcome=outcome,
            error="not asked" if answer is None else answer.error,
        )
        for at, ((request, answer), outcome) in enumerate(zip(flat, outcomes, strict=True))
    ]
    queries = tuple(
        AskedQuery(
            trace=query.trace.id, query=query.trace.query, answers=tuple(configured[at * width : (at + 1) * width])
        )
        for at, (query, _) in enumerate(ordered)
    )
    answers = [answer for _, answer in flat]
    costs = tuple(
        sum_costs(name, outcomes[at::width], [answer for answer in answers[at::width] if answer is not None])
        for at, name in enumerate(names)
    )
    return ExperimentAnswers(queries, costs, values, [query.cluster for query, _ in ordered], stopped)


def sum_costs(name: str, outcomes: Sequence[str | None], answers: Sequence[AskedAnswer]) -> ConfigurationCost:
    """Sum up what a configuration answered, and what an answer of it took on average."""
    counts = Counter(outcomes)
    given = [answer for answer in answers if answer.text is not None]
    return ConfigurationCost(
        configuration=name,
        right=counts["right"],
        bad=counts["bad"],
        unsure=counts["unsure"],
        failed=len(answers) - len(given),
        prompt=_average(answer.prompt for answer in given),
        completion=_average(answer.completion for answer in given),
        cost=_average(answer.cost for answer in given),
        seconds=_average(answer.seconds for answer in given),
    )


def _average(values: Iterable[float | None]) -> float | None:
    """Return the mean of values; None where one is not known."""
    known = list(values)
    return fmean(value for value in known if value is not None) if known and None not in known else None
