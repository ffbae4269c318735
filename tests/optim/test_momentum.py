"""Momentum in H: the buffers rest while it is off, go on when it is on, and are restored.

docs/decisions/0010-momentum-buffers.md says why.
"""

import copy

import pytest
import torch
from torch import nn

from annealtune import EmbeddedTuner, Setting
from annealtune.annealing import Strategy, Verdict


class Script(Strategy):
    """Makes the moves it is told, keeps those it is told to keep."""

    def __init__(self, moves):
        self.moves = list(moves)
        self.made = -1

    def pick(self, neighborhood, rng):
        self.made += 1
        return Setting(self.moves[self.made][0])

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=self.moves[self.made][1])


ON = {"lr": 0.1, "momentum": 0.9, "nesterov": False}
NESTEROV = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
OFF = {"lr": 0.1, "momentum": 0.0, "nesterov": False}


def scripted(weight, moves):
    base = torch.optim.SGD([weight], lr=0.1)
    return EmbeddedTuner(
        base, nn.ParameterList([weight]), neighborhood=[ON, NESTEROV, OFF], strategy=Script(moves)
    )


def run(moves):
    """Minimize the sum of w * (1, 2): the gradient is (1, 2) everywhere."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    gradient = torch.tensor([1.0, 2.0], dtype=torch.float64)
    tuner = scripted(weight, moves)
    for _ in moves:
        tuner.step(lambda: (weight * gradient).sum())
    return weight.detach(), tuner.base.state.get(weight, {}).get("momentum_buffer")


def by_hand(moves):
    """The documented rule on scalars: a plain step neither reads nor writes the buffer."""
    position, buffer = 0.0, None
    for move, accepted in moves:
        if not accepted:
            continue
        if move["momentum"] == 0:
            position -= 0.1
            continue
        buffer = 1.0 if buffer is None else 0.9 * buffer + 1.0
        position -= 0.1 * (1.0 + 0.9 * buffer if move["nesterov"] else buffer)
    return position, buffer


SEQUENCES = {
    "on, off, on": [(ON, True), (ON, True), (OFF, True), (OFF, True), (ON, True)],
    "off first": [(OFF, True), (ON, True), (OFF, True), (ON, True)],
    "nesterov between": [(ON, True), (NESTEROV, True), (ON, True), (OFF, True), (NESTEROV, True)],
    "a rejected start": [(ON, False), (OFF, True)],
    "rejections between": [(ON, True), (NESTEROV, False), (OFF, True), (ON, False), (ON, True)],
    "never on": [(OFF, True), (OFF, False), (OFF, True)],
}


@pytest.mark.parametrize("moves", SEQUENCES.values(), ids=SEQUENCES)
def test_the_documented_rule(moves):
    position, buffer = by_hand(moves)
    weight, kept = run(moves)
    assert weight.tolist() == pytest.approx([position, 2 * position], rel=1e-12)
    if buffer is None:
        assert kept is None  # also its absence is restored
    else:
        assert kept.tolist() == pytest.approx([buffer, 2 * buffer], rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (torch.optim.RMSprop, "momentum", 0.9),
        (torch.optim.RMSprop, "centered", True),
        (torch.optim.AdamW, "amsgrad", True),
    ],
)
def test_an_option_whose_state_is_made_in_a_first_step_or_never(net, loss_of, kind, option, value):
    off, on = ({"lr": 1e-3, option: given} for given in (type(value)(0), value))
    base = kind(net.parameters(), lr=1e-3)
    script = Script([(off, True), (on, True), (off, True)])
    tuner = EmbeddedTuner(base, net, neighborhood=[off, on], strategy=script)
    tuner.step(loss_of)
    before = copy.deepcopy(base.state_dict())
    with pytest.raises(ValueError, match=rf"neighborhood.*{option}"):
        tuner.step(loss_of)
    torch.testing.assert_close(base.state_dict(), before, rtol=0, atol=0)
    tuner.step(loss_of)
