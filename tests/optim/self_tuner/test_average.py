"""The average of the weights that a SelfTuner keeps."""

import pytest
import torch

from annealtune import SelfTuner
from tests.optim.self_tuner.classification import Remembering

EVERY = 8  # steps from one look of the guard to the next
LENGTH, STEPS = 400, 200


@pytest.fixture
def run(make_run, make_batches):
    """Train; note the weights and statistics after the forward of every step after the race."""

    def make(kind="sgd", steps=STEPS, **options):
        net, opt, step = make_run(kind, "record", total_steps=LENGTH, **options)
        seen = []
        for x, y in make_batches(steps):
            before = {name: p.detach().clone() for name, p in net.named_parameters()}
            racing = opt.is_racing
            step(x, y)
            if racing and not opt.is_racing:
                seen.append({name: t.clone() for name, t in net.state_dict().items()})
            elif not racing:
                seen.append({**before, **{name: b.clone() for name, b in net.named_buffers()}})
        return net, opt, step, seen

    return make


def test_it_is_the_recursion_over_every_eighth_step(run, kind):
    """The formula of `WeightAverage`, in double precision: the winner first, then sound weights."""
    net, opt, _, seen = run(kind)
    taken = seen[::EVERY]
    with opt.averaged():
        found = {name: t.double() for name, t in net.state_dict().items()}
    for name, tensor in found.items():
        if name.endswith("num_batches_tracked"):
            continue
        mean = taken[0][name].double()
        for number, state in enumerate(taken[1:], start=2):
            mean = mean + 10 / (number + 9) * (state[name].double() - mean)
        torch.testing.assert_close(tensor, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_after_the_last_planned_step_it_is_the_last_weights_bit_for_bit(run, kind):
    net, opt, _, _ = run(kind, steps=LENGTH)
    last = [p.clone() for p in net.parameters()]
    with opt.averaged():
        assert all(map(torch.equal, last, net.parameters()))


@pytest.mark.parametrize("steps", [3, STEPS])
@pytest.mark.parametrize("with_loader", [False, True])
def test_nothing_is_changed_by_it(run, make_batches, picture, steps, with_loader):
    """In a race the model is left as it is, and the race goes on."""
    ends = []
    for looks in (False, True):
        torch.manual_seed(0)
        net, opt, step, _ = run(steps=steps)
        assert opt.is_racing == (steps == 3)
        before = picture(net, opt)
        if looks:
            weights = [p.clone() for p in net.parameters()]
            with opt.averaged(make_batches(3, seed=5) if with_loader else None):
                same = all(map(torch.equal, weights, net.parameters()))
                assert same == opt.is_racing
            assert picture(net, opt) == before
            assert net.training
        for x, y in make_batches(steps + 60)[steps:]:
            step(x, y)
        ends.append(picture(net, opt))
    assert ends[0] == ends[1]


def test_the_run_is_the_same_without_it(run, trained):
    ends = []
    for average in (True, False):
        torch.manual_seed(0)
        net, opt, _, _ = run(average=average)
        ends.append(trained(net, opt))
    assert ends[0] == ends[1]


def test_a_look_at_it_in_a_race_leaves_every_arm_what_its_forward_keeps():
    def losses_of_arms(looks):
        torch.manual_seed(0)
        model = Remembering("attribute")
        base = torch.optim.SGD(model.layer.parameters(), lr=0.1)
        opt = SelfTuner(base, model, total_steps=LENGTH, around=0.01)
        compute_loss = opt.record(lambda x: (model(x) - 1).square().mean())
        while not opt.races:
            compute_loss(torch.randn(8, 2)).backward()
            opt.step()
            opt.zero_grad()
            if looks:
                with opt.averaged():
                    pass
        return opt.races[0].losses

    assert losses_of_arms(looks=True) == losses_of_arms(looks=False)
