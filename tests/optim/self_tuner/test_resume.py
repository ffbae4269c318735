"""A run that is saved and loaded, copied or pickled at any moment is the same run."""

import copy
import io
import pickle

import pytest
import torch

from annealtune import SelfTuner, grid

LENGTH = 200  # a short race of few arms
AFTER = 60
BETAS = grid(betas=[(0.9, 0.99), (0.8, 0.9)])


def as_saved(net, opt):
    """Pass everything through a file that only plain data may come out of."""
    file = io.BytesIO()
    random_numbers = torch.get_rng_state()
    state = {"model": net.state_dict(), "optimizer": opt.state_dict(), "random": random_numbers}
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def decisions(opt):
    return [info.to_dict() for info in opt.races], opt.lr, opt.steps, opt.history.state_dict()


@pytest.fixture
def whole_run(make_run, make_batches, trained):
    """Make a run of a race and some steps; call something before each of its steps."""

    def make(kind, way, before_step=lambda *_: None, **options):
        net, opt, step = make_run(kind, way, **options)
        torch.manual_seed(7)
        racing, batches = True, make_batches(400)
        for at, (x, y) in enumerate(batches):
            before_step(at, net, opt)
            step(x, y)
            if racing and not opt.is_racing:
                racing, end = False, at + AFTER
            if not racing and at == end:
                return batches[: at + 1], trained(net, opt), decisions(opt)
        raise AssertionError("still racing")

    return make


@pytest.mark.parametrize(
    ("kind", "way", "optimizer_first", "options"),
    [
        ("sgd", "record", False, {"total_steps": LENGTH}),
        ("adamw", "record", True, {"total_steps": LENGTH}),
        ("sgd", "closure", True, {"total_steps": LENGTH, "offload": True, "average": False}),
        ("adamw", "closure with backward", False, {"total_steps": LENGTH, "neighborhood": BETAS}),
    ],
)
def test_loaded_at_any_step_it_goes_on_bit_for_bit(
    whole_run, make_run, trained, bits, kind, way, optimizer_first, options
):
    saved = []
    batches, end, outcome = whole_run(
        kind, way, lambda at, net, opt: saved.append(as_saved(net, opt)), **options
    )
    racing = len(batches) - AFTER
    held = saved[racing]
    for at in [*range(racing), racing + 4, racing + AFTER // 2]:  # in the warm-up, after it
        torch.manual_seed(99)  # another process has other random numbers
        net, opt, step = make_run(kind, way, **options)
        state = saved[at]
        if optimizer_first:
            opt.load_state_dict(state["optimizer"])
            net.load_state_dict(state["model"])
        else:
            net.load_state_dict(state["model"])
            opt.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        for now, (x, y) in enumerate(batches[at:], start=at):
            if now == racing:  # all there is, its own state too
                assert bits(as_saved(net, opt)) == bits(held), f"loaded at step {at}"
                if at % 4:
                    break
            step(x, y)
        else:
            assert trained(net, opt) == end, f"loaded at step {at}"
            assert decisions(opt) == outcome, f"loaded at step {at}"


class Carrying(torch.nn.Module):
    """Keeps its state in an attribute, which a user saves beside the weights."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.last, self.state = cell(2, 3), torch.nn.Linear(3, 1), None

    def forward(self, x):
        state = self.cell(x, self.state)
        is_one = isinstance(state, torch.Tensor)
        self.state = state.detach() if is_one else (state[0].detach(), state[1].detach())
        return self.last(state if is_one else state[0])


@pytest.mark.parametrize("cell", [torch.nn.GRUCell, torch.nn.LSTMCell])
def test_states_in_attributes_are_saved_for_every_arm(cell):
    x = torch.randn(4, 2)

    def raced(saved, steps):
        torch.manual_seed(0)
        net = Carrying(cell)
        base = torch.optim.SGD(net.parameters(), lr=0.1)
        opt = SelfTuner(base, net, neighborhood=grid(lr=[0.01, 0.1, 0.5]), warmup=0)
        if saved:
            net.load_state_dict(saved["model"])
            opt.load_state_dict(saved["optimizer"])
            net.state = saved["state"]
        compute_loss = opt.record(lambda: (net(x) - 1).square().mean())
        while opt.is_racing and opt.steps < steps:
            compute_loss().backward()
            opt.step()
            opt.zero_grad()
        return opt, {**as_saved(net, opt), "state": net.state}

    whole, _ = raced(None, 100)
    _, saved = raced(None, 3)
    loaded, _ = raced(saved, 100)
    assert decisions(loaded) == decisions(whole)


def test_saving_and_copying_change_nothing(whole_run):
    def disturb(at, net, opt):
        as_saved(net, opt)
        copy.deepcopy((net, opt))
        pickle.dumps((net, opt))

    quiet = whole_run("adamw", "record", total_steps=LENGTH)
    assert quiet[1:] == whole_run("adamw", "record", disturb, total_steps=LENGTH)[1:]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
@pytest.mark.parametrize("way", ["record", "closure"])
def test_copies_are_the_same_run(whole_run, ways, loss_function, trained, copied, way):
    made = {}

    def copy_now(at, net, opt):
        if at in (0, 1, 5) or (len(opt.races) == 1 and "after" not in made):
            made[at if len(opt.races) == 0 else "after"] = (
                at, copied((net, opt)), torch.get_rng_state(),
            )  # fmt: skip

    batches, end, outcome = whole_run("adamw", way, copy_now, total_steps=LENGTH)
    assert set(made) == {0, 1, 5, "after"}
    for at, (net, opt), random_numbers in made.values():
        step = ways[way](opt, loss_function(net))
        torch.set_rng_state(random_numbers)
        for x, y in batches[at:]:
            step(x, y)
        assert trained(net, opt) == end, f"copied at step {at}"
        assert decisions(opt) == outcome, f"copied at step {at}"


def test_an_earlier_state_can_be_loaded_into_a_run_that_is_past_its_race(
    make_run, make_batches, trained
):
    net, opt, step = make_run("sgd", "record", total_steps=LENGTH)
    batches, ends = make_batches(100), []
    for x, y in batches[:4]:
        step(x, y)
    state = as_saved(net, opt)
    for _ in range(2):
        net.load_state_dict(state["model"])
        opt.load_state_dict(copy.deepcopy(state["optimizer"]))  # torch does not copy its tensors
        torch.set_rng_state(state["random"])
        for x, y in batches[4:]:
            step(x, y)
        assert not opt.is_racing
        ends.append((trained(net, opt), decisions(opt)))
    assert ends[0] == ends[1]
