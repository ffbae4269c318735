"""Which runs benchmarks/quality makes, in which order, and when there is nothing left."""

import math
from collections import Counter

import pytest

from benchmarks.quality import plan
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.methods import METHODS, OURS, PAPER, at_rate
from benchmarks.quality.oracle import grid_seeds, oracle_rate, tried_rates
from benchmarks.quality.plan import SEEDS, Part
from benchmarks.records import Key
from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    EARLIER,
    FOR_OTHER_BASES,
    NOT_FOR_SGD,
    OPEN,
    SEALED,
    TASKS,
)

FIRST = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def distance(rate, best):
    return abs(math.log10(rate / best))


def rate_of(key):
    _, is_fixed, rate = key.method.partition("-at-")
    return float(rate) if is_fixed else None


def put_rates(records, schedule, rates, best, **other):
    """Add runs on all seeds of the grid; None is a best rate where all are broken."""
    for rate in rates:
        for seed in grid_seeds(other.get("base", "adamw"), other.get("length_factor", 1.0)):
            score = None if best is None else 1 + distance(rate, best)
            records.put("digits", at_rate(schedule, rate), score, seed=seed, **other)


class TestTriedRates:
    def test_those_that_come_first(self, records):
        assert tried_rates(records, "digits", "adamw") == FIRST
        assert tried_rates(records, "digits", "sgd") == (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
        assert tried_rates(records, "digits", "lion") == GRIDS["lion"]
        assert tried_rates(records, "digits", "unknown") == ()
        put_rates(records, "held", FIRST, 1e-3)
        assert tried_rates(records, "digits", "adamw") == FIRST
        assert oracle_rate(records, "digits", "adamw") == 1e-3

    @pytest.mark.parametrize("base", ["adamw", "sgd"])
    @pytest.mark.parametrize("place", range(13))
    def test_beyond_an_end_that_wins_the_search_goes_on(self, records, base, place):
        grid = GRIDS[base]
        best, tried = grid[place], []
        while oracle_rate(records, "digits", base) is None:
            new = [rate for rate in tried_rates(records, "digits", base) if rate not in tried]
            assert new
            assert not tried or len(new) == 1  # one more at a time
            tried += new
            put_rates(records, "held", new, best, base=base)
        assert oracle_rate(records, "digits", base) == best
        assert min(tried) < best or best == grid[0]  # a worse rate on each side
        assert max(tried) > best or best == grid[-1]

    @pytest.mark.parametrize("options", [(1.0, "cosine"), (10.0, "held"), (10.0, "cosine")])
    def test_others_are_around_the_best_of_those_once_it_is_known(self, records, options):
        assert tried_rates(records, "digits", "adamw", *options) == ()
        put_rates(records, "held", FIRST, 1e-3)
        around = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
        assert tried_rates(records, "digits", "adamw", *options) == around
        assert oracle_rate(records, "digits", "adamw", *options) is None

    def test_where_every_rate_is_broken_lower_ones_are_tried_and_then_nothing(self, records):
        put_rates(records, "held", FIRST, None)
        assert tried_rates(records, "digits", "adamw") == (3e-5, *FIRST)
        put_rates(records, "held", GRIDS["adamw"], None)
        assert oracle_rate(records, "digits", "adamw") is None
        assert tried_rates(records, "digits", "adamw", 10.0) == ()


class TestPart:
    part = Part("adamw", ["digits", "graph"], ["held"], ["self-tuned", "paper-text"])

    def test_first_the_grid_then_seed_by_seed(self):
        keys = list(self.part.keys({}))
        grid, rest = keys[:42], keys[42:]
        assert grid == [
            Key(task, seed, "adamw", at_rate("held", rate))
            for task in ("digits", "graph")
            for rate in FIRST
            for seed in (0, 1, 2)
        ]
        assert rest == [
            Key(task, seed, "adamw", "self-tuned") for seed in SEEDS for task in ("digits", "graph")
        ]

    def test_the_best_rate_is_repeated_on_every_seed(self, records):
        records.put_grid("digits", 3e-2)
        keys = [key for key in self.part.keys(records) if key.task == "digits"]
        assert [key.seed for key in keys if key.method == "held-at-0.03"] == [0, 1, 2, *SEEDS]

    def test_the_rate_of_another_base_or_length_is_another(self, records):
        records.put_grid("digits", 3e-2)
        for other in (self.part._replace(base="sgd"), self.part._replace(length_factor=10.0)):
            fixed = [key for key in other.keys(records) if key.seed == 3 and rate_of(key)]
            assert fixed == []
        records.put_grid("digits", 1e-1, base="sgd")
        (key,) = (
            key
            for key in self.part._replace(base="sgd").keys(records)
            if key.seed == 3 and rate_of(key)
        )
        assert key == Key("digits", 3, "sgd", "held-at-0.1")

    @pytest.mark.parametrize("best", FIRST)
    def test_presets_of_the_paper_run_where_their_rates_are_near(self, records, best):
        records.put_grid("digits", best)
        found = [key for key in self.part.keys(records) if key.method == "paper-text"]
        near = best in (1e-3, 3e-3)
        expected = [Key("digits", seed, "adamw", "paper-text") for seed in SEEDS] if near else []
        assert found == expected


def best_of(key):
    """The best rate of a task, another for longer runs; it is among those of its grid."""
    grid = GRIDS[key.base]
    place = sum(map(ord, key.task)) % 9 + (key.base == "adamw") * 2
    return grid[max(place - (key.length_factor > 1) - key.method.startswith("cosine"), 0)]


def record_of(key):
    rate = rate_of(key)
    score = 1.0 if rate is None else 1.0 + distance(rate, best_of(key))
    seconds = 1.0
    return {**key._asdict(), "validation": score, "test": score, "seconds": seconds}


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
    def test_the_oracle_has_the_seeds_of_ours(self, whole):
        by_run = Counter((key.task, key.base, key.length_factor, key.method) for key in whole)
        for (task, base, factor, method), count in by_run.items():
            if method in OURS:
                key = Key(task, 0, base, "held-at-1", "", factor)
                assert by_run[task, base, factor, at_rate("held", best_of(key))] >= count

    def test_what_runs_where(self, whole):
        def tasks(base, method="self-tuned", factor=1.0):
            return {
                k.task
                for k in whole
                if (k.base, k.method, k.length_factor) == (base, method, factor)
            }

        assert tasks("adamw") == tasks("adamw", "prodigy") == set(TASKS)
        assert tasks("adamw", "held-at-0.003") == tasks("adamw", "random-arm") == set(TASKS)
        assert tasks("sgd") == {*OPEN, *EARLIER} - NOT_FOR_SGD
        for base, names in FOR_OTHER_BASES.items():
            assert tasks(base) == set(names)
        assert tasks("adamw", factor=10.0) == set(CHEAPEST)
        near = {task for task in SEALED if best_of(Key(task, 0, "adamw", "")) in (1e-3, 3e-3)}
        assert near
        assert tasks("adamw", "paper-code") == near

    def test_every_method_has_a_place(self, whole):
        assert set(METHODS) <= {key.method for key in whole}
        assert set(PAPER) <= set(METHODS)

    def test_seeds(self, whole):
        def seeds(task, base="adamw", factor=1.0, method="self-tuned"):
            return sorted(
                k.seed
                for k in whole
                if (k.task, k.base, k.method, k.length_factor) == (task, base, method, factor)
            )

        for task in SEALED:
            assert seeds(task) == seeds(task, method="prodigy") == [0, 1, 2, 3, 4]
            others = [0, 1, 2] if task in EARLIER else [0]
            assert seeds(task, method="dog") == seeds(task, method="anytime") == others
        for task in OPEN:
            for method in (*OURS, "prodigy", "schedule-free-adamw", "version-0.2", "held-quarter"):
                assert seeds(task, method=method) == [0, 1, 2]
        assert seeds("digits", "sgd") == [0, 1, 2]
        assert seeds("cancer", "sgd") == [0, 1]
        assert seeds("digits", "rmsprop") == [0]
        assert seeds("unfrozen", factor=10.0) == [0, 1]
        assert seeds("unfrozen", factor=10.0, method="prodigy") == [0]

    def test_one_record_less_is_one_run(self, whole):
        for key in (
            Key("cancer", 4, "adamw", "prodigy"),
            Key("cancer", 1, "sgd", "held-centre"),
            Key("unfrozen", 1, "adamw", "self-tuned", "", 10.0),
        ):
            known = {other: record for other, record in whole.items() if other != key}
            assert plan.missing(known, lambda _: True) == [key]
            assert plan.missing(known, lambda other: other.seed == 3) == []

    def test_ours_is_what_is_repeated_with_other_constants(self, whole):
        own = {key for key in whole if key.method == "self-tuned"}
        assert set(plan.tuned(whole)) == own
        assert Counter(plan.tuned(whole)).most_common(1)[0][1] == 1
        assert {key.seed for key in plan.tuned({}) if key.task == "unfrozen"} == set(SEEDS)
