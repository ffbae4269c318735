"""Two objectives: the gradient of one, the verdict of another."""

import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, NonFiniteLossError, grid

RATES = grid(lr=[20.0, 3.0, 1.0, 0.3])


def closure_of(net, x, y):
    def closure():
        outputs = net(x)
        return F.cross_entropy(outputs, y), outputs, y

    return closure


def wrong(outputs, targets):
    return (outputs.argmax(1) != targets).double().mean()


@pytest.mark.parametrize("accept_on", ["error", wrong])
def test_it_costs_no_forward_and_equals_an_objective_that_costs_two(
    make_net, make_batches, accept_on, picture
):
    """The verdicts are those of `step(closure, objective=fn)`, which evaluates `fn` by itself."""
    one, other = make_net(), make_net()
    judged = SGDSA(one, RATES, temperature=0.02, accept_on=accept_on)
    separate = SGDSA(other, RATES, temperature=0.02)
    verdicts = set()
    for x, y in make_batches(30):
        start = torch.get_rng_state()
        one.forwards = 0
        judged.step(closure_of(one, x, y))
        assert one.forwards == 2
        end = torch.get_rng_state()
        torch.set_rng_state(start)
        separate.step(
            lambda x=x, y=y: F.cross_entropy(other(x), y),
            objective=lambda x=x, y=y: wrong(other(x), y),
        )
        assert torch.equal(torch.get_rng_state(), end)
        assert judged.last_step == separate.last_step
        verdicts.add(judged.last_step.accepted)
    assert verdicts == {True, False}
    assert picture(one, judged)["weights"] == picture(other, separate)["weights"]


def test_in_evaluation_mode_both_values_are_taken_there(net, batch):
    x, y = batch
    tuner = EmbeddedTuner(
        torch.optim.SGD(net.parameters(), lr=0.1),
        model=net,
        neighborhood=grid(lr=[0.0]),
        accept_on=lambda outputs, targets: outputs.sum(),
        probe_in="eval",
    )
    tuner.step(closure_of(net, x, y))
    assert tuner.last_step.worsening == 0.0
    net.eval()
    assert tuner.last_step.loss == pytest.approx(net(x).sum().item(), rel=1e-6)


def test_a_loss_that_breaks_at_the_tentative_point_is_rejected_whatever_the_judge_says(net, batch):
    x, y = batch
    before = net.first.weight.detach().clone()

    def closure():
        broken = not torch.equal(net.first.weight, before)
        outputs = net(x)
        return F.cross_entropy(outputs, y) * (math.nan if broken else 1), outputs, y

    tuner = SGDSA(net, grid(lr=[0.1]), accept_on="error", temperature=math.inf)
    tuner.step(closure)
    assert not tuner.last_step.accepted
    assert torch.equal(net.first.weight, before)


def test_the_error_of_scores_over_positions(net, batch):
    x, _ = batch
    targets = torch.zeros(16, 2, dtype=torch.long)

    def closure():  # 16 samples, three classes, two positions
        scores = torch.stack([net(x), net(x)], 2) * 0 + torch.tensor([0.0, 1.0, 0.0]).view(1, 3, 1)
        scores[:8, 0] = 2.0
        return F.cross_entropy(net(x), targets[:, 0]), scores, targets

    tuner = SGDSA(net, grid(lr=[0.1]), accept_on="error", temperature=math.inf)
    tuner.step(closure)
    assert tuner.last_step.loss == 0.5


def judged_by(value):
    return lambda opt, net, x, y: opt(accept_on=lambda o, t: value).step(closure_of(net, x, y))


BAD = {
    "closure without outputs": (
        lambda opt, net, x, y: opt(accept_on="error").step(lambda: F.cross_entropy(net(x), y)),
        TypeError,
    ),
    "an objective too": (
        lambda opt, net, x, y: opt(accept_on="error").step(
            closure_of(net, x, y), objective=lambda: 1.0
        ),
        TypeError,
    ),
    "scores of the wrong shape": (
        lambda opt, net, x, y: opt(accept_on="error").step(
            lambda: (F.cross_entropy(net(x), y), net(x)[:3], y)
        ),
        ValueError,
    ),
    "a string": (judged_by("good"), TypeError),
    "a vector": (judged_by(torch.ones(3)), ValueError),
    "NaN": (judged_by(math.nan), NonFiniteLossError),
}


@pytest.mark.parametrize(("act", "error"), BAD.values(), ids=BAD)
def test_a_bad_judge_is_named_and_changes_no_weight(net, batch, bits, act, error):
    weights = bits(list(net.parameters()))
    with pytest.raises(error, match=r"accept_on|error") as caught:
        act(lambda **options: SGDSA(net, RATES, **options), net, *batch)
    assert caught.type is error
    assert bits(list(net.parameters())) == weights


def test_an_objective_that_is_not_finite_is_not_blamed_on_the_loss(net, batch, bits):
    weights = bits(list(net.parameters()))
    with pytest.raises(NonFiniteLossError, match=r"step\(objective\)"):
        SGDSA(net, RATES).step(closure_of(net, *batch), objective=lambda: torch.tensor(math.nan))
    assert bits(list(net.parameters())) == weights
