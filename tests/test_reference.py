"""The real classes against the plain reference: equal bit for bit, whatever is trained."""

import copy

import pytest
import torch
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, SelfTuner, grid
from annealtune.reference import Algorithm3, algorithm_2
from annealtune.temperatures import Geometric


def normed():
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
    )


def plain():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def adamw(net):
    """Two groups, whose ratio of rates must be kept."""
    groups = [{"params": net[0].parameters(), "lr": 1e-3}, {"params": net[-1].parameters()}]
    return torch.optim.AdamW(groups, lr=1e-2)


def momentum(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def entropy(net, x, y):
    return nn.functional.cross_entropy(net(x), y)


def squares(net, x, y):
    return (net(x)[:, 0] - y).square().mean()


def data(count, size=32):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, size, 6, generator=generator)
    noise = torch.randn(count, size, generator=generator)
    y = (x[..., 0] + x[..., 1] ** 2 + 0.5 * noise).clamp(-0.5, 1.5).add(0.5).long()
    return list(zip(x, y, strict=True))


def validation_loss(net):
    with torch.no_grad():
        return sum(entropy(net, x, y).item() for x, y in data(3)) / 3


def state(net):
    return {name: tensor.tolist() for name, tensor in net.state_dict().items()}


def ways(opt, net, loss_of=entropy):
    """The two ways to step: a closure, and a function that is recorded."""

    def by_closure(x, y):
        return opt.step(lambda: loss_of(net, x, y)).item()

    recorded = opt.record(lambda x, y: loss_of(net, x, y))

    def by_record(x, y):
        loss = recorded(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.item()

    return {"closure": by_closure, "record": by_record}


WAY = pytest.mark.parametrize("way", ["closure", "record"])


def annealed(opt, net, way, minibatches, epochs):
    """Train as a user does; the moves, the last net and the best one."""
    moves = []
    for _ in range(epochs):
        for x, y in minibatches:
            ways(opt, net)[way](x, y)
            step = opt.last_step
            moves.append((dict(step.setting), step.loss, step.new_loss, step.accepted))
        opt.validate(lambda: validation_loss(net))
        opt.cool()
    last = state(net)
    opt.load_best()
    return moves, last, state(net)


def by_reference(found):
    moves = [(dict(m.setting), m.loss, m.new_loss, m.accepted) for m in found.moves]
    return moves, state(found.last), state(found.best)


def algorithm_2_twice(make, base, opt_of, way, settings, **options):
    torch.manual_seed(1)
    net, minibatches = make(), data(12)
    twin = copy.deepcopy(net)
    start = torch.get_rng_state()
    ours = annealed(opt_of(net), net, way, minibatches, 6)
    torch.set_rng_state(start)
    reference = algorithm_2(
        twin,
        base(twin),
        entropy,
        minibatches,
        settings,
        epochs=6,
        validation_loss=validation_loss,
        **options,
    )
    return ours, by_reference(reference)


@WAY
def test_the_papers_method_is_algorithm_2_with_its_output(way):
    rates = grid(lr=[0.9, 0.5, 0.1, 30.0, 0.05])
    ours, expected = algorithm_2_twice(
        normed,
        lambda net: torch.optim.SGD(net.parameters(), lr=0.9),
        lambda net: SGDSA(net, rates, preset="paper-text", seed=5),
        way,
        rates,
        seed=5,
    )
    assert ours == expected
    moves, last, best = expected
    assert {accepted for *_, accepted in moves} == {True, False}
    assert best != last  # else nothing was shown about the output


@WAY
@pytest.mark.parametrize("make", [normed, plain])
@pytest.mark.parametrize(
    ("base", "settings"),
    [
        (momentum, grid(lr=[1.0, 0.1, 0.01], momentum=[0.0, 0.9])),
        (adamw, grid(lr=[0.3, 0.03, 0.003], weight_decay=[0.0, 0.1])),
    ],
)
def test_algorithm_2_around_any_optimizer(way, make, base, settings):
    ours, expected = algorithm_2_twice(
        make,
        base,
        lambda net: EmbeddedTuner(
            base(net), net, neighborhood=settings, temperature=Geometric(0.05, 0.7), seed=7
        ),
        way,
        settings,
        temperature=0.05,
        cooling=0.7,
        seed=7,
    )
    assert ours == expected
    assert {accepted for *_, accepted in expected[0]} == {True, False}


def told(races):
    """What a race was and what came of it."""
    return [
        (
            [setting["lr"] for setting in race.settings],
            [list(losses) for losses in race.losses],
            sorted(race.dropped),
            race.winner,
            race.rate,
        )
        for race in races
    ]


def told_by_reference(races):
    return [
        (
            [arm.rate for arm in race.arms],
            [arm.losses for arm in race.arms],
            [place for place, arm in enumerate(race.arms) if arm not in race.live],
            race.arms.index(race.winner),
            race.winner.rate,
        )
        for race in races
    ]


@WAY
@pytest.mark.parametrize(
    ("make", "base", "loss_of", "around", "total_steps", "races"),
    [
        (normed, adamw, entropy, None, 200, 1),
        (plain, adamw, entropy, None, 140, 1),  # short: three arms
        (normed, momentum, entropy, 0.03, 500, 1),
        (normed, adamw, entropy, 30.0, 500, 2),  # even the lowest rate does harm: a further race
        (plain, momentum, entropy, 100.0, 500, 2),
        (plain, momentum, squares, 0.3, 200, 1),  # arms break
    ],
)
def test_algorithm_3(way, make, base, loss_of, around, total_steps, races):
    torch.manual_seed(1)
    net, batches = make(), data(total_steps)
    optimizer = base(net)
    options = {} if around is None else {"centre": around}
    reference = Algorithm3(net, optimizer, loss_of, total_steps=total_steps, **options)
    opt = SelfTuner(optimizer, net, total_steps=total_steps, around=around)
    step = ways(opt, net, loss_of)[way]
    start, losses = torch.get_rng_state(), []
    for number, (x, y) in enumerate(batches, 1):
        losses.append(step(x, y))
        if number % 7 == 0:  # also within a race
            opt.validate(lambda: validation_loss(net))
    end, last = torch.get_rng_state(), state(net)
    opt.load_best()

    torch.set_rng_state(start)
    expected = []
    for number, (x, y) in enumerate(batches, 1):
        expected.append(reference.step(x, y))
        if number % 7 == 0:
            reference.look(validation_loss)
    assert told(opt.races) == told_by_reference(reference.races)
    assert len(opt.races) == races
    assert losses == expected
    assert torch.equal(end, torch.get_rng_state())
    assert last == state(reference.net)
    assert state(net) == state(reference.best)
