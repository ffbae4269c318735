"""Every optimizer that torch ships, in every configuration that torch tests, as the base.

The configurations and the constructor errors come from torch's own conformance data.
"""

import copy
import math
from collections import defaultdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)

from annealtune import EmbeddedTuner, Setting, grid

UNFIT = {
    "LBFGS": "its step needs a closure: refused, see test_bad_arguments.py",
    "SparseAdam": "it takes sparse gradients only: refused, see test_bad_arguments.py",
}
INFOS = [info for info in optim_db if info.name not in UNFIT]


def test_all_of_torch_is_covered():
    assert {info.name for info in optim_db} == {info.name for info in INFOS} | set(UNFIT)
    assert len(INFOS) >= 12


def named(values):
    return [
        pytest.param(info, entry, id=f"{info.name}-{number}-{entry.desc.replace(' ', '_')}")
        for info in INFOS
        for number, entry in enumerate(values(info))
    ]


def all_configurations(info):
    return _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, info)


CONFIGURATIONS = [
    param
    for param in named(all_configurations)
    if not param.values[1].kwargs.get("maximize")
    and not param.values[1].kwargs.get("differentiable")
]


class Matrices(nn.Module):
    """Matrices only: some optimizers take nothing else."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Parameter(torch.randn(3, 4, generator=generator))
        self.second = nn.Parameter(torch.randn(4, 2, generator=generator))

    def forward(self, x):
        return (torch.tanh(x @ self.first) @ self.second).square().mean()


X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


def build(info, entry, model):
    """The base with two groups, and the rate that it has in this configuration."""
    groups = [{"params": [model.first]}, {"params": [model.second], "weight_decay": 0.05}]
    if info.name == "Rprop":
        del groups[1]["weight_decay"]
    kwargs = copy.deepcopy(entry.kwargs)
    base = info.optim_cls(groups, **kwargs)
    return base, float(base.param_groups[0]["lr"])


def tuned(info, entry):
    model = Matrices()
    base, rate = build(info, entry, model)
    neighborhood = grid(lr=[rate])
    return model, EmbeddedTuner(base, model, neighborhood=neighborhood, temperature=math.inf)


def steps(model, optimizer, count):
    for _ in range(count):
        if isinstance(optimizer, EmbeddedTuner):
            optimizer.step(lambda: model(X))
        else:
            optimizer.zero_grad()
            model(X).backward()
            optimizer.step()


@pytest.mark.parametrize(("info", "entry"), CONFIGURATIONS)
def test_alone_in_the_neighborhood_it_is_itself(info, entry, picture):
    plain = Matrices()
    base, _ = build(info, entry, plain)
    steps(plain, base, 4)
    model, tuner = tuned(info, entry)
    steps(model, tuner, 4)
    assert tuner.moves.total.accepted == 4
    assert picture(model, tuner) == picture(plain, base)


@pytest.mark.parametrize(("info", "entry"), CONFIGURATIONS)
def test_a_rejection_leaves_no_trace(info, entry, picture):
    model, tuner = tuned(info, entry)
    for taken in range(3):  # state absent at first, then present
        twin = copy.deepcopy(model)
        twin.zero_grad()
        twin(X).backward()
        expected = picture(twin, tuner)
        here = model.first.detach().clone()
        tuner.step(lambda here=here: model(X) * (1 if torch.equal(model.first, here) else math.nan))
        assert not tuner.last_step.accepted
        assert picture(model, tuner) == expected
        steps(model, tuner, 1)
        assert tuner.moves.total == (2 * taken + 2, tuner.moves.total.improved, taken + 1)


def constructor_errors(info):
    return [
        error.optimizer_error_input
        for error in info.optim_error_inputs_func("cpu", torch.float32)
        if error.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR
        and error.optimizer_error_input.kwargs
        # Tensors in H become numbers; a negative rate is no Setting.
        and "tensor" not in repr(error.optimizer_error_input.kwargs)
        and error.optimizer_error_input.kwargs.get("lr", 0) >= 0
    ]


@pytest.mark.parametrize(("info", "entry"), named(constructor_errors))
def test_settings_that_its_constructor_refuses_are_dropped(info, entry):
    model = Matrices()
    base = info.optim_cls([model.first, model.second])
    bad = Setting({"lr": 0.1, **entry.kwargs})
    good = Setting({"lr": 0.1, **{name: base.defaults[name] for name in bad if name != "lr"}})
    tuner = EmbeddedTuner(base, model, neighborhood=[good, bad])
    assert tuner.neighborhood.dropped == (bad,)
    assert list(tuner.neighborhood) == [good]
    with pytest.raises(ValueError, match="lr"):
        EmbeddedTuner(base, model, neighborhood=[bad])


class Lookahead(torch.optim.Optimizer):
    """As it is usually written: an optimizer inside, whose state is not that of the outside."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups
        self.defaults = inner.defaults
        self.state = defaultdict(dict)
        self._optimizer_step_pre_hooks = {}
        self._optimizer_step_post_hooks = {}

    def step(self, closure=None):
        for each in self.inner if isinstance(self.inner, list | tuple) else [self.inner]:
            each.step()


def several(net):
    """An optimizer for each of two parts, as those around Muon are written."""
    parts = list(net.parameters())
    base = Lookahead(torch.optim.SGD(parts, lr=0.1))
    base.inner = [torch.optim.SGD(half, lr=0.1, momentum=0.9) for half in (parts[:1], parts[1:])]
    return base


class Plain(torch.optim.SGD):
    def step(self, closure=None):
        self.note()
        super().step()

    def note(self):
        pass


class Counting(Plain):
    steps = 0

    def note(self):
        self.steps += 1


class Remembering(Plain):
    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.slow = {
            "weights": [p.detach().clone() for g in self.param_groups for p in g["params"]]
        }

    def note(self):
        for weight in self.slow["weights"]:
            weight.data.add_(1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda net: Lookahead(torch.optim.Adam(net.parameters())), "inner.state"),
        (several, "inner.state"),
        (lambda net: Counting(net.parameters(), lr=0.1), "steps"),
        (lambda net: Remembering(net.parameters(), lr=0.1), "slow"),
    ],
)
def test_state_that_cannot_be_undone_is_refused_at_the_first_step(make, name, net, batch, bits):
    x, y = batch
    tuner = EmbeddedTuner(make(net), net, neighborhood=grid(lr=[0.1]), temperature=math.inf)
    before = bits(list(net.parameters()))
    with pytest.raises(TypeError, match=rf"base=.*{name}"):
        tuner.step(lambda: F.cross_entropy(net(x), y))
    assert bits(list(net.parameters())) == before
    assert tuner.moves.total.tried == 0
