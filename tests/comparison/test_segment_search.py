"""Search for the segment that a drop is confined to: it is found without being asked for, and none is invented."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command
from ragfault.comparison.attribution.segment_search import list_segments, locate_drop
from ragfault.comparison.bisection import bisect
from ragfault.comparison.paired_runs import pair_runs
from ragfault.io.runs.run import Run
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from sample_runs import Pair, evaluate_system, make_verdicts

ROUTES = ("billing", "returns", "delivery", "account", "warranty", "repairs", "stores", "careers")
WATCHED = ("groundedness", "completeness", "recall@3", "answer_relevance", "context_relevance")


def mix(healthy: Sequence[Pair], broken: Sequence[Pair], *, route: str | None, seed: int) -> list[Pair]:
    """Give each trace a route and metadata of its id alone; those of one route are of the broken system."""
    pairs = []
    for place, (well, ill) in enumerate(zip(healthy, broken, strict=True)):
        name = ROUTES[place % 8]
        trace, seen = ill if name == route else well
        rng = random.Random(f"{seed}-{place}")
        metadata = {"region": f"region-{place % 5}", "rating": rng.choice(["up", "down"]), "ticket": f"{place:05}"}
        pairs.append((replace(trace, route=name, metadata=metadata), seen))
    return pairs


def build(place: Path, n: int, seed: int, route: str | None = None) -> Run:
    healthy, broken = make_verdicts(n, seed), make_verdicts(n, seed, grounding=0.5)
    return evaluate_system(place, mix(healthy, broken, route=route, seed=seed), WATCHED)


def build_scores(seed: int, n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Return nine metrics without a change on n pairs, and the masks of four overlapping fields."""
    rng = np.random.default_rng(seed)
    drops = rng.binomial(1, 0.9, (n, 9)) - rng.binomial(1, 0.9, (n, 9)).astype(float)
    drops[rng.random((n, 9)) < 0.1] = np.nan
    fields = rng.choice(8, n, p=[0.12, 0.2, 0.18, *[0.1] * 5]), *(rng.integers(0, values, n) for values in (2, 3, 20))
    masks = [field == value for field in fields for value in np.unique(field)]
    return drops, np.stack(masks)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Five hundred traces before and after one route of eight began to invent claims."""
    place = tmp_path_factory.mktemp("routes")
    return build(place / "old", 500, 1), build(place / "new", 500, 2, route="billing")


@pytest.mark.long
def test_the_route_that_invents_claims_is_named_without_being_asked(
    runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]
):
    """The verdict is a fault of generation, confined to that route, in every format; the exit code is 1."""
    result = bisect(*runs)
    [segment] = result.segments
    assert (segment.by, segment.segment, segment.confined) == ("route", "billing", True)
    assert segment.metric == "groundedness"
    assert segment.difference.mean < -0.3 < segment.elsewhere.low
    assert (result.verdict, result.faults[0].layer) == ("fault", "generation")
    words = "The drop of groundedness is confined to route=billing (13 % of the pairs): it fell by"
    for text in (
        result.sentence,
        render_terminal(build_bisection(result), width=1000),
        render_markdown(build_bisection(result)).replace("\\", ""),
    ):
        assert words in text
    assert run_command(["bisect", *(str(run.path) for run in runs)]) == 1
    assert "route=billing" in capsys.readouterr().out


@pytest.mark.long
def test_only_fields_that_do_not_follow_from_the_answer_are_searched(runs: tuple[Run, Run]):
    """A rating that differs between the runs is no field to divide by, nor is one with a value for each trace."""
    fields = {segment.by for segment in list_segments(pair_runs(*runs))}
    assert fields == {"route", "metadata.region"}


@pytest.mark.long
def test_runs_without_a_change_have_no_segment(runs: tuple[Run, Run], tmp_path: Path):
    """Between two samples of one system no segment is named."""
    result = bisect(runs[0], build(tmp_path / "same", 500, 3))
    assert result.segments == ()
    assert result.verdict != "fault"


@pytest.mark.long
@pytest.mark.parametrize("n", [100, 500])
def test_segments_are_invented_at_their_level(n: int):
    """Over 300 comparisons without a change at most 23 have a segment at 5 % (5 %, and two standard errors)."""
    wrong = sum(
        locate_drop(*build_scores(seed, n), np.arange(n), alpha=0.05, seed=seed) is not None for seed in range(300)
    )
    assert wrong <= 23


@pytest.mark.long
def test_a_drop_that_all_share_is_no_segment():
    """Over 100 comparisons in which every segment drops alike at most 10 have one (5 %, and two standard errors)."""
    wrong = 0
    for seed in range(100):
        drops, masks = build_scores(seed, 400)
        drops[:, 3] -= 0.3
        wrong += locate_drop(drops, masks, np.arange(400), alpha=0.05, seed=seed) is not None
    assert wrong <= 10


def test_a_drop_in_a_segment_is_located():
    """A drop of 0.5 in 12 % of 500 pairs is located in its segment and metric, and in no other."""
    for seed in range(5):
        drops, masks = build_scores(seed)
        drops[masks[0], 4] -= 0.5
        assert locate_drop(drops, masks, np.arange(500), alpha=0.01, seed=seed)[:2] == (0, 4)


def test_copies_of_a_trace_are_one_unit():
    """Forty copies of one pair, however far it fell, show nothing."""
    drops = np.zeros((400, 1))
    drops[:40] = -1.0
    mask = np.arange(400) < 40
    units = np.where(mask, 0, np.arange(400))
    assert locate_drop(drops, np.stack([mask, ~mask]), units, alpha=0.05) is None


def test_many_pairs_take_the_normal_limit():
    """With 20,000 pairs a drop of 0.1 in a segment is located, and without it none."""
    drops, masks = build_scores(1, 20_000)
    assert locate_drop(drops, masks, np.arange(20_000), alpha=0.01) is None
    drops[masks[0], 2] -= 0.1
    assert locate_drop(drops, masks, np.arange(20_000), alpha=0.01)[:2] == (0, 2)
