"""Which runs benchmarks/quality makes, in which order, and when there is nothing left."""

import math
from collections import Counter

import pytest

from benchmarks.quality import plan
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.methods import METHODS, OURS, PAPER, at_rate
from benchmarks.quality.oracle import grid_seeds, oracle_rate, tried_rates
from benchmarks.quality.plan import SEEDS, Part
from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    FOR_OTHER_BASES,
    NOT_FOR_SGD,
    OPEN,
    SEALED,
    TASKS,
)
from benchmarks.records import Key

FIRST = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def distance(rate, best):
    return abs(math.log10(rate / best))


def put_rates(records, rates, best, base="adamw"):
    """Add runs on all seeds of the grid."""
    for rate in rates:
        for seed in grid_seeds(base, 1.0):
            score = 1 + distance(rate, best)
            records.put("digits", at_rate("held", rate), score, seed=seed, base=base)


class TestTriedRates:
    @pytest.mark.parametrize("base", ["adamw", "sgd"])
    @pytest.mark.parametrize("place", [0, 1, 6, 11, 12])
    def test_beyond_an_end_that_wins_the_search_goes_on(self, records, base, place):
        grid = GRIDS[base]
        best, tried = grid[place], []
        while oracle_rate(records, "digits", base) is None:
            new = [rate for rate in tried_rates(records, "digits", base) if rate not in tried]
            assert new
            assert not tried or len(new) == 1  # one more at a time
            tried += new
            put_rates(records, new, best, base)
        assert oracle_rate(records, "digits", base) == best
        assert min(tried) < best or best == grid[0]  # a worse rate on each side
        assert max(tried) > best or best == grid[-1]

    @pytest.mark.parametrize("options", [(1.0, "cosine"), (10.0, "held")])
    def test_others_are_around_the_best_of_those_once_it_is_known(self, records, options):
        assert tried_rates(records, "digits", "adamw") == FIRST
        assert tried_rates(records, "digits", "adamw", *options) == ()
        put_rates(records, FIRST, 1e-3)
        assert tried_rates(records, "digits", "adamw", *options) == FIRST[:5]
        assert oracle_rate(records, "digits", "adamw", *options) is None


class TestPart:
    part = Part("adamw", ["digits"], ["held"], ["self-tuned", "paper-text"])

    @pytest.mark.parametrize("best", [3e-4, 1e-3, 3e-3, 1e-2])
    def test_the_best_rate_is_repeated_and_the_paper_runs_where_it_is_near(self, records, best):
        records.put_grid("digits", best)
        keys = list(self.part.keys(records))
        assert [k.seed for k in keys if k.method == at_rate("held", best)] == [0, 1, 2, *SEEDS]
        near = [key.seed for key in keys if key.method == "paper-text"]
        assert near == (list(SEEDS) if best in (1e-3, 3e-3) else [])

    def test_a_task_that_takes_long_has_fewer_seeds(self, records, monkeypatch):
        records.put_grid("digits", 3e-3)
        for seconds, seeds in ((20.0, SEEDS), (20.1, SEEDS[:3])):
            monkeypatch.setitem(plan.SECONDS, "digits", seconds)
            assert plan.seeds_of("digits") == seeds
            for method in ("self-tuned", "paper-text"):
                found = [key.seed for key in self.part.keys(records) if key.method == method]
                assert found == list(seeds)


def best_of(key):
    """The best rate of a task, another for longer runs; it is among those of its grid."""
    grid = GRIDS[key.base]
    place = sum(map(ord, key.task)) % 9 + (key.base == "adamw") * 2
    return grid[max(place - (key.length_factor > 1) - key.method.startswith("cosine"), 0)]


def record_of(key):
    _, is_fixed, rate = key.method.partition("-at-")
    score = 1.0 + distance(float(rate), best_of(key)) if is_fixed else 1.0
    return {**key._asdict(), "validation": score, "test": score}


@pytest.fixture(scope="module")
def whole():
    """Every run of the plan, made up round by round until none is missing."""
    known, rounds = {}, 0
    while keys := plan.missing(known, lambda _: True):
        assert len(set(keys)) == len(keys)
        assert not set(keys) & known.keys()
        known |= {key: record_of(key) for key in keys}
        rounds += 1
        assert rounds < 20
    return known


class TestWholePlan:
    def test_what_runs_where_and_on_how_many_seeds(self, whole):
        runs = Counter(key._replace(seed=0) for key in whole)

        def seeds(task, method="self-tuned", base="adamw", factor=1.0):
            return runs[Key(task, 0, base, method, "", factor)]

        peers = ("prodigy", "schedule-free-adamw", "version-0.2")
        controls = ("held-at-0.003", "held-quarter", "random-arm")
        for task in OPEN:
            assert {seeds(task, method) for method in (*OURS, *peers, *controls)} == {5}
        for task in SEALED:
            assert {seeds(task, method) for method in METHODS if method not in PAPER} == {5}
        for task in TASKS:
            fits_sgd = task not in NOT_FOR_SGD
            assert seeds(task, base="sgd") == fits_sgd * (3 if task in OPEN else 2)
            assert seeds(task, factor=10.0) == 2 * (task in CHEAPEST)
            assert all(seeds(task, base=b) == (task in t) for b, t in FOR_OTHER_BASES.items())
        assert set(METHODS) <= {key.method for key in whole}
        for key, count in runs.items():  # the oracle has at least the seeds of SelfTuner
            if key.method in OURS:
                method = at_rate("held", best_of(key._replace(method="held")))
                assert runs[key._replace(method=method)] >= count

    def test_one_record_less_is_one_run(self, whole):
        key = Key("unfrozen", 1, "adamw", "self-tuned", "", 10.0)
        known = {other: record for other, record in whole.items() if other != key}
        assert plan.missing(known, lambda _: True) == [key]
        assert plan.missing(known, lambda other: other.seed == 3) == []

    def test_ours_is_what_is_repeated_with_other_constants(self, whole):
        own = sorted(key for key in whole if key.method == "self-tuned")
        assert sorted(plan.tuned(whole)) == own
