"""A probe changes nothing but the verdict: random numbers, buffers, gradients, flags, graphs."""

import copy
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid


def step_by_closure(tuner, forward, x, y):
    tuner.step(lambda: F.cross_entropy(forward(x), y))


def step_by_closure_with_backward(tuner, forward, x, y):
    def closure():
        tuner.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        return loss

    tuner.step(closure)


def step_by_loss_and_probe(tuner, forward, x, y):
    tuner.zero_grad()
    loss = F.cross_entropy(forward(x), y)
    loss.backward()
    tuner.step(loss=loss, probe=lambda: F.cross_entropy(forward(x), y))


def step_with_gradients_reset_after_the_forward(tuner, forward, x, y):
    loss = F.cross_entropy(forward(x), y)
    tuner.zero_grad()
    loss.backward()
    tuner.step(loss=loss, probe=lambda: F.cross_entropy(forward(x), y))


def step_with_gradients_reset_after_the_step(tuner, forward, x, y):
    loss = F.cross_entropy(forward(x), y)
    loss.backward()
    tuner.step(loss=loss, probe=lambda: F.cross_entropy(forward(x), y))
    tuner.zero_grad()


def step_by_propose_and_resolve(tuner, forward, x, y):
    tuner.zero_grad()
    loss = F.cross_entropy(forward(x), y)
    loss.backward()
    tuner.propose(loss)
    with tuner.probing():
        new_loss = F.cross_entropy(forward(x), y)
    tuner.resolve(new_loss)


WAYS = [
    step_by_closure,
    step_by_closure_with_backward,
    step_by_loss_and_probe,
    step_with_gradients_reset_after_the_forward,
    step_with_gradients_reset_after_the_step,
    step_by_propose_and_resolve,
]
MAIN_WAYS = [step_by_closure, step_by_loss_and_probe, step_by_propose_and_resolve]


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_of_zero_worsens_by_exactly_zero(way, net, batch):
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    for _ in range(5):
        way(tuner, net, *batch)
        assert tuner.last_step.worsening == 0
    assert tuner.moves.total == (5, 0, 5)


@pytest.mark.parametrize("way", WAYS[:5])
def test_a_rate_of_zero_worsens_by_exactly_zero_in_evaluation_mode(way, net, batch):
    tuner = SGDSA(net, grid(lr=[0.0]), preset="paper-code", batch_size=16)
    for _ in range(5):
        way(tuner, net, *batch)
        assert tuner.last_step.worsening == 0


def test_without_replay_dropout_would_decide(net, batch):
    """The noise that the zeros above are free of."""
    x, y = batch
    losses = {F.cross_entropy(net(x), y).item() for _ in range(5)}
    assert len(losses) == 5


@pytest.fixture
def stack():
    """A net without counters, which would make torch compile it again at every forward."""
    torch._dynamo.reset()
    yield nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3)
    )
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("way", "given", "preset"),
    [
        (step_by_closure, "original", None),
        (step_by_closure, "compiled", "paper-code"),
        (step_by_loss_and_probe, "compiled", None),
        (step_by_loss_and_probe, "original", "paper-code"),
        (step_by_propose_and_resolve, "original", None),
    ],
)
def test_a_compiled_model_is_replayed_and_not_compiled_again(way, given, preset, stack, batch):
    counter = CompileCounter()
    compiled = torch.compile(stack, backend=counter)
    model = compiled if given == "compiled" else stack
    tuner = SGDSA(model, grid(lr=[0.0]), preset=preset, batch_size=16)
    for _ in range(10):
        way(tuner, compiled, *batch)
        assert tuner.last_step.worsening == 0
    assert counter.frame_count == 2  # with and without gradients


def test_a_compiled_model_makes_the_same_moves(stack, make_batches, bits):
    moves = []
    for compile_it in (False, True):
        net = copy.deepcopy(stack)
        forward = torch.compile(net, backend="eager") if compile_it else net
        tuner = SGDSA(net, grid(lr=[30.0, 0.1]), temperature=0.01)
        torch.manual_seed(0)
        for x, y in make_batches(20):
            step_by_closure(tuner, forward, x, y)
            moves.append(tuner.last_step)
        moves.append(bits(net.state_dict()))
    assert moves[:21] == moves[21:]
    assert {info.accepted for info in moves[:20]} == {True, False}


def test_a_model_compiled_in_one_graph_says_which_module_the_tuner_wants(stack, batch):
    x, y = batch
    compiled = torch.compile(stack, backend="eager", fullgraph=True)
    inside = SGDSA(stack)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="give the tuner the compiled module"):
        inside.step(lambda: F.cross_entropy(compiled(x), y))


def test_a_model_compiled_in_one_graph_works_if_the_tuner_has_it(stack, batch):
    compiled = torch.compile(stack, backend="eager", fullgraph=True)
    tuner = SGDSA(compiled, grid(lr=[0.0]), temperature=0.0)
    step_by_loss_and_probe(tuner, compiled, *batch)
    assert tuner.last_step.worsening == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rate", [0.1, 1e6])
def test_buffers_and_random_numbers_are_those_of_one_forward(way, rate, make_net, batch, bits):
    x, y = batch
    net, plain = make_net(), make_net()
    torch.manual_seed(0)
    F.cross_entropy(plain(x), y)
    random_state = torch.get_rng_state()

    tuner = SGDSA(net, grid(lr=[rate]), temperature=0.0)
    torch.manual_seed(0)
    way(tuner, net, x, y)
    assert tuner.last_step.accepted is (rate == 0.1)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert bits(dict(net.named_buffers())) == bits(dict(plain.named_buffers()))
    assert net.norm.num_batches_tracked == 1


@pytest.mark.parametrize("draws", [0, 1, 7])
def test_whatever_an_evaluation_draws_the_stream_is_that_of_one_forward(draws, net, batch):
    x, y = batch
    torch.manual_seed(0)
    net(x)
    random_state = torch.get_rng_state()
    tuner = SGDSA(net, grid(lr=[0.1]), temperature=math.inf)
    torch.manual_seed(0)
    tuner.step(
        lambda: F.cross_entropy(net(x), y),
        objective=lambda: F.cross_entropy(net(x) + 0 * torch.rand(draws).sum(), y),
    )
    assert torch.equal(torch.get_rng_state(), random_state)
    net.eval()  # no mask is drawn any more, so a replay ends where it began
    tuner.step(lambda: F.cross_entropy(net(x), y), objective=lambda: torch.rand(1))
    assert torch.equal(torch.get_rng_state(), random_state)


def test_buffers_of_a_model_that_the_tuner_does_not_know(make_net, batch):
    x, y = batch
    net = make_net()
    tuner = SGDSA(net.parameters(), grid(lr=[0.0]), buffers=net.buffers(), temperature=0.0)
    for step in range(1, 4):
        tuner.step(lambda: F.cross_entropy(net(x), y))
        assert tuner.last_step.worsening == 0
        assert net.norm.num_batches_tracked == step


def test_the_random_state_can_be_given_where_there_is_no_model(net, batch):
    x, y = batch
    tuner = SGDSA(net.parameters(), grid(lr=[0.0]), buffers=list(net.buffers()), temperature=0.0)
    for _ in range(3):
        state = torch.get_rng_state()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        after = torch.get_rng_state()
        tuner.step(loss=loss, probe=lambda: F.cross_entropy(net(x), y), rng_state=state)
        assert tuner.last_step.worsening == 0
        assert torch.equal(torch.get_rng_state(), after)
        tuner.propose(loss, rng_state=state)
        with tuner.probing():
            new_loss = F.cross_entropy(net(x), y)
        assert tuner.resolve(new_loss).worsening == 0


@pytest.mark.parametrize("state", [torch.zeros(3, dtype=torch.uint8), "state", torch.zeros(5056)])
def test_a_random_state_that_is_none_costs_nothing(state, net, loss_of, bits):
    tuner = SGDSA(net)
    loss = loss_of()
    loss.backward()
    before = bits([net.state_dict(), [p.grad for p in net.parameters()]])
    with pytest.raises(ValueError, match=r"SGDSA.step\(rng_state=...\) must be what torch.get_rng"):
        tuner.step(loss=loss, probe=loss_of, rng_state=state)
    assert bits([net.state_dict(), [p.grad for p in net.parameters()]]) == before


@pytest.mark.parametrize("way", MAIN_WAYS[1:])
def test_other_forwards_between_steps_do_not_mislead_the_replay(way, net, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    for _ in range(3):
        net.eval()
        net(x)  # validation
        net.train()
        with torch.no_grad():
            net(x)  # statistics
        torch.rand(5)
        way(tuner, net, x, y)
        assert tuner.last_step.worsening == 0


def test_a_skipped_step_does_not_mislead_the_next_one(net, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    for skipped in (False, True, True, False, True, False):
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        if not skipped:
            tuner.step(loss=loss, probe=lambda: F.cross_entropy(net(x), y))
            assert tuner.last_step.worsening == 0


def test_a_failed_step_does_not_mislead_the_next_one(net, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)

    def failing_probe():
        with torch.enable_grad():
            net(x)
        raise ZeroDivisionError

    for fails in (True, False):
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        if fails:
            with pytest.raises(ZeroDivisionError):
                tuner.step(loss=loss, probe=failing_probe)
        else:
            tuner.step(loss=loss, probe=lambda: F.cross_entropy(net(x), y))
    assert tuner.last_step.worsening == 0


@pytest.mark.parametrize("switch", ["train", "eval"])
@pytest.mark.parametrize("preset", [None, "paper-code"])
def test_training_flags_are_kept_one_by_one(switch, preset, net, batch):
    x, y = batch
    net.norm.eval()
    flags = {name: module.training for name, module in net.named_modules()}
    tuner = SGDSA(net, grid(lr=[0.1]), preset=preset, batch_size=16)

    def objective():
        getattr(net, switch)()
        return F.cross_entropy(net(x), y)

    tuner.step(lambda: F.cross_entropy(net(x), y), objective=objective)
    assert {name: module.training for name, module in net.named_modules()} == flags
    assert not net.norm.training


def test_a_train_method_of_the_users_own_comes_back(net, batch):
    x, y = batch
    net.train = own = lambda mode=True: net
    tuner = SGDSA(net, preset="paper-code", batch_size=16)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    assert net.train is own
    assert "train" not in net.norm.__dict__


def test_evaluation_mode_reads_the_running_statistics_and_leaves_them(make_net, batch, bits):
    x, y = batch
    net = make_net()
    tuner = SGDSA(net, grid(lr=[0.1]), preset="paper-code", batch_size=16)
    twin = copy.deepcopy(net)
    torch.manual_seed(0)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    torch.manual_seed(0)
    twin(x)
    assert bits(dict(net.named_buffers())) == bits(dict(twin.named_buffers()))
    with torch.no_grad():
        assert tuner.last_step.loss == F.cross_entropy(twin.eval()(x), y).item()
        assert tuner.last_step.new_loss == F.cross_entropy(net.eval()(x), y).item()


class Replacing(nn.Module):
    """Replaces its buffer, makes another one of another shape, has one that is expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("seen", torch.zeros(0))
        self.register_buffer("flat", torch.ones(1).expand(3))
        self.register_buffer("none", None)

    def forward(self, x):
        self.mean = 0.5 * self.mean + x
        self.seen = torch.cat([self.seen, x[:1]])
        self.none = x
        return (self.weight * x * self.flat).square().sum()


def test_buffers_that_are_replaced_are_put_back():
    model = Replacing()
    tuner = SGDSA(model, grid(lr=[0.1]), temperature=math.inf)
    for step in range(1, 4):
        tuner.step(lambda: model(torch.ones(3)))
        assert model.seen.shape == (step,)
        assert torch.equal(model.mean, torch.full((3,), 2 - 0.5 ** (step - 1)))


@pytest.mark.parametrize("outside", [True, False])
def test_an_autocast_does_not_answer_with_the_weights_of_before(outside, make_net, make_batches):
    """Casts of weights are cached until the autocast ends, even if the weights have changed."""
    batches = make_batches(6)

    def worsenings(outside):
        net = make_net()
        tuner = SGDSA(net, grid(lr=[0.5]), temperature=math.inf)
        torch.manual_seed(0)
        found = []
        for x, y in batches:
            cast = torch.autocast("cpu", dtype=torch.bfloat16)

            def loss_of(x=x, y=y, cast=cast):
                if outside:
                    return F.cross_entropy(net(x), y)
                with cast:
                    return F.cross_entropy(net(x), y)

            if outside:
                with cast:
                    tuner.step(loss_of)
            else:
                tuner.step(loss_of)
            found.append(tuner.last_step.worsening)
        return found

    assert worsenings(outside) == worsenings(False)
    assert 0 not in worsenings(outside)


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_sharded_weights_are_gathered_anew_after_a_rejection(optimizer, process_group):
    """After a forward without gradients FSDP keeps the gathered weights: the rejected ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    sharded = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    moves = []
    for model in (plain, sharded):
        if optimizer == "sgd":
            base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        else:
            base = torch.optim.AdamW(model.parameters())
        tuner = EmbeddedTuner(
            base, model=model, neighborhood=grid(lr=[20.0, 0.01]), temperature=0.0
        )
        for _ in range(10):
            tuner.step(lambda model=model: F.cross_entropy(model(x), y))
            moves.append(tuner.last_step)
    assert moves[:10] == moves[10:]
    assert {info.accepted for info in moves} == {True, False}


@pytest.mark.parametrize("cls", [SGDSA, StochasticSA])
def test_a_deleted_optimizer_leaves_no_hook(cls, net, loss_of):
    optimizer = cls(net)
    optimizer.step(loss_of)
    copied_net, copied = copy.deepcopy((net, optimizer))
    assert len(net._forward_pre_hooks) == len(copied_net._forward_pre_hooks) == 1
    del optimizer
    assert not net._forward_pre_hooks
    assert copied_net._forward_pre_hooks
    del copied
    assert not copied_net._forward_pre_hooks
    assert not net._forward_pre_hooks_with_kwargs


def test_whatever_the_closure_enables_no_graph_is_built(net, batch):
    """A graph that nobody uses would cost the memory that skipping backward was to save."""
    x, y = batch
    tuner = SGDSA(net)

    @torch.enable_grad()
    def closure():
        with torch.set_grad_enabled(True), torch.enable_grad():
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

    tuner.step(closure)
    assert net.graphs == 1
    assert torch.is_grad_enabled()


def test_gradients_in_a_probe_are_zeros_after_its_backward_and_none_before(net, batch):
    x, y = batch
    seen = []
    tuner = SGDSA(net, grid(lr=[0.1]))

    def closure():
        tuner.zero_grad()
        seen.append(net.last.bias.grad)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        seen.append(net.last.bias.grad.norm().item())
        return loss

    tuner.step(closure)
    before, norm, before_in_probe, norm_in_probe = seen
    assert before is before_in_probe is None
    assert norm_in_probe == 0 < norm
    assert net.last.bias.grad.norm().item() == norm
