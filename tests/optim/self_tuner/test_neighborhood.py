"""Settings of an H as arms: any option of the base, and what stays of the winner."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner, grid

LENGTH = 400


def quadratic(weight):
    return (weight * torch.tensor([1.0, 10.0])).square().sum()


@pytest.mark.parametrize(
    ("make", "settings", "best"),
    [
        # On a flat valley momentum is faster; a huge weight decay pulls away from the minimum.
        (torch.optim.SGD, grid(momentum=[0.9, 0.0], lr=[1e-4]), {"momentum": 0.9}),
        (torch.optim.AdamW, grid(weight_decay=[30.0, 0.0], lr=[1e-2]), {"weight_decay": 0.0}),
        (torch.optim.SGD, grid(lr=[1e-6, 4e-3], momentum=[0.0]), {"lr": 4e-3}),
    ],
)
def test_the_options_of_the_winner_stay_in_the_groups(make, settings, best, race_through):
    target = torch.tensor([1.0, 0.5])
    weight = nn.Parameter(torch.zeros(2))
    model = nn.ParameterList([weight])
    opt = SelfTuner(make([weight], lr=1e-4), model, neighborhood=settings, warmup=0)

    def step(*_):
        return opt.step(lambda: quadratic(weight - target))

    race_through(opt, step, [(None, None)] * 200)
    for _ in range(20):
        step()
    group = opt.param_groups[0]
    assert {option: group[option] for option in best} == best
    assert opt.lr == group["lr"] == settings[opt.races[0].winner]["lr"]


def test_an_h_without_rates_races_at_the_centre(make_run, make_batches, race_through):
    betas = [(0.9, 0.999), (0.5, 0.9)]
    _, opt, step = make_run("adamw", neighborhood=grid(betas=betas), around=0.02, warmup=0)
    race_through(opt, step, make_batches(300))
    info = opt.races[0]
    assert [dict(s) for s in info.settings] == [{"lr": 0.02, "betas": b} for b in betas]
    assert [g["lr"] for g in opt.param_groups] == pytest.approx([0.02, 0.002])
    assert {g["betas"] for g in opt.param_groups} == {betas[info.winner]}


def test_the_incumbent_has_the_rate_of_the_largest_group():
    """It wins where an objective tells nothing."""
    body, head = (nn.Parameter(torch.ones(2)) for _ in range(2))
    base = torch.optim.SGD([{"params": [body], "lr": 0.001}, {"params": [head]}], lr=0.01)
    opt = SelfTuner(
        base,
        nn.ParameterList([body, head]),
        neighborhood=grid(lr=[0.001, 0.01, 0.1]),
        objective=lambda: float("inf"),
    )

    def race():
        while not opt.races:
            opt.step(lambda: quadratic(body + head - 1))

    with pytest.warns(UserWarning, match="objective"):
        race()
    assert opt.races[0].settings[opt.races[0].winner]["lr"] == 0.01


def test_ratios_and_scales_of_groups_are_kept_throughout(make_net, make_batches):
    net = make_net()
    groups = [
        {"params": net.first.parameters(), "lr": 0.02, "lr_scale": 0.5},
        {"params": net.norm.parameters(), "lr": 0.0},
        {"params": net.last.parameters()},
    ]
    opt = SelfTuner(torch.optim.SGD(groups, lr=0.1), net, total_steps=LENGTH)
    frozen = [p.clone() for p in net.norm.parameters()]
    for x, y in make_batches(150):
        announced, is_plain = opt.lr, not opt.is_racing
        opt.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
        rates = [group["lr"] for group in opt.param_groups]
        assert rates == pytest.approx([rates[2] * 0.2 * 0.5, 0.0, rates[2]])
        if is_plain:
            assert rates[2] == announced
    assert not opt.is_racing
    assert all(map(torch.equal, frozen, net.norm.parameters()))


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        ("before", {}),
        ("during", {"offload": True}),
        ("during", {"neighborhood": grid(momentum=[0.5, 0.9])}),
        ("after", {}),
    ],
)
def test_groups_that_are_added_keep_their_ratio_and_are_trained(
    make_net, make_batches, moment, options
):
    net, late = make_net(), nn.Linear(6, 3)
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    opt = SelfTuner(base, net, total_steps=LENGTH, **options)
    started = [p.clone() for p in late.parameters()]
    added = False
    for number, (x, y) in enumerate(make_batches(200)):
        due = {"before": number == 0, "during": number == 4, "after": not opt.is_racing}[moment]
        if due and not added:
            assert (moment == "after") != opt.is_racing
            opt.add_param_group({"params": list(late.parameters()), "lr": 0.4})
            added = True
        opt.step(lambda: F.cross_entropy(net(x) + late(x), y))  # noqa: B023
        if added:
            first, second = opt.param_groups
            assert second["lr"] == pytest.approx(4 * first["lr"])
            assert second["momentum"] == first["momentum"]
    assert not opt.is_racing
    assert not any(map(torch.equal, started, late.parameters()))
    assert all(p.isfinite().all() for p in late.parameters())


def test_ratios_of_added_groups_are_saved(make_net, make_batches, trained):
    """Whoever loads builds its optimizer with all groups at once."""
    batches, ends = make_batches(120), []
    net, late = make_net(), nn.Linear(6, 3)
    start = {name: p.clone() for name, p in late.state_dict().items()}
    for at in (None, 3, 60):
        torch.manual_seed(0)
        net = make_net()
        late.load_state_dict(start)
        opt = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.1), net, total_steps=LENGTH)
        opt.add_param_group({"params": list(late.parameters()), "lr": 0.4})
        for number, (x, y) in enumerate(batches):
            if number == at:
                state = opt.state_dict()
                groups = [
                    {"params": list(net.parameters())},
                    {"params": list(late.parameters()), "lr": 0.4},
                ]
                opt = SelfTuner(torch.optim.SGD(groups, lr=0.1), net, total_steps=LENGTH)
                opt.load_state_dict(state)
            opt.step(lambda: F.cross_entropy(net(x) + late(x), y))  # noqa: B023
        assert not opt.is_racing
        ends.append((trained(net, opt), opt.lr))
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("shared", [False, True])
def test_rates_in_tensors(make_net, make_batches, trained, bits, shared):
    """Whoever compiles the step keeps its rate in a tensor; the run is that of plain numbers."""
    runs = []
    for in_tensors, offload in ((False, False), (True, False), (True, True)):
        torch.manual_seed(0)
        net = make_net()
        ratio = {"lr_scale": 0.1} if shared else {"lr": torch.tensor(1e-3) if in_tensors else 1e-3}
        groups = [{"params": net.first.parameters()}, {"params": net.last.parameters(), **ratio}]
        rate = torch.tensor(1e-2) if in_tensors else 1e-2
        base = torch.optim.AdamW(groups, lr=rate, foreach=False)
        opt = SelfTuner(base, net, total_steps=LENGTH, offload=offload)
        for number, (x, y) in enumerate(make_batches(100)):
            if number == 5:
                late = {"params": list(net.norm.parameters())}
                opt.add_param_group({**late, "lr": torch.tensor(1e-2) if in_tensors else 1e-2})
            opt.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
        assert not opt.is_racing
        net.first.bias.data.zero_()  # before BatchNorm its gradient is rounding errors alone
        runs.append((list(net.parameters()), opt.lr, [float(g["lr"]) for g in opt.param_groups]))
    for weights, rate, rates in runs[1:]:
        assert rate == pytest.approx(runs[0][1])
        assert rates == pytest.approx(runs[0][2])
        torch.testing.assert_close(weights, runs[0][0], rtol=1e-3, atol=1e-4)
    assert bits(runs[1]) == bits(runs[2])
