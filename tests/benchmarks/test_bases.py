"""The optimizers that benchmarks/quality tunes."""

import pytest
from torch import nn

from benchmarks.quality.bases import BASES, GRIDS, TRIED_FIRST, base_of, write_rate
from benchmarks.quality.tasks.task import Sources
from benchmarks.quality.tuned import with_length
from tests.benchmarks.line import Line, skip_without


@pytest.mark.parametrize("name", ["adafactor", "adagrad", "lion", "muon", "rmsprop"])
def test_can_be_tuned(name):
    skip_without(name)
    task = Line(Sources(), length_factor=5)
    record = with_length(task, name)
    assert record["cost"] <= 600
    assert record["test"] < 0.5 * task.score(task.network(), "test")


def test_every_base_has_a_grid():
    assert GRIDS.keys() == BASES.keys()
    assert all({*ends} <= {*GRIDS[base]} for base, ends in TRIED_FIRST.items())


def test_muon_keeps_ratios_where_it_splits_groups():
    skip_without("muon")
    network = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))

    class Deep(Line):
        def groups(self, network):
            return [(list(network[:2].parameters()), 0.1), (list(network[2].parameters()), 1)]

    task = Deep(Sources())
    base = base_of("muon", task, network)
    assert [group["use_muon"] for group in base.param_groups] == [True, False, False]
    assert [p.shape for p in base.param_groups[0]["params"]] == [(8, 4), (8, 8)]
    write_rate(base, 0.5, task, network)
    assert [group["lr"] for group in base.param_groups] == [0.05, 0.05, 0.5]
