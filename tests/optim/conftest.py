"""A small net with everything that a second evaluation can disturb, and exact comparisons."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """Linear, BatchNorm, dropout, linear: buffers that move, masks that are drawn."""

    def __init__(self, features: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(features, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(12, classes)
        self.forwards = 0
        self.graphs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        out = self.last(self.drop(self.norm(self.first(x)).relu()))
        self.graphs += out.requires_grad
        return out


def _bits(value):
    """Turn tensors, also nested ones, into something that is equal iff every bit is equal."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.is_sparse else value.detach()
        flat = dense.resolve_conj().contiguous().reshape(-1)
        return str(value.dtype), tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: _bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    return copy.deepcopy(value)


def _picture(model, optimizer):
    """Everything that a step may change, bit for bit, and the stream of random numbers."""
    base = getattr(optimizer, "base", optimizer)
    return {
        "weights": _bits(list(model.parameters())),
        "gradients": _bits([p.grad for p in model.parameters()]),
        "buffers": _bits(dict(model.named_buffers())),
        "optimizer": _bits(base.state_dict()),
        "random": _bits(torch.get_rng_state()),
    }


def _loss_after(net, base, setting, loss_of, start):
    """Work out on copies what a step of the base with a setting makes of the loss of a net."""
    twin, now = copy.deepcopy(net), torch.get_rng_state()
    optimizer = type(base)(twin.parameters(), lr=0.1)
    optimizer.load_state_dict(copy.deepcopy(base.state_dict()))
    for group in optimizer.param_groups:
        group.update(setting)
    torch.set_rng_state(start)  # dropout repeats its mask; BatchNorm uses the minibatch alone
    loss_of(twin).backward()
    optimizer.step()
    torch.set_rng_state(start)
    with torch.no_grad():
        value = loss_of(twin).item()
    torch.set_rng_state(now)
    return value


def _loss_function(net):
    """The function that a user writes: the loss of one minibatch."""
    return lambda x, y: F.cross_entropy(net(x).float(), y)


def _by_closure(opt, loss_of):
    return lambda x, y: opt.step(lambda: loss_of(x, y))


def _by_closure_with_backward(opt, loss_of):
    def step(x, y):
        def closure():
            opt.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            return loss

        return opt.step(closure)

    return step


def _by_record(opt, loss_of):
    compute_loss = opt.record(loss_of)

    def step(x, y):
        compute_loss(x, y).backward()
        loss = opt.step()
        opt.zero_grad()
        return loss

    return step


_WAYS = {
    "closure": _by_closure,
    "closure with backward": _by_closure_with_backward,
    "record": _by_record,
}


@pytest.fixture(scope="session")
def ways():
    """Functions that make, of an optimizer and a loss, the function that does one step."""
    return _WAYS


@pytest.fixture(params=_WAYS)
def way(request):
    """Each of the ways."""
    return _WAYS[request.param]


@pytest.fixture(scope="session")
def loss_function():
    return _loss_function


@pytest.fixture(autouse=True)
def _same_random_numbers():
    torch.manual_seed(2019)


@pytest.fixture(scope="session")
def make_net():
    """Build the net; the same weights for the same seed."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float32) -> Net:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Net().to(dtype)

    return make


@pytest.fixture(scope="session")
def make_batches():
    """Make minibatches that a net can learn something from."""

    def make(count: int, *, size: int = 16, seed: int = 1, dtype: torch.dtype = torch.float32):
        generator = torch.Generator().manual_seed(seed)
        teacher = torch.randn(6, 3, generator=generator)
        inputs = [torch.randn(size, 6, generator=generator) for _ in range(count)]
        return [(x.to(dtype), (x @ teacher).argmax(1)) for x in inputs]

    return make


@pytest.fixture(scope="session")
def bits():
    return _bits


@pytest.fixture(scope="session")
def picture():
    return _picture


@pytest.fixture(scope="session")
def loss_after():
    return _loss_after


@pytest.fixture
def net(make_net):
    return make_net()


@pytest.fixture
def batch(make_batches):
    return make_batches(1)[0]


@pytest.fixture
def loss_of(net, batch):
    """The loss of the one net on the one minibatch."""
    x, y = batch
    return lambda: F.cross_entropy(net(x), y)
