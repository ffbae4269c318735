"""Where the loss is and what is out of place, worked out by hand."""

import json
import math
import random

import pytest

from annealtune.annealing.loss_level import LossLevel

INF, NAN = math.inf, math.nan


def after(losses, forgetting=0.95):
    level = LossLevel(forgetting)
    for loss in losses:
        level.see(loss)
    return level


def by_hand(losses, forgetting=0.95):
    """Mean and deviation, the last loss with the weight 1."""
    weights = [forgetting**age for age in reversed(range(len(losses)))]
    mean = math.fsum(w * x for w, x in zip(weights, losses, strict=True)) / math.fsum(weights)
    squares = math.fsum(w * (x - mean) ** 2 for w, x in zip(weights, losses, strict=True))
    return mean, math.sqrt(squares / math.fsum(weights))


def falling(count, seed=0):
    source = random.Random(seed)
    return [3 * 0.97**n + abs(source.gauss(0, 0.2)) for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 10, 200])
@pytest.mark.parametrize("offset", [0.0, -50.0, 1e8])  # squares of a large loss would cancel
def test_mean_and_deviation_are_those_of_the_last_losses(count, offset):
    losses = [offset + loss for loss in falling(count)]
    level = after(losses)
    mean, deviation = by_hand(losses)
    assert level.mean - offset == pytest.approx(mean - offset, abs=1e-6)
    assert level.deviation == pytest.approx(deviation, abs=1e-6)
    means = [by_hand(losses[: n + 1])[0] for n in range(count)]
    assert level.highest == pytest.approx(max(map(abs, means)), rel=1e-9)
    assert level.seen == count


def test_before_the_first_loss_nothing_is_known():
    level = LossLevel()
    assert math.isnan(level.mean)
    assert (level.deviation, level.highest, level.size(2.0), level.size(0.0)) == (0, 0, 2.0, 0)
    assert not level.is_exceeded_by(1e30)
    assert level.is_exceeded_by(NAN)


@pytest.mark.parametrize("loss", [NAN, INF, -INF])
def test_a_loss_that_is_not_finite_is_not_seen_and_always_out_of_place(loss):
    level = after(falling(20))
    before = level.state_dict()
    level.see(loss)
    assert level.state_dict() == before
    assert level.is_exceeded_by(loss)


def test_changes_are_compared_with_the_loss_or_a_tenth_of_the_highest_level():
    level = after([8.0] * 5 + [0.001] * 200)
    assert level.mean < 0.01
    assert level.highest == 8.0
    assert [level.size(loss) for loss in (2.0, -2.0, 0.5, 0.0)] == [2.0, 2.0, 0.8, 0.8]


def test_a_worsening_is_cut_off_at_five_times_the_highest_level():
    level = after([2.0, 2.0])
    given = [-3.0, 9.0, 11.0, INF, NAN, -INF]
    assert [level.within_reason(w) for w in given] == [-3.0, 9.0, 10.0, 10.0, 10.0, 10.0]
    assert [LossLevel().within_reason(w) for w in (0.5, INF)] == [0.5, 1.0]


def test_out_of_place_is_far_from_the_level_and_ten_times_the_highest():
    level = after([1.0, 1.2] * 5)
    mean, deviation = by_hand([1.0, 1.2] * 5)
    edge = 10 * level.highest
    assert mean + 6 * deviation < edge  # so that the second condition decides here
    assert not level.is_exceeded_by(edge)
    assert level.is_exceeded_by(math.nextafter(edge, INF))
    # Here the deviation does: the level is 1.1 still, but the losses have scattered widely.
    wide = after([1.0, -9.0, 11.2] * 5, forgetting=1.0)
    mean, deviation = by_hand([1.0, -9.0, 11.2] * 5, forgetting=1.0)
    edge = mean + 6 * deviation
    assert edge > 10 * wide.highest
    assert not wide.is_exceeded_by(edge - 1e-9)
    assert wide.is_exceeded_by(edge + 1e-9)


def test_the_first_ten_losses_can_be_anything_finite():
    assert not after([1.0] * 9).is_exceeded_by(1e30)
    assert after([1.0] * 10).is_exceeded_by(1e30)


def test_a_long_tail_is_nothing_out_of_place():
    source = random.Random(0)
    level, far = LossLevel(), 0
    for _ in range(5000):
        loss = math.exp(source.gauss(0, 0.7))  # log-normal: some minibatches are very hard
        assert not level.is_exceeded_by(loss)
        far += level.seen > 10 and loss - level.mean > 6 * level.deviation
        level.see(loss)
    assert far > 5


@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_the_unit_of_the_loss_does_not_matter(scale):
    losses = falling(50)
    here, there = after(losses), after([scale * loss for loss in losses])
    for loss in (0.1, 30.0, 32.0, 1000.0):
        assert there.is_exceeded_by(scale * loss) == here.is_exceeded_by(loss)
        assert there.size(scale * loss) == scale * here.size(loss)
        assert there.within_reason(scale * loss) == scale * here.within_reason(loss)


@pytest.mark.parametrize("cut", [0, 1, 17])
def test_saved_as_json_text_it_continues_the_very_same(cut):
    losses = falling(40)
    level, resumed = after(losses[:cut]), LossLevel()
    resumed.load_state_dict(json.loads(json.dumps(level.state_dict())))
    for loss in losses[cut:]:
        level.see(loss)
        resumed.see(loss)
    assert resumed.state_dict() == level.state_dict()
    assert (resumed.mean, resumed.deviation) == (level.mean, level.deviation)
