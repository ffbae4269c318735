"""Models and bases of every kind in the plain loop: arms and rejections are exact."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Modules and tensors by name, and what the forward makes of them."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def layers(*inner, width=8, bias=True):
    return nn.Sequential(nn.Linear(6, width, bias=bias), *inner, nn.Linear(width, 1, bias=bias))


def tied_weights():
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 1))
    net[2].weight = net[0].weight
    return net


def partly_in_eval_mode():
    net = layers(nn.BatchNorm1d(8), nn.Dropout(0.3), nn.BatchNorm1d(8))
    net[1].eval()
    net[1].weight.requires_grad_(False)
    return net


def complex_weights():
    def forward(net, x):
        return net.last((x.to(torch.complex64) @ net.wave).abs())

    return Net(forward, wave=nn.Parameter(torch.randn(6, 8, dtype=torch.cfloat)), last=layers()[1])


def images():
    net = nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 1),
    )
    return net.to(memory_format=torch.channels_last)


def embedding():
    def forward(net, x):
        return net.table((x > 0).long() + 2 * torch.arange(6)).mean(1)

    return Net(forward, table=nn.Embedding(12, 1, sparse=True))


def checkpointed(*, reentrant):
    def forward(net, x):
        return net.last(checkpoint(net.inner, net.first(x), use_reentrant=reentrant))

    inner = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh())
    return Net(forward, first=nn.Linear(6, 8), inner=inner, last=nn.Linear(8, 1))


def state_in_a_buffer():
    def forward(net, x):
        hidden = net.cell(x, net.hidden)
        net.hidden = hidden.detach()
        return net.last(hidden)

    return Net(forward, cell=nn.GRUCell(6, 8), last=nn.Linear(8, 1), hidden=torch.zeros(16, 8))


def attention():
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 6)), layer, nn.Flatten(), nn.Linear(6, 1))


def momentum_encoder():
    """As in MoCo and BYOL: the forward moves parameters that are frozen."""

    def forward(net, x):
        with torch.no_grad():
            for key, query in zip(net.key.parameters(), net.query.parameters(), strict=True):
                key.mul_(0.9).add_(query, alpha=0.1)
            target = net.key(x + 0.1)
        return net.query(x) + target

    query = layers(nn.ReLU())
    return Net(forward, query=query, key=copy.deepcopy(query).requires_grad_(False))


def growing_bank():
    def forward(net, x):
        hidden = net.first(x).tanh()
        net.bank = torch.cat([net.bank, hidden.detach()])[-400:]
        return net.last(hidden - net.bank.mean(0))

    return Net(forward, first=nn.Linear(6, 8), last=nn.Linear(8, 1), bank=torch.zeros(0, 8))


def cache_made_late():
    def forward(net, x):
        if net.cache is None:
            net.cache = x.detach().abs().mean(0)
        return net.last(x / net.cache)

    net = Net(forward, last=nn.Linear(6, 1))
    net.register_buffer("cache", None)
    return net


def quantization_aware():
    from torch.ao import quantization

    net = nn.Sequential(
        quantization.QuantStub(), *layers(nn.ReLU()), quantization.DeQuantStub()
    ).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to move it to another package
        net.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        return quantization.prepare_qat(net)


def pruned():
    net = layers(nn.Tanh())
    prune.l1_unstructured(net[0], "weight", 0.5)
    return net


def gradients_in_a_hook():
    net = layers(nn.Tanh())
    net[0].weight.register_hook(lambda gradient: gradient * (torch.arange(6) % 2))
    return net


def statistics_in_a_hook():
    net = layers(nn.Tanh())
    net.register_buffer("seen", torch.zeros(8))

    def note(_, __, out):
        net.seen.mul_(0.9).add_(out.detach().mean(0))

    net[0].register_forward_hook(note)
    net.register_forward_hook(lambda net, _, out: out + net.seen.mean())
    return net


MODELS = {
    "plain": lambda: layers(nn.Tanh()),
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
    "state in a buffer": state_in_a_buffer,
    "attention": attention,
    "lazy layers": lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(1)),
    "momentum encoder": momentum_encoder,
    "growing bank": growing_bank,
    "cache made late": cache_made_late,
    "quantization-aware": quantization_aware,
    "statistics in a hook": statistics_in_a_hook,
    "gradients in a hook": gradients_in_a_hook,
    "pruned": pruned,
}


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def plain_loop(make, base=torch.optim.AdamW, given=trainable, **options):
    """Return the plain loop over a model."""

    def loop(run):
        model = make()
        opt = run.tuned(base(given(model), lr=run.rate, **options), model)
        dtype = torch.bfloat16 if model_is_narrow(model) else torch.float32
        compute_loss = run.record(lambda x, y: F.mse_loss(model(x.to(dtype)).float(), y))
        for x, y in run.batches():
            loss = compute_loss(x, y)
            loss.backward()
            run.step(loss)
            opt.zero_grad()

    return loop


def model_is_narrow(model):
    first = next(model.parameters())
    return not nn.parameter.is_lazy(first) and first.dtype == torch.bfloat16


@pytest.mark.parametrize("name", MODELS)
def test_every_arm_is_the_base_at_its_rate(name, assert_exact):
    assert_exact(plain_loop(MODELS[name]))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # reentrant
@pytest.mark.parametrize("name", MODELS)
def test_a_rejection_is_a_forward_and_backward(name, assert_undone):
    assert_undone(plain_loop(MODELS[name]))


def test_a_momentum_encoder_that_the_base_is_given_too(assert_exact, assert_undone):
    loop = plain_loop(momentum_encoder, given=lambda model: list(model.parameters()))
    assert_exact(loop)
    assert_undone(loop)


def matrices():
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))


BASES = {
    "Muon": (matrices, torch.optim.Muon, {}),
    "Adafactor": (matrices, torch.optim.Adafactor, {}),
    "Rprop": (matrices, torch.optim.Rprop, {}),
    "ASGD": (matrices, torch.optim.ASGD, {}),
    "SGD nesterov": (matrices, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD of sparse gradients": (embedding, torch.optim.SGD, {}),
    "SparseAdam": (embedding, torch.optim.SparseAdam, {}),
    "AdamW fused": (matrices, torch.optim.AdamW, {"fused": True}),
}


@pytest.mark.parametrize("name", BASES)
def test_every_base(name, assert_exact):
    make, base, options = BASES[name]
    assert_exact(plain_loop(make, base, **options))


def test_a_gradient_penalty(assert_exact, assert_undone):
    def loop(run):
        model = layers(nn.Tanh())
        opt = run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)

        def penalized(x, y):
            x = x.clone().requires_grad_()
            out = model(x)
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            return F.mse_loss(out, y) + slope.square().mean()

        compute_loss = run.record(penalized)
        for x, y in run.batches():
            loss = compute_loss(x, y)
            loss.backward()
            run.step(loss)
            opt.zero_grad()

    assert_exact(loop)
    assert_undone(loop)


@pytest.mark.slow
def test_a_compiled_model_with_minibatches_of_several_sizes(assert_exact):
    def loop(run):
        model = torch.compile(layers(nn.BatchNorm1d(8), nn.Tanh()), dynamic=True)
        opt = run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)
        compute_loss = run.record(lambda x, y: F.mse_loss(model(x), y))
        for number, (x, y) in enumerate(run.batches()):
            loss = compute_loss(x[number % 7 :], y[number % 7 :])
            loss.backward()
            run.step(loss)
            opt.zero_grad()

    assert_exact(loop)
