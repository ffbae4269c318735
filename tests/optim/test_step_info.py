"""What a step and a run report about themselves."""

import copy
import dataclasses
import math
import pickle

import pytest

from annealtune import SGDSA, Setting, StepInfo, grid
from annealtune.optim import Count


def test_a_step_is_described_by_what_was_decided(net, loss_of):
    tuner = SGDSA(net, grid(lr=[50.0, 0.1]), temperature=0.3, seed=4)
    assert tuner.last_step is None
    for step in range(20):
        loss = tuner.step(loss_of)
        last = tuner.last_step
        assert last.step == step
        assert last.setting in tuner.neighborhood
        assert last.loss == loss.item()
        assert last.worsening == last.new_loss - last.loss
        assert last.accept_probability == math.exp(min(-last.worsening / 0.3, 0.0))
        assert last.temperature == 0.3
        assert last.improved is (last.worsening < 0)
        assert last.accepted or not last.improved
        assert last.outcome == ("accepted" if last.accepted else "rejected")


def test_counts_are_those_of_a_hand(net, loss_of):
    neighborhood = grid(lr=[50.0, 1.0, 0.1])
    tuner = SGDSA(net, neighborhood, temperature=30.0, seed=1)
    tried, improved, accepted = (dict.fromkeys(neighborhood, 0) for _ in range(3))
    for _ in range(60):
        tuner.step(loss_of)
        last = tuner.last_step
        tried[last.setting] += 1
        improved[last.setting] += last.new_loss < last.loss
        accepted[last.setting] += last.accepted
    summary = tuner.moves
    assert summary.settings == {h: Count(tried[h], improved[h], accepted[h]) for h in neighborhood}
    assert summary.total == (60, sum(improved.values()), sum(accepted.values()))
    assert summary.total.acceptance_rate == sum(accepted.values()) / 60
    assert summary.total.improved < summary.total.accepted < 60


def test_a_step_cannot_be_changed_but_compared_copied_and_sent():
    step, same = (StepInfo(0, Setting({"lr": 0.1}), 1.0, 1.5, 0.5, 0.6, 1.0, True) for _ in "12")
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.loss = 0
    with pytest.raises(TypeError):
        step.setting["lr"] = 1.0
    assert step == same != dataclasses.replace(step, step=1)
    assert len({step, same}) == 1
    assert pickle.loads(pickle.dumps(step)) == copy.deepcopy(step) == step
