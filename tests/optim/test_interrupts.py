"""Ctrl-C anywhere in a step: the step is undone or done, and the run can be saved and go on.

An interrupt is raised at every line of our own code that a step runs through, one after the other,
each in a run of its own: at the last time that it runs through every second line, and, in the slow
tests, at every time that it runs through every line.
"""

import copy
import math
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode

import annealtune
from annealtune import SGDSA, Attribute, EmbeddedTuner, Genetic, StochasticSA, Tabu, grid

OURS = str(Path(annealtune.__file__).parent)
WARM_UP = 1  # steps before the one that is interrupted


class Interrupter:
    """Raises KeyboardInterrupt before the line of our code with a certain number is run."""

    def __init__(self, number=None):
        self.number = number
        self.seen = []

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.seen.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.seen) == self.number:
                raise KeyboardInterrupt
        return self

    def run(self, function):
        """Return whether the function was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def adamw(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01)
    return EmbeddedTuner(base, model=net, temperature=math.inf, average=True)


def rejecting(net):
    rates = grid(lr=[1e30], momentum=[0.9], nesterov=[True])
    return SGDSA(net, rates, temperature=0.0)


def as_published(net):
    return SGDSA(net, preset="paper-code", batch_size=16, temperature=math.inf)


def with_options_of_the_loop(net):
    loop = {"drop": Attribute("p", net.drop)}
    return SGDSA(net, grid(lr=[0.1], drop=[0.2, 0.4]), loop=loop, temperature=math.inf)


def rejecting_options_of_the_loop(net):
    loop = {"drop": Attribute("p", net.drop)}
    return SGDSA(net, grid(lr=[1e30], drop=[0.2, 0.4]), loop=loop, temperature=0.0)


def comparing(net):
    return SGDSA(net, grid(lr=[0.1, 0.05]), strategy=Tabu(candidates=2))


def breeding(net):
    return SGDSA(net, grid(lr=[0.1, 0.05]), strategy=Genetic(math.inf, population=2, trials=1))


def without_gradients(net):
    return StochasticSA(net, temperature=math.inf)


def without_gradients_rejecting(net):
    return StochasticSA(net, radius=1e30, temperature=0.0)


def by_closure(net, tuner, x, y):
    tuner.step(lambda: F.cross_entropy(net(x), y))


def by_standard_closure(net, tuner, x, y):
    def closure():
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    tuner.step(closure)


def by_objective(net, tuner, x, y):
    tuner.step(
        lambda: F.cross_entropy(net(x), y), objective=lambda: F.cross_entropy(net(x), y).exp()
    )


def by_hand(net, tuner, x, y):
    tuner.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    tuner.propose(loss)
    with tuner.probing():
        new_loss = F.cross_entropy(net(x), y)
    tuner.resolve(new_loss)


FAST = [(adamw, by_closure), (rejecting, by_hand)]
CASES = [
    *FAST,
    (adamw, by_standard_closure),
    (adamw, by_objective),
    (adamw, by_hand),
    (rejecting, by_closure),
    (as_published, by_closure),
    (with_options_of_the_loop, by_closure),
    (rejecting_options_of_the_loop, by_closure),
    (comparing, by_closure),
    (breeding, by_closure),
    (without_gradients, by_closure),
    (without_gradients_rejecting, by_closure),
]


def name_of(case):
    return case.__name__.replace("_", " ")


def has_picked_ahead(tuner):
    return isinstance(tuner, EmbeddedTuner) and tuner._pick.ahead is not None


def weights_of(net, tuner, bits):
    """What a step moves: weights, state of the base, its options, those of the loop."""
    groups = [{k: v for k, v in g.items() if k != "params"} for g in tuner.base.param_groups]
    state = [tuner.base.state.get(p, {}) for p in net.parameters()]
    return bits([list(net.parameters()), groups, state, net.drop.p])


def surroundings_of(net, bits):
    """What a forward leaves, one by one: it may be cut off between two of them."""
    flags = [(module.training, "train" in vars(module)) for module in net.modules()]
    return (
        *map(bits, net.buffers()),
        bits(torch.get_rng_state()),
        flags,
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize(("kind", "step"), FAST, ids=name_of)
def test_at_every_second_line(kind, step, make_net, make_batches, bits):
    def chosen(seen):
        return list({at: n for n, at in seen}.values())[::2]

    check(kind, step, make_net, make_batches, bits, chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES, ids=name_of)
def test_at_every_line_whenever_it_is_run(kind, step, make_net, make_batches, bits):
    check(kind, step, make_net, make_batches, bits, lambda seen: [n for n, _ in seen])


def check(kind, step, make_net, make_batches, bits, chosen):
    batches = make_batches(WARM_UP + 1)
    x, y = batches[-1]

    def begun():
        net = make_net()
        tuner = kind(net)
        torch.manual_seed(7)
        for inputs, targets in batches[:WARM_UP]:
            step(net, tuner, inputs, targets)
        return net, tuner

    net, tuner = begun()
    before, outside_before = weights_of(net, tuner, bits), surroundings_of(net, bits)
    whole = Interrupter()
    assert not whole.run(lambda: step(net, tuner, x, y))
    after, outside_after = weights_of(net, tuner, bits), surroundings_of(net, bits)
    numbers = chosen(list(enumerate(whole.seen, start=1)))
    assert len(numbers) > 100

    undone = done = 0
    for number in numbers:
        net, tuner = begun()
        interrupter = Interrupter(number)
        assert interrupter.run(lambda: step(net, tuner, x, y))  # noqa: B023
        where = "interrupted at {}, line {}".format(*interrupter.seen[-1])
        if getattr(getattr(tuner, "_tentative", None), "trial", None) is not None:
            # The interrupt has hit the loop itself, between propose and resolve.
            assert step is by_hand, where
            tuner.resolve(math.nan)
        # An option of the loop that was picked ahead stays until the step it was picked for.
        if has_picked_ahead(tuner) and "drop" in tuner.neighborhood.options:
            assert net.drop.p == tuner.prepare()["drop"], where
            net.drop.p = tuner.state_dict()["param_groups"][0]["annealtune"]["loop"]["drop"]
        weights = weights_of(net, tuner, bits)
        assert weights in (before, after), where
        undone, done = undone + (weights == before), done + (weights == after)
        for now, then, later in zip(
            surroundings_of(net, bits), outside_before, outside_after, strict=True
        ):
            assert now in (then, later), where
        assert _get_current_function_mode() is None, where
        assert not tuner._intake.forward.paused, where
        tuner.load_state_dict(tuner.state_dict())
        if number % 5 == 0:
            copy.deepcopy(tuner)
        step(net, tuner, x, y)
        assert math.isfinite(tuner.last_step.loss), where
    assert undone > 50
    assert done > 0


def test_an_interrupt_within_the_average_gives_the_weights_back(make_net, make_batches, bits):
    x, y = make_batches(1)[0]
    net = make_net()
    tuner = adamw(net)
    for _ in range(3):
        by_closure(net, tuner, x, y)
    before = bits(net.state_dict())

    def evaluate():
        with tuner.averaged([x]):
            net(x)

    number = 0
    while Interrupter(number := number + 1).run(evaluate):
        net.norm.num_batches_tracked.fill_(3)  # by the forward in it, if that was reached
        assert bits(net.state_dict())["first.weight"] == before["first.weight"], number
        assert not tuner._average.pending
        assert torch.is_grad_enabled()
        twin = copy.deepcopy(tuner)
        by_closure(twin.model, twin, x, y)
    assert number > 10
