"""Named groups have their own scale."""

import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import EmbeddedTuner, grid


def grouped(net, **options):
    groups = [
        {"params": [*net.first.parameters(), *net.norm.parameters()], "name": "body"},
        {"params": net.last.parameters(), "name": "head"},
    ]
    return EmbeddedTuner(torch.optim.SGD(groups, lr=0.1, momentum=0.9), model=net, **options)


def options_of(tuner, option):
    return {group["name"]: group[option] for group in tuner.param_groups}


def test_a_number_scales_the_rate_of_its_group(net, make_batches):
    tuner = grouped(
        net,
        neighborhood=grid(lr=[0.4, 0.2], momentum=[0.0, 0.9]),
        group_scales={"body": 0.25},
        temperature=math.inf,
    )
    for x, y in make_batches(8):
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        setting = tuner.last_step.setting
        rate, momentum = setting["lr"], setting["momentum"]
        assert options_of(tuner, "lr") == {"body": rate * 0.25, "head": rate}
        assert options_of(tuner, "momentum") == {"body": momentum, "head": momentum}


def test_a_step_equals_one_of_the_bare_base_with_those_rates(make_net, batch, bits):
    x, y = batch
    net, twin = make_net(), make_net()
    tuner = grouped(
        net,
        neighborhood=grid(lr=[0.4], weight_decay=[0.1]),
        group_scales={"body": {"lr": 0.5, "weight_decay": 0.0}},
        temperature=math.inf,
    )
    start = torch.get_rng_state()
    tuner.step(lambda: F.cross_entropy(net(x), y))
    torch.set_rng_state(start)
    F.cross_entropy(twin(x), y).backward()
    body = [*twin.first.parameters(), *twin.norm.parameters()]
    torch.optim.SGD(
        [
            {"params": body, "lr": 0.2, "weight_decay": 0.0},
            {"params": twin.last.parameters(), "lr": 0.4, "weight_decay": 0.1},
        ],
        momentum=0.9,
    ).step()
    assert bits(list(net.parameters())) == bits(list(twin.parameters()))


def test_a_setting_that_only_a_scaled_group_refuses_is_dropped(net):
    groups = [{"params": net.parameters(), "name": "all"}]
    tuner = EmbeddedTuner(
        torch.optim.AdamW(groups),
        neighborhood=grid(lr=[1e-3], eps=[1e-8, -1.0]),
        group_scales={"all": {"eps": 2.0}},
    )
    assert [h["eps"] for h in tuner.neighborhood] == [1e-8]
    assert [h["eps"] for h in tuner.neighborhood.dropped] == [-1.0]


BAD = {
    "no mapping": (0.1, TypeError, ["EmbeddedTuner(group_scales=...)", "map names", "0.1"]),
    "unknown group": (
        {"tail": 0.1},
        ValueError,
        ["EmbeddedTuner(group_scales=...)", "'tail'", "'body', 'head'"],
    ),
    "no number": ({"body": "small"}, TypeError, ["{'body': ...}", "a number", "'small'"]),
    "negative": ({"body": -1.0}, ValueError, ["{'body': ...}", "not negative", "-1.0"]),
    "not finite": ({"body": math.nan}, ValueError, ["{'body': ...}", "finite", "nan"]),
    "unknown option": ({"body": {"rate": 1.0}}, ValueError, ["option of SGD", "'rate'"]),
}


@pytest.mark.parametrize(("scales", "error", "parts"), BAD.values(), ids=BAD)
def test_bad_input_names_argument_rule_and_value(net, scales, error, parts):
    with pytest.raises(error) as caught:
        grouped(net, group_scales=scales)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_groups_without_names(net):
    with pytest.raises(ValueError, match="no group has a 'name'"):
        EmbeddedTuner(torch.optim.SGD(net.parameters(), lr=0.1), group_scales={"a": 1.0})


def test_what_is_no_number_cannot_be_scaled(net):
    groups = [{"params": net.parameters(), "name": "all"}]
    with pytest.raises(TypeError, match="the betas it scales must be a number"):
        EmbeddedTuner(
            torch.optim.AdamW(groups),
            neighborhood=grid(betas=[(0.9, 0.99)]),
            group_scales={"all": {"betas": 2.0}},
        )


@pytest.mark.parametrize("scales", [0.5, {"weight_decay": 0.5}], ids=["lr", "weight_decay"])
def test_a_scale_that_would_do_nothing_is_refused(net, scales):
    with pytest.raises(ValueError, match=r"must scale options that H sets, here momentum, got"):
        grouped(net, neighborhood=grid(momentum=[0.0, 0.9]), group_scales={"body": scales})
