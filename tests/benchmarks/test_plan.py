"""Which runs benchmarks/quality makes, in which order, and when there is nothing left."""

import math
from collections import Counter

import pytest

from benchmarks.quality import plan
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.methods import METHODS, OURS, PAPER, at_rate
from benchmarks.quality.oracle import oracle_rate, tried_rates
from benchmarks.quality.plan import SEEDS, Part
from benchmarks.quality.records import Key
from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    EARLIER,
    FOR_OTHER_BASES,
    NOT_FOR_SGD,
    OPEN,
    OPENED,
    SEALED,
    TASKS,
)

GRID = GRIDS["adamw"]


def distance(rate, best):
    return abs(math.log10(rate / best))


def rate_of(key):
    _, is_fixed, rate = key.method.partition("-at-")
    return float(rate) if is_fixed else None


class TestTriedRates:
    def test_the_grid_has_nine_rates_half_a_decade_apart(self):
        assert GRID == (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
        assert {len(grid) for grid in GRIDS.values()} == {9}

    def test_all_are_held_at_the_usual_length(self, records):
        assert tried_rates(records, "digits", "adamw") == GRID
        records.put_grid("digits", 1e-3)
        assert tried_rates(records, "digits", "adamw") == GRID

    @pytest.mark.parametrize("options", [(1.0, "cosine"), (10.0, "held"), (10.0, "cosine")])
    def test_others_are_around_the_best_of_those_once_it_is_known(self, records, options):
        for rate in GRID:
            assert tried_rates(records, "digits", "adamw", *options) == ()
            assert oracle_rate(records, "digits", "adamw", *options) is None
            records.put("digits", at_rate("held", rate), distance(rate, 1e-3))
        around = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
        assert tried_rates(records, "digits", "adamw", *options) == around
        assert oracle_rate(records, "digits", "adamw", *options) is None

    @pytest.mark.parametrize(
        ("best", "around"),
        [(1e-5, GRID[:3]), (3e-5, GRID[:4]), (3e-2, GRID[-4:]), (1e-1, GRID[-3:])],
    )
    def test_the_grid_ends_the_window(self, records, best, around):
        for rate in GRID:
            records.put("digits", at_rate("held", rate), distance(rate, best))
        assert tried_rates(records, "digits", "adamw", 1.0, "cosine") == around

    @pytest.mark.parametrize("held", [1e-5, 3e-4, 3e-3, 1e-1])
    @pytest.mark.parametrize("best", GRID)
    def test_beyond_an_end_that_wins_the_search_goes_on_to_the_best_of_all(
        self, records, held, best
    ):
        for rate in GRID:
            records.put("digits", at_rate("held", rate), distance(rate, held))
        tried = []
        while oracle_rate(records, "digits", "adamw", 1.0, "cosine") is None:
            rates = tried_rates(records, "digits", "adamw", 1.0, "cosine")
            new = [rate for rate in rates if rate not in tried]
            assert new
            assert not tried or len(new) == 1  # one more at a time
            tried += new
            for rate in new:
                records.put("digits", at_rate("cosine", rate), distance(rate, best))
        assert oracle_rate(records, "digits", "adamw", 1.0, "cosine") == best
        assert tried_rates(records, "digits", "adamw", 1.0, "cosine") == tuple(sorted(tried))
        places = [GRID.index(rate) for rate in sorted(tried)]
        assert places == list(range(places[0], places[-1] + 1))
        assert 0 in places[:1] or min(tried) < best  # a worse rate on each side, or the grid ends
        assert 8 in places[-1:] or max(tried) > best

    def test_where_every_held_rate_is_broken_nothing_else_is_tried(self, records):
        for rate in GRID:
            records.put("digits", at_rate("held", rate), None)
        assert tried_rates(records, "digits", "adamw", 10.0) == ()
        part = Part("adamw", ["digits"], ["held", "cosine"], [], seeds=[0, 1])
        assert {key.method for key in part.keys(records)} == {at_rate("held", r) for r in GRID}

    def test_a_window_of_broken_runs_ends_too(self, records):
        for rate in GRID:
            records.put("digits", at_rate("held", rate), distance(rate, 1e-3))
            records.put("digits", at_rate("cosine", rate), None)
        assert oracle_rate(records, "digits", "adamw", 1.0, "cosine") is None
        assert len(tried_rates(records, "digits", "adamw", 1.0, "cosine")) < 9


class TestPart:
    part = Part("adamw", ["digits", "graph"], ["held"], ["self-tuned", "paper-text"])

    def test_first_the_grid_then_seed_by_seed(self):
        keys = list(self.part.keys({}))
        grid, rest = keys[:18], keys[18:]
        assert grid == [
            Key(task, 0, "adamw", at_rate("held", rate))
            for task in ("digits", "graph")
            for rate in GRID
        ]
        assert rest == [
            Key(task, seed, "adamw", "self-tuned") for seed in SEEDS for task in ("digits", "graph")
        ]

    def test_the_best_rate_is_repeated_on_every_seed(self, records):
        records.put_grid("digits", 3e-2)
        keys = [key for key in self.part.keys(records) if key.task == "digits"]
        assert [key.seed for key in keys if key.method == "held-at-0.03"] == [0, *SEEDS]

    def test_the_rate_of_another_base_or_length_is_another(self, records):
        records.put_grid("digits", 3e-2)
        for other in (self.part._replace(base="sgd"), self.part._replace(length_factor=10.0)):
            fixed = [key for key in other.keys(records) if key.seed == 1 and rate_of(key)]
            assert fixed == []
        records.put_grid("digits", 1e-1, base="sgd")
        (key,) = (
            key
            for key in self.part._replace(base="sgd").keys(records)
            if key.seed == 1 and rate_of(key)
        )
        assert key == Key("digits", 1, "sgd", "held-at-0.1")

    @pytest.mark.parametrize("best", GRID)
    def test_presets_of_the_paper_run_where_their_rates_are_near(self, records, best):
        records.put_grid("digits", best)
        found = [key for key in self.part.keys(records) if key.method == "paper-text"]
        near = best in (1e-3, 3e-3)
        expected = [Key("digits", seed, "adamw", "paper-text") for seed in SEEDS] if near else []
        assert found == expected


def best_of(key):
    """The best rate of a task, another for longer runs; it is among those of its grid."""
    grid = GRIDS[key.base]
    place = sum(map(ord, key.task)) % 9
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
        assert rounds < 10
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

        assert tasks("adamw") == set(TASKS)
        assert tasks("sgd") == set(EARLIER) - NOT_FOR_SGD
        for base, names in FOR_OTHER_BASES.items():
            assert tasks(base) == set(names)
        assert tasks("adamw", factor=10.0) == set(CHEAPEST)
        assert tasks("adamw", "held-at-0.003") == set(TASKS)
        compared = {*SEALED, *OPENED}
        assert tasks("adamw", "prodigy") == tasks("adamw", "random-arm") == compared
        near = {task for task in compared if best_of(Key(task, 0, "adamw", "")) in (1e-3, 3e-3)}
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
            assert seeds(task) == [0, 1]
            assert seeds(task, method="prodigy") == ([0] if task in OPENED else [])
        assert seeds("cancer", "sgd") == [0, 1]
        assert seeds("digits", "lion") == [0]
        assert seeds("digits", factor=10.0) == [0, 1]
        assert seeds("digits", factor=10.0, method="prodigy") == [0]

    def test_one_record_less_is_one_run(self, whole):
        for key in (
            Key("cancer", 4, "adamw", "prodigy"),
            Key("cancer", 1, "sgd", "held-centre"),
            Key("digits", 1, "adamw", "self-tuned", "", 10.0),
        ):
            known = {other: record for other, record in whole.items() if other != key}
            assert plan.missing(known, lambda _: True) == [key]
            assert plan.missing(known, lambda other: other.seed == 3) == []

    def test_ours_is_what_is_repeated_with_other_constants(self, whole):
        own = {key for key in whole if key.method == "self-tuned"}
        assert set(plan.tuned(whole)) == own
        assert Counter(plan.tuned(whole)).most_common(1)[0][1] == 1
        assert {key.seed for key in plan.tuned({}) if key.task == "unfrozen"} == set(SEEDS)
