"""Models and bases of every kind in the plain loop: arms and rejections are exact."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Two layers and other parts by name, and what the forward makes of them."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)
        for name, part in parts.items():
            if isinstance(part, nn.Parameter | nn.Module):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x):
        return self.function(self, x)


def layers(*inner):
    return nn.Sequential(nn.Linear(6, 8), *inner, nn.Linear(8, 1))


def matrices():
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))


def tied_weights():
    net = layers(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    net[3].weight = net[1].weight
    return net


def partly_in_eval_mode():
    net = layers(nn.BatchNorm1d(8), nn.Dropout(0.3), nn.BatchNorm1d(8))
    net[1].eval().weight.requires_grad_(False)
    return net


def images():
    inner = nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    net = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *inner, nn.Linear(48, 1))
    return net.to(memory_format=torch.channels_last)


def complex_weights():
    wave = nn.Parameter(torch.randn(6, 8, dtype=torch.cfloat))
    return Net(lambda net, x: net.last((x.to(torch.cfloat) @ net.wave).abs()), wave=wave)


def checkpointed(reentrant):
    inner = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh())

    def forward(net, x):
        return net.last(checkpoint(net.inner, net.first(x), use_reentrant=reentrant))

    return Net(forward, inner=inner)


def state_in_a_buffer(net, x):
    hidden = net.cell(x, net.hidden)
    net.hidden = hidden.detach()
    return net.last(hidden)


def state_in_an_attribute(net, x):
    net.hidden = net.cell(x, None if net.hidden is None else net.hidden.detach())
    return net.last(net.hidden)


def state_in_a_tuple(net, x):
    hidden, cell = net.cell(x, net.hidden)
    net.hidden = hidden.detach(), cell.detach()
    return net.last(hidden)


def states_in_a_list(net, x):
    """One for each layer, in a list that is written in place and that somebody else holds too."""
    for number, cell in enumerate((net.cell, net.upper)):
        x, inner = cell(x, net.hidden[number])
        net.hidden[number] = x.detach(), inner.detach()
    assert net.held[0] is net.hidden
    return net.last(x)


def outputs_in_a_list(net, x):
    """Made in the first forward, then longer by one in each; its first tensor is written too."""
    hidden = net.first(x).tanh()
    if not hasattr(net, "hidden"):
        net.hidden = []
    net.hidden.append(hidden.detach().mean(0))
    net.hidden[0].lerp_(net.hidden[-1], 0.1)
    return net.last(hidden - torch.stack(net.hidden).mean(0))


def carrying(forward, cell, hidden=None, **others):
    net = Net(forward, cell=cell, **others)
    net.hidden = hidden
    net.held = {0: hidden}
    return net


def mean_in_an_attribute(net, x):
    """Made in the first forward, then written in place; it is no buffer."""
    if not hasattr(net, "mean"):
        net.mean = torch.zeros(8)
    hidden = net.first(x).tanh()
    net.mean.lerp_(hidden.detach().mean(0), 0.1)
    return net.last(hidden - net.mean)


def oddities(net, x):
    """Parameters of every shape; buffers that are absent, expanded, written and replaced."""
    net.count += 1
    net.mean = 0.9 * net.mean + 0.1 * x.mean(0)
    hidden = F.dropout(net.first(x - net.mean), 0.3, net.training)
    return net.last(hidden) * net.scale + (net.strided * net.mask).sum() + net.empty.sum()


def momentum_encoder(net, x):
    """As in MoCo and BYOL: the forward moves parameters that are frozen."""
    with torch.no_grad():
        for key, query in zip(net.key.parameters(), net.query.parameters(), strict=True):
            key.mul_(0.9).add_(query, alpha=0.1)
        target = net.key(x + 0.1)
    return net.query(x) + target


def encoders():
    query = layers(nn.ReLU())
    key = copy.deepcopy(query).requires_grad_(False)
    return Net(momentum_encoder, query=query, key=key)


def encoders_in_foreign_memory():
    net = encoders()
    for p in net.key.parameters():
        p.data = torch.from_numpy(p.detach().numpy().copy())
    return net


def growing_bank(net, x):
    hidden = net.first(x).tanh()
    net.bank = torch.cat([net.bank, hidden.detach()])[-400:]
    return net.last(hidden - net.bank.mean(0))


def cache_made_late(net, x):
    if net.cache is None:
        net.cache = x.detach().abs().mean(0)
    return net.last(net.first(x / net.cache))


def experts(net, x):
    """Routes by its weights, and skips a layer by chance: who has a gradient depends on both."""
    chosen = net.routes(x.mean(0)).argmax().item()
    hidden = net.first(x) if torch.rand(()) < 0.5 else net.other(x)
    return net.last(hidden) * net.scales[chosen]


def quantization_aware():
    net = nn.Sequential(quantization.QuantStub(), *layers(nn.ReLU())).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is about to be moved to another package
        net.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        return quantization.prepare_qat(net)


def hooks():
    net = layers(nn.Tanh())
    net.register_buffer("seen", torch.zeros(8))

    def note(_, __, out):
        net.seen.mul_(0.9).add_(out.detach().mean(0))

    net[0].register_forward_hook(note)
    net.register_forward_hook(lambda net, _, out: out + net.seen.mean())
    net[0].weight.register_hook(lambda gradient: gradient * (torch.arange(6) % 2))
    prune.l1_unstructured(net[2], "weight", 0.5)
    return net


def alias():
    net = Net(lambda net, x: net.last(net.first(x).tanh()))
    net.register_buffer("view", net.first.weight.data)
    return net


class Noisy(torch.optim.SGD):
    """Draws numbers in its step."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(0.01 * group["lr"] * torch.randn_like(p))


def graph():
    """A sparse buffer, and a number of steps that is no weight."""
    steps = nn.Parameter(torch.ones(1, dtype=torch.int64), requires_grad=False)
    adjacency = torch.eye(16).to_sparse()
    return Net(
        lambda net, x: net.last(torch.sparse.mm(net.adjacency, net.first(x))),
        adjacency=adjacency,
        steps=steps,
    )


def embedding():
    def forward(net, x):
        return net.table((x > 0).long() + 2 * torch.arange(6)).mean(1)

    net = Net(forward, table=nn.Embedding(12, 1, sparse=True))
    net.first = net.last = None
    return net


MODELS = {
    "dropout": lambda: layers(nn.Dropout(0.4)),
    "tied weights": tied_weights,
    "weight_norm": lambda: layers(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh()),
    "spectral_norm": lambda: layers(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Tanh()),
    "orthogonal": lambda: layers(parametrizations.orthogonal(nn.Linear(8, 8)), nn.Tanh()),
    "BatchNorm momentum=None": lambda: layers(nn.BatchNorm1d(8, momentum=None), nn.Tanh()),
    "partly in eval mode": partly_in_eval_mode,
    "bfloat16": lambda: layers(nn.Tanh()).bfloat16(),
    "complex": complex_weights,
    "channels_last": images,
    "checkpoint": lambda: checkpointed(reentrant=False),
    "reentrant checkpoint": lambda: checkpointed(reentrant=True),
    "state in a buffer": lambda: Net(
        state_in_a_buffer, cell=nn.GRUCell(6, 8), hidden=torch.zeros(16, 8)
    ),
    "state in an attribute": lambda: carrying(state_in_an_attribute, nn.GRUCell(6, 8)),
    "state in a tuple": lambda: carrying(state_in_a_tuple, nn.LSTMCell(6, 8)),
    "states in a list": lambda: carrying(
        states_in_a_list, nn.LSTMCell(6, 8), [None, None], upper=nn.LSTMCell(8, 8)
    ),
    "outputs in a list": lambda: Net(outputs_in_a_list),
    "oddities": lambda: Net(
        oddities,
        scale=nn.Parameter(torch.tensor(0.7)),
        strided=nn.Parameter(torch.linspace(0, 1, 12)[::3]),
        empty=nn.Parameter(torch.zeros(0, 3)),
        unused=nn.Parameter(torch.ones(2)),
        count=torch.zeros((), dtype=torch.int64),
        mean=torch.zeros(6),
        mask=torch.ones(1).expand(4),
        nothing=None,
    ),
    "mean in an attribute": lambda: Net(mean_in_an_attribute),
    "momentum encoder": encoders,
    "momentum encoder in NumPy's memory": encoders_in_foreign_memory,
    "growing bank": lambda: Net(growing_bank, bank=torch.zeros(0, 8)),
    "buffer that is a weight": alias,
    "cache made late": lambda: Net(cache_made_late, cache=None),
    "experts": lambda: Net(
        experts,
        routes=nn.Linear(6, 3),
        other=nn.Linear(6, 8),
        scales=nn.ParameterList(nn.Parameter(torch.ones(())) for _ in range(3)),
    ),
    "quantization-aware": quantization_aware,
    "hooks and pruning": hooks,
}
BASES = {
    "Muon": (matrices, torch.optim.Muon, {}),
    "Adafactor": (matrices, torch.optim.Adafactor, {}),
    "Rprop": (matrices, torch.optim.Rprop, {}),
    "ASGD": (matrices, torch.optim.ASGD, {}),
    "SGD nesterov": (matrices, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD of sparse gradients": (embedding, torch.optim.SGD, {}),
    "SparseAdam": (embedding, torch.optim.SparseAdam, {}),
    "noise": (matrices, Noisy, {}),
    "AdamW fused": (matrices, torch.optim.AdamW, {"fused": True}),
}


def plain_loop(make, base=torch.optim.AdamW, *, frozen_too=False, **options):
    """Return the plain loop over a model."""

    def loop(run):
        model = make()
        given = [p for p in model.parameters() if p.requires_grad or frozen_too]
        opt = run.tuned(base(given, lr=run.rate, **options), model)
        dtype = torch.bfloat16 if given[0].dtype == torch.bfloat16 else torch.float32
        compute_loss = run.record(lambda x, y: F.mse_loss(model(x.to(dtype)).float(), y))
        for x, y in run.batches():
            loss = compute_loss(x, y)
            loss.backward()
            run.step(loss)
            opt.zero_grad()

    return loop


@pytest.mark.parametrize("name", MODELS)
def test_every_arm_is_the_base_at_its_rate(name, assert_exact):
    assert_exact(plain_loop(MODELS[name]))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # reentrant
@pytest.mark.parametrize("name", MODELS)
def test_a_rejection_is_a_forward_and_backward(name, assert_undone):
    assert_undone(plain_loop(MODELS[name]))


@pytest.mark.parametrize("name", BASES)
def test_every_base(name, assert_exact):
    make, base, options = BASES[name]
    assert_exact(plain_loop(make, base, **options))


@pytest.mark.parametrize("make", [encoders, graph])
def test_frozen_parameters_that_the_base_is_given_too(make, assert_exact, assert_undone):
    loop = plain_loop(make, frozen_too=True)
    assert_exact(loop)
    assert_undone(loop)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # by torch itself
def test_a_compiled_model(assert_exact):
    assert_exact(plain_loop(lambda: torch.compile(layers(nn.BatchNorm1d(8), nn.Tanh()))))
