"""Isolation: which part made the change, held against brute force, hand-made systems and its own laws."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.comparison.ablation.attribution import (
    EffectOptions,
    ExperimentValues,
    attribute_change,
    draw_permutations,
    factorial_design,
    permutation_design,
)
from ragfault.comparison.ablation.experiment import ablate
from ragfault.comparison.ablation.parts import Ablation, MetricAttribution, generator, retriever
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.judges.assembly import grade_relevance
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.model.errors import InputError, OutputError, RunError, UsageError
from ragfault.model.records import Chunk, ChunkVerdict, Latency, Trace, Verdicts
from ragfault.report.builders.ablation import build_ablation
from ragfault.report.renderers.terminal import render_terminal

NAMES = ("chunker", "embedder", "reranker", "prompt", "model")
HOURS = ("noon", "dawn", "dusk", "midnight", "teatime")
SHIPS = [f"{start}{end}" for start in ("Alba", "Bruna", "Corva", "Delma", "Ferra") for end in ("dorn", "lith", "mar")]
FACTS = {ship: f"The vessel {ship} leaves harbour at {HOURS[at % 5]}." for at, ship in enumerate(SHIPS)}
QUERIES = [
    Trace(id=ship, query=f"When does the vessel {ship} leave harbour?", reference=fact, facts=(fact,))
    for ship, fact in FACTS.items()
]


def passage(ship: str) -> Chunk:
    return Chunk(id=ship, text=FACTS[ship])


def finding(*wrong: int):
    """Build a retriever that finds the ship asked for, except at these numbers, where it finds another."""

    def find_ship(query: str) -> list[Chunk]:
        at = SHIPS.index(query.split()[4])
        return [passage(SHIPS[(at + 1) % len(SHIPS)] if at in wrong else SHIPS[at])]

    return retriever(find_ship)


copying = generator(lambda query, chunks: chunks[0].text)
inventing = generator(lambda query, chunks: "Every elephant plays seventeen golden trumpets on Mars.")


def system(retrieve, answer):
    return {"retriever": retrieve, "generator": answer}


def table(k: int, value):
    """Build two systems of k parts whose latency is `value(mask, query number)`, mask being the swapped parts."""

    def step(part: int, on: bool):
        def run(trace: Trace) -> Trace:
            mask = trace.metadata.get("mask", 0) | on << part
            total = float(value(mask, int(trace.id))) if part == k - 1 else None
            return replace(trace, metadata={"mask": mask}, latency=Latency(total=total))

        return run

    return tuple({NAMES[part]: step(part, on) for part in range(k)} for on in (False, True))


def numbered(n: int) -> list[Trace]:
    return [Trace(id=str(at), query=f"Query {at}?") for at in range(n)]


def shapley(k: int, value) -> list[float]:
    """Compute the definition: the mean over all orders of what each part adds in its turn."""
    shares = [0.0] * k
    permutations = list(itertools.permutations(range(k)))
    for order in permutations:
        mask = 0
        for part in order:
            shares[part] += (value(mask | 1 << part) - value(mask)) / len(permutations)
            mask |= 1 << part
    return shares


def attribution_of(result: Ablation, metric: str) -> MetricAttribution:
    return next(attribution for attribution in result.attributions if attribution.metric == metric)


def moving_parts(attribution: MetricAttribution) -> list[str]:
    return [share.parts[0] for share in attribution.shares if share.moved]


def means(result: Ablation, metric: str) -> dict[str, float]:
    return {share.parts[0]: share.difference.mean for share in attribution_of(result, metric).shares}


# --- the arithmetic --------------------------------------------------------------------------------

games = st.integers(1, 5).flatmap(lambda k: st.lists(st.integers(-50, 50), min_size=2**k, max_size=2**k))


@given(games)
def test_shares_are_those_of_the_definition(values: list[int]):
    """The weights give each part its mean addition over all k! orders, and the shares sum to the whole change."""
    k = len(values).bit_length() - 1
    design = factorial_design(k)
    inner = np.array([values[mask] for mask in design.masks], dtype=float)
    assert (design.shares @ inner).tolist() == pytest.approx(shapley(k, values.__getitem__), abs=1e-9)
    assert (design.shares @ inner).sum() == pytest.approx(values[-1] - values[0], abs=1e-9)
    assert design.total @ inner == values[-1] - values[0]


@given(games)
def test_sampled_permutations_are_all_when_all_are_taken(values: list[int]):
    """The design of every order is the factorial one."""
    k = min(len(values).bit_length() - 1, 4)
    every = permutation_design(k, list(itertools.permutations(range(k))))
    exact = factorial_design(k)
    assert every.masks == exact.masks
    assert np.allclose(every.shares, exact.shares)


@given(st.integers(2, 5), st.data())
def test_parts_that_do_the_same_share_alike(k: int, data: st.DataObject):
    """Two parts whose swap does the same beside whatever else is swapped have equal shares (symmetry)."""
    part_lists = data.draw(st.lists(st.integers(-9, 9), min_size=2**k, max_size=2**k))

    def value(mask: int) -> int:
        return part_lists[mask & ~3 | (1 if (mask & 3) in (1, 2) else mask & 3)]

    design = factorial_design(k)
    shares = design.shares @ np.array([value(mask) for mask in design.masks], dtype=float)
    assert shares[0] == pytest.approx(shares[1], abs=1e-9)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 99))
def test_a_part_that_does_nothing_has_no_share(k: int, count: int, seed: int):
    """With all orders or with some, a null part has 0 and the shares still sum to the whole change."""
    part_lists, null = np.random.default_rng(seed).normal(size=2**k), seed % k
    for design in (factorial_design(k), permutation_design(k, draw_permutations(k, count, seed))):
        inner = np.array([part_lists[mask & ~(1 << null)] for mask in design.masks])
        shares = design.shares @ inner
        assert shares[null] == pytest.approx(0, abs=1e-12)
        assert shares.sum() == pytest.approx(inner[-1] - inner[0], abs=1e-9)


def test_permutations_are_balanced():
    """Among as many orders as there are parts, each part comes once at each place; a seed gives the same ones."""
    permutations = draw_permutations(6, 6, seed=4)
    assert all(len({order[place] for order in permutations}) == 6 for place in range(6))
    assert permutations == draw_permutations(6, 6, seed=4)


def test_interactions_of_three_parts_are_those_of_the_definition():
    """The interaction index is the mean, over how many other parts are swapped, of the second difference."""
    value = [0, 3, 1, 9, 2, 4, 8, 30]
    design = factorial_design(3)
    inner = np.array([value[mask] for mask in design.masks], dtype=float)
    result = {(i, j): row @ inner for i, j, row in design.interactions}
    without = value[3] - value[1] - value[2] + value[0]
    beside = value[7] - value[5] - value[6] + value[4]
    assert result[0, 1] == pytest.approx((without + beside) / 2)


# --- the experiment --------------------------------------------------------------------------------


def test_two_parts_have_the_effects_of_the_factorial():
    """Main effects and interaction of a 2 × 2 worked by hand: 10, 14 (retrieval), 11 (generation), 25 (both)."""
    cells = {0: 10, 1: 14, 2: 11, 3: 25}
    baseline, candidate = table(2, lambda mask, query: cells[mask] + query)
    result = ablate(baseline, candidate, numbered(12), metrics=["latency"])
    item = attribution_of(result, "latency")
    assert [systems.name for systems in result.configurations] == ["baseline", "chunker", "embedder", "candidate"]
    assert item.means == (15.5, 19.5, 16.5, 30.5)
    assert item.total.difference.mean == 15
    assert means(result, "latency") == {"chunker": (4 + 14) / 2, "embedder": (1 + 11) / 2}
    assert [(pair.parts, pair.difference.mean) for pair in item.interactions] == [(("chunker", "embedder"), 10)]


@pytest.mark.parametrize("k", [1, 3, 4])
@pytest.mark.long
def test_the_experiment_equals_brute_force(k: int):
    """Through real callables, runs on disk and back, the shares are those of all orders."""
    part_lists = np.random.default_rng(k).integers(0, 100, size=(2**k, 9))
    result = ablate(*table(k, lambda mask, query: part_lists[mask, query]), numbered(9), metrics=["latency"])
    assert len(result.configurations) == 2**k
    expected = shapley(k, lambda mask: part_lists[mask].mean())
    assert list(means(result, "latency").values()) == pytest.approx(expected)


@pytest.mark.long
def test_five_parts_are_swapped_in_some_permutations():
    """More than four parts run fewer configurations than all; what adds up is divided exactly all the same."""
    worth = [3.0, 0.0, -2.0, 7.0, 1.0]
    systems = table(5, lambda mask, query: 50 + query + sum(w for at, w in enumerate(worth) if mask >> at & 1))
    result = ablate(*systems, numbered(8), metrics=["latency"])
    assert result.permutations == 5
    assert len(result.configurations) == 22
    assert means(result, "latency") == pytest.approx(dict(zip(NAMES, worth, strict=True)))
    assert attribution_of(result, "latency").interactions == ()
    assert ablate(*systems, numbered(8), metrics=["latency"]) == result


def test_a_change_of_the_generator_is_the_generators():
    """Two retrievers that err on other queries are not blamed; the generator that invents is, with its interval."""
    result = ablate(system(finding(3), copying), system(finding(8), inventing), QUERIES)
    item = attribution_of(result, "groundedness")
    share = item.share_of("retriever").difference
    assert share.low <= 0 <= share.high
    assert moving_parts(item) == ["generator"]
    assert item.share_of("generator").difference.high < 0
    assert "groundedness" in result.worsened_by["generator"]
    assert result.worsened_by["retriever"] == ()
    assert item.verdict.startswith("generator lowered it by 1.000, of a whole change of −1.000.")


def test_a_change_of_the_retriever_is_the_retrievers():
    """Wrong chunks, faithfully copied: recall and truth are retrieval's, and groundedness does not move."""
    wrong = range(12)
    result = ablate(system(finding(), copying), system(finding(*wrong), copying), QUERIES)
    assert moving_parts(attribution_of(result, "context_recall")) == ["retriever"]
    assert "context_recall" in result.worsened_by["retriever"]
    assert result.worsened_by["generator"] == ()
    assert attribution_of(result, "groundedness").total.difference.mean == 0
    assert attribution_of(result, "context_recall").share_of("generator").identical


def test_a_change_that_parts_make_together_is_no_effect_of_one_alone():
    """Where either part alone moves nothing, the summary says that a share is not what one part does by itself."""
    systems = table(2, lambda mask, query: 100 + query % 3 + 50 * (mask == 3))
    result = ablate(*systems, numbered(12), metrics=["latency"])
    assert means(result, "latency") == {"chunker": 25.0, "embedder": 25.0}
    assert "a share is not what one part does by itself." in " ".join(render_terminal(build_ablation(result)).split())
    alone = ablate(*table(2, lambda mask, query: 100 + query % 3 + 50 * (mask & 1)), numbered(12), metrics=["latency"])
    assert "does alone" not in " ".join(render_terminal(build_ablation(alone)).split())


def test_amounts_and_three_queries_plan_nothing():
    """The spread of an amount, and that of fewer than eight queries, is too little known to say how many would tell."""
    slow = ablate(
        *table(2, lambda mask, query: 50 + query + mask * (query % 3 - 1) * 9), numbered(12), metrics=["latency"]
    )
    finders = system(finding(), copying), system(finding(4), copying)
    few = ablate(*finders, QUERIES[3:6], metrics=["context_recall"])
    for result in (slow, few):
        assert result.attributions[0].result == "cannot tell"
        assert all(share.needed is None for item in result.attributions for share in item.shares)


def test_cannot_tell_says_how_many_queries_would():
    """With one wrong chunk in fifteen nothing is shown, and the number of queries is named."""
    result = ablate(system(finding(), copying), system(finding(4), copying), QUERIES, metrics=["context_recall"])
    item = result.attributions[0]
    assert item.result == "cannot tell"
    assert moving_parts(item) == []
    assert item.share_of("retriever").needed > len(QUERIES)
    assert f"about {item.share_of('retriever').needed:,} scored queries would" in item.verdict


def test_the_verdict_names_parts_that_depend_on_each_other():
    """An effect that only both swaps have is halved between them, and told as an interaction."""
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 0.01, size=(4, 60))
    values = np.array([0.8, 0.8, 0.8, 0.4])[:, None] + noise
    result = attribute_change(
        ExperimentValues(values[:, :, None]), [MetricInfo("m", "generation")], ["r", "g"], factorial_design(2)
    )[0]
    assert [round(share.difference.mean, 2) for share in result.shares] == [-0.2, -0.2]
    assert "r and g depend on each other: swapped together they do −0.4" in result.verdict


def test_effects_that_are_nothing_everywhere_cost_no_power():
    """Metrics that no swap moves on any query leave the corrected p of the others as it is (Tarone)."""
    rng = np.random.default_rng(5)
    values = rng.uniform(size=(4, 40, 1))
    measures = [MetricInfo("m", "generation"), MetricInfo("still", "retrieval")]
    design = factorial_design(2)
    alone = attribute_change(ExperimentValues(values), measures[:1], ["r", "g"], design)[0]
    constant = np.broadcast_to(rng.uniform(size=(1, 40, 1)), (4, 40, 1))
    beside, still = attribute_change(
        ExperimentValues(np.concatenate([values, constant], axis=2)), measures, ["r", "g"], design
    )
    assert [e.adjusted for e in beside.shares] == [e.adjusted for e in alone.shares]
    assert [e.p for e in still.shares] == [1, 1]


def test_only_queries_scored_in_every_configuration_count():
    """A query that one configuration lacks is left out and counted, so that the shares add up."""
    values = np.arange(24.0).reshape(4, 6, 1)
    values[2, 1, 0] = math.nan
    result = attribute_change(
        ExperimentValues(values), [MetricInfo("m", "operation", low=None, high=None)], ["r", "g"], factorial_design(2)
    )
    assert (result[0].n, result[0].lost) == (5, 1)
    values[0] = math.nan
    result = attribute_change(ExperimentValues(values), [MetricInfo("m", "operation")], ["r", "g"], factorial_design(2))
    assert result[0].total is None
    assert result[0].verdict == "No query is scored in every configuration, though 6 are in some."


def test_queries_of_one_conversation_are_resampled_together():
    """With clusters the interval of an effect that is a matter of the conversation is wider."""
    rng = np.random.default_rng(0)
    talks = np.repeat(np.arange(10), 8)
    change = rng.normal(0.1, 0.1, size=10)[talks]
    values = np.stack([np.full(80, 0.5), 0.5 + change])[:, :, None]
    measures, design, terms = [MetricInfo("m", "generation")], factorial_design(1), EffectOptions(seed=1)
    apart = attribute_change(ExperimentValues(values), measures, ["p"], design, terms)[0].total.difference
    together = attribute_change(ExperimentValues(values, talks), measures, ["p"], design, terms)[0].total.difference
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert together.clusters == 10


# --- nothing twice ---------------------------------------------------------------------------------


class Counting:
    """The lexical judge, counting what it is asked."""

    def __init__(self) -> None:
        self.inner, self.asked = LexicalJudge(), Counter()

    offers = property(lambda self: self.inner.offers)
    fingerprint = property(lambda self: self.inner.fingerprint)

    def observe(self, traces):
        for trace in traces:
            self.asked[trace.id, repr(trace.chunks), trace.answer] += 1
        return self.inner.observe(traces)


class Wavering:
    """A judge that never says the same of a chunk twice."""

    offers, fingerprint = frozenset({"chunk"}), "wavering"

    def __init__(self) -> None:
        self.calls = 0

    def observe(self, traces):
        return [self._judge_trace(trace) for trace in traces]

    def _judge_trace(self, trace: Trace) -> Verdicts:
        self.calls += 1
        value = self.calls * 0.37 % 1
        seen = tuple(
            ChunkVerdict(chunk=c.id, relevance=value, level=grade_relevance(value)) for c in trace.chunks or ()
        )
        return Verdicts(trace=trace.id, judge=self.fingerprint, chunk=seen)


@pytest.mark.long
def test_nothing_is_judged_twice():
    """What one configuration has in common with another, chunks and answer, is judged in one of them only."""
    judge = Counting()
    result = ablate(system(finding(), copying), system(finding(2, 7), inventing), QUERIES, judge=judge)
    assert set(judge.asked.values()) == {1}
    assert len(judge.asked) == 2 * len(QUERIES) + 4
    again = ablate(system(finding(), copying), system(finding(2, 7), inventing), QUERIES, judge="lexical")
    assert result.attributions == again.attributions


def test_a_noisy_judge_adds_no_noise_to_what_a_part_cannot_change():
    """Verdicts on the same chunks are kept across answers: the generator's share of relevance is 0, not noise."""
    result = ablate(
        system(finding(), copying),
        system(finding(1), inventing),
        QUERIES,
        judge=Wavering(),
        metrics=["context_relevance"],
    )
    assert result.attributions[0].share_of("generator").difference.mean == 0
    assert result.attributions[0].share_of("retriever").difference.mean != 0


def test_a_part_is_run_once_on_the_same_input():
    """Retrievers run once for each query and side; a generator is not run again on chunks it has seen."""
    calls: Counter[str] = Counter()

    def counted(name, part):
        def run(trace: Trace) -> Trace:
            calls[name] += 1
            return part(trace)

        return run

    n = len(QUERIES)
    ablate(
        system(counted("r1", finding()), counted("g1", copying)),
        system(counted("r2", finding(6)), counted("g2", inventing)),
        QUERIES,
        metrics=["error"],
    )
    assert calls == {"r1": n, "r2": n, "g1": n + 1, "g2": n + 1}


# --- failures, folders, settings -------------------------------------------------------------------


def test_a_part_that_fails_fails_its_query_alone():
    """An exception becomes the error of the trace, is the part's to answer for, and stops nothing."""

    def failing(query, chunks):
        if query.split()[4] in SHIPS[:3]:
            raise ConnectionError("no route to the model")
        return chunks[0].text

    result = ablate(system(finding(), copying), system(finding(), generator(failing)), QUERIES)
    error = attribution_of(result, "error")
    assert means(result, "error") == pytest.approx({"retriever": 0, "generator": 3 / len(QUERIES)})
    assert error.n == len(QUERIES)
    assert attribution_of(result, "groundedness").n == len(QUERIES) - 3
    assert attribution_of(result, "groundedness").lost == 3
    last = result.configurations[-1]
    assert (last.errors, last.error) == (3, "generator: ConnectionError: no route to the model")
    assert "candidate: a part failed on 3 of 15 queries" in result.warnings[-1]


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (lambda trace: None, "it returned NoneType, not a Trace"),
        (generator(lambda query, chunks: 7), "it returned int, not an answer or a Trace"),
        (lambda trace: replace(trace, answer="\ud800"), "half a character"),
        (lambda trace: replace(trace, metadata={"index": object()}), "cannot be written down"),
    ],
)
def test_a_part_that_makes_no_trace_says_so(part, says: str):
    """What is no trace, or cannot be written down, fails the query and is named."""
    result = ablate(system(finding(), copying), system(finding(), part), QUERIES[:2], metrics=["error"])
    assert says in result.configurations[-1].error


def test_parts_cannot_swap_the_query():
    """A part may rewrite the query for those after it; the trace that is judged has the user's."""

    def rewriting(trace: Trace) -> Trace:
        return replace(trace, query=trace.query.replace("When", "At what hour"), id="mine")

    seen = []

    def noting(trace: Trace) -> Trace:
        seen.append(trace.query)
        return finding()(trace)

    steps = {"rewriter": rewriting, "retriever": noting, "generator": copying}
    judge = Counting()
    ablate(steps, steps, QUERIES[:1], judge=judge, metrics=["groundedness"])
    assert seen == [f"At what hour does the vessel {SHIPS[0]} leave harbour?"]
    assert [key[0] for key in judge.asked] == [SHIPS[0]]


@pytest.mark.parametrize(
    ("baseline", "candidate", "says"),
    [
        (["r", "g"], ["g", "r"], "the baseline has r, g, the candidate g, r"),
        (["r", "g"], ["r", "x", "g"], "the baseline has r, g, the candidate r, x, g"),
        ([], [], "no part"),
        (["candidate"], ["candidate"], 'cannot be named "candidate"'),
        (["a/b"], ["a/b"], 'cannot be named "a/b"'),
    ],
)
def test_systems_have_the_same_parts(baseline: list[str], candidate: list[str], says: str):
    """Parts of other names, in another order, or of names that cannot name a run are refused."""
    systems = [dict.fromkeys(names, copying) for names in (baseline, candidate)]
    with pytest.raises(UsageError, match=says):
        ablate(*systems, ["When?"])


def test_impossible_questions_are_refused():
    """No query, two of one id, and settings out of range are errors before anything is run."""
    steps = system(finding(), copying)
    with pytest.raises(InputError, match="there is no query"):
        ablate(steps, steps, [])
    with pytest.raises(InputError, match='two queries have the id "Albadorn"'):
        ablate(steps, steps, [QUERIES[0], QUERIES[0]])
    for wrong in ({"threads": 0}, {"confidence": 1.0}, {"margin": 0.0}, {"permutations": 0}):
        with pytest.raises(UsageError):
            ablate(steps, steps, ["When?"], **wrong)


def test_the_same_seed_gives_the_same_finding():
    """Another seed draws other resamples."""
    part_lists = np.random.default_rng(0).uniform(0, 100, size=(4, 20))
    systems = table(2, lambda mask, query: part_lists[mask, query])
    result = ablate(*systems, numbered(20), metrics=["latency"], seed=7)
    assert ablate(*systems, numbered(20), metrics=["latency"], seed=7) == result
    assert ablate(*systems, numbered(20), metrics=["latency"], seed=8).attributions != result.attributions


@pytest.mark.long
def test_workers_and_threads_change_nothing():
    """The finding is the same on any number of processes that judge and threads that run the parts."""
    systems = ({"generator": copying}, {"generator": inventing})
    queries = [replace(query, metadata={}) for query in QUERIES]
    result = ablate(*systems, queries, metrics=["error", "token_f1"])
    assert ablate(*systems, queries, metrics=["error", "token_f1"], workers=2, threads=4) == result
    pair = (system(finding(), copying), system(finding(1, 5), inventing))
    assert ablate(*pair, QUERIES, threads=4, judge="lexical") == ablate(*pair, QUERIES, judge="lexical")


@pytest.mark.long
def test_a_killed_experiment_goes_on_where_it_stopped(tmp_path: Path):
    """What was made is not made again, a torn line is dropped, and the finding is that of an experiment in one go."""
    calls: Counter[str] = Counter()
    limit = 4

    def counted(trace: Trace) -> Trace:
        if sum(calls.values()) == limit:
            raise KeyboardInterrupt
        calls[trace.id] += 1
        return inventing(trace)

    systems = (system(finding(), copying), system(finding(), counted))
    with pytest.raises(KeyboardInterrupt):
        ablate(*systems, QUERIES, out=tmp_path / "it", judge="lexical")
    limit = 10**6
    with (tmp_path / "it" / "calls.jsonl").open("ab") as file:
        file.write(b'{"part":"generator","side":1,"inp')
    steps: list[tuple[int, int]] = []
    result = ablate(*systems, QUERIES, out=tmp_path / "it", judge="lexical", on_progress=lambda *at: steps.append(at))
    assert [configuration.reused for configuration in result.configurations][:2] == [True, True]
    assert set(calls.values()) == {1}
    assert steps[-1] == (8 * len(QUERIES), 8 * len(QUERIES))
    assert result.attributions == ablate(*systems, QUERIES, judge="lexical").attributions
    assert sorted(path.name for path in (tmp_path / "it").iterdir() if (path / "manifest.json").exists()) == [
        "baseline",
        "candidate",
        "generator",
        "retriever",
    ]
    before, notices = sum(calls.values()), []
    again = ablate(*systems, QUERIES, out=tmp_path / "it", judge="lexical", on_notice=notices.append)
    assert sum(calls.values()) == before
    assert again.attributions == result.attributions
    assert len(notices) == 4


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    """A folder that holds another experiment, or none, is refused with what differs."""
    systems = (system(finding(), copying), system(finding(), inventing))
    ablate(*systems, QUERIES[:3], out=tmp_path / "it", metrics=["error"])
    with pytest.raises(RunError, match="holds another experiment: queries differ"):
        ablate(*systems, QUERIES[:4], out=tmp_path / "it", metrics=["error"])
    with pytest.raises(RunError, match="judge, metrics differ"):
        ablate(*systems, QUERIES[:3], out=tmp_path / "it", metrics=["groundedness"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(OutputError, match="holds no experiment"):
        ablate(*systems, QUERIES[:3], out=tmp_path / "mine", metrics=["error"])


# --- the report ------------------------------------------------------------------------------------


def test_the_report_names_the_part_at_fault():
    """The first line names the part and the metrics; each effect is shown with its interval; nothing is markup."""

    def failing(query, chunks):
        raise ValueError("[bold]\x1b[31mboo")

    result = ablate(system(finding(), copying), system(finding(), inventing), QUERIES)
    text = render_terminal(build_ablation(result), width=120)
    assert text.splitlines()[0].startswith("generator made worse: groundedness")
    assert "−1.000 [" in text
    assert "untouched" in text
    assert "Not scored on any query in every configuration: span_recall" in text
    broken = ablate(system(finding(), copying), system(finding(), generator(failing)), QUERIES[:3])
    assert "ValueError: [bold]boo" in render_terminal(build_ablation(broken), width=200)
    assert "\x1b" not in render_terminal(build_ablation(broken), width=200)


def test_runs_stay_where_they_were_asked_for(tmp_path: Path):
    """With a folder each configuration is a run that opens like any other; without one nothing is left."""
    systems = (system(finding(), copying), system(finding(), inventing))
    result = ablate(*systems, QUERIES[:3], out=tmp_path / "it", metrics=["groundedness"])
    runs = [Run.open(configuration.run) for configuration in result.configurations]
    assert [run.manifest.traces for run in runs] == [3] * 4
    assert ablate(*systems, QUERIES[:3], metrics=["groundedness"]).configurations[0].run is None
