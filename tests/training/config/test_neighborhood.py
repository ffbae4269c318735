"""H written out member by member: the same as its lists, wherever they mean the same."""

import tomllib

import pytest
import torch

from annealtune import SGDSA, EmbeddedTuner, Neighborhood
from annealtune.errors import ConfigError
from annealtune.studies.plan import make_plan
from annealtune.training.config import from_values

PAIR = [{"lr": 0.5, "momentum": 0.0}, {"lr": 0.05, "momentum": 0.9}]
PRODUCT = [
    {"lr": rate, "label_smoothing": smoothing, "dropout": rate / 10}
    for rate in (2.0, 0.3)
    for smoothing in (0.0, 0.1)
]
WRITTEN = "[{ lr = 0.5, momentum = 0.0 }, { lr = 0.05, momentum = 0.9 }]"


def test_are_the_librarys_neighborhood(session, by_hand, trained, by_the_library):
    found = trained(session(**{"sgd-sa": {"settings": PAIR}}))
    model, batches = by_hand()
    tuner = SGDSA(model, Neighborhood(PAIR), epochs=3)
    assert found == by_the_library(tuner, model, batches)
    assert {tuple(info.setting.items()) for info in found} == {tuple(s.items()) for s in PAIR}


@pytest.mark.parametrize("method", ["sgd-sa", "adamw-sa", "random-rate"])
def test_a_product_written_out_is_its_lists(session, method, trained):
    lists = {"lr": [0.2, 0.01], "weight_decay": [0.0, 0.1], "label_smoothing": [0.0, 0.1]}
    product = [
        {"label_smoothing": smoothing, "weight_decay": decay, "lr": rate}  # in any order
        for rate in lists["lr"]
        for decay in lists["weight_decay"]
        for smoothing in lists["label_smoothing"]
    ]
    run = session(method=method, **{method: lists})
    expected, weights = trained(run), run.model.state_dict()
    run = session(method=method, **{method: {"settings": product}})
    assert [repr(info) for info in trained(run)] == [repr(info) for info in expected]
    assert all(torch.equal(run.model.state_dict()[name], weights[name]) for name in weights)


def test_options_of_the_loop_are_set(session, trained):
    run = session(**{"sgd-sa": {"settings": PRODUCT}})
    dropout = next(m for m in run.model.modules() if isinstance(m, torch.nn.Dropout))
    assert dropout.p == PRODUCT[0]["dropout"]
    moves = trained(run)
    assert {info.setting["label_smoothing"] for info in moves} == {0.0, 0.1}
    kept = next(info for info in reversed(moves) if info.accepted)
    assert dropout.p == kept.setting["dropout"]


def test_amsgrad_is_adamws(session, by_hand, trained, by_the_library):
    settings = [{"lr": 0.02, "amsgrad": True}, {"lr": 0.002, "amsgrad": False}]
    found = trained(session(method="adamw-sa", **{"adamw-sa": {"settings": settings}}))
    model, batches = by_hand()
    base = torch.optim.AdamW(model.parameters(), lr=0.02)
    tuner = EmbeddedTuner(base, model=model, neighborhood=Neighborhood(settings), epochs=3)
    assert found == by_the_library(tuner, model, batches)
    assert {info.setting["amsgrad"] for info in found} == {True, False}
    (lists,) = from_values({"adamw-sa": {"lr": 0.1, "amsgrad": True}}).adamw_sa.neighborhood()
    assert dict(lists) == {"lr": 0.1, "amsgrad": True}


def test_a_single_table_is_a_list_of_one():
    (setting,) = from_values({"sgd-sa": {"settings": {"lr": 1}}}).sgd_sa.neighborhood()
    assert dict(setting) == {"lr": 1.0}


# --- From the program ---


def test_are_printed_and_read_again(program, place):
    printed = program("config", "--method", "sgd-sa", "--set", f"sgd-sa.settings={WRITTEN}")
    assert printed.code == 0, printed.err
    block = tomllib.loads(printed.out)["sgd-sa"]
    assert block["settings"] == PAIR
    assert "lr" not in block
    (place / "run.toml").write_text(printed.out)
    assert program("config", "run.toml").out == printed.out


@pytest.mark.parametrize("method", ["sgd-sa", "random-rate"])
def test_a_run_goes_on_with_them(program, place, tiny_flags, outcome, method):
    flags = ["train", *tiny_flags, "--method", method, "--set", f"{method}.settings={WRITTEN}"]
    assert program(*flags, "--out", "whole").code == 0
    assert program(*flags, "--out", "parted", "--stop-after", "1").code != 2
    resumed = program("train", "--out", "parted", "--resume")  # by its own config.toml
    assert resumed.code == 0, resumed.err
    assert outcome(place / "parted") == outcome(place / "whole")
    other = program(
        *flags[:-1], f"{method}.settings=[{{ lr = 0.5 }}]", "--out", "whole", "--resume"
    )
    assert other.code == 2
    assert f"{method}.settings = [{{'lr': 0.5}}] (the run has [" in other.err


def test_a_study_compares_them():
    tables = {
        "pair": {"method": "sgd-sa", "settings": PAIR},
        "betas": {"method": "adamw-sa", "settings": [{"lr": 0.1, "betas": [0.9, 0.99]}]},
    }
    plan = make_plan({"methods": tables, "sgd-sa": {"temperature": 1.0}}, name="study", seeds=[0])
    assert plan.config_of("pair")["sgd-sa"]["settings"] == PAIR
    for run in plan.runs():
        text = run.config.to_toml()
        assert from_values(tomllib.loads(text)).to_toml() == text
    assert dict(plan.configs["betas"].adamw_sa.neighborhood()[0])["betas"] == (0.9, 0.99)


# --- Refusals ---

REFUSED = {
    "no list": (3, "settings: must be tables such as [{ lr = 0.1 }, { lr = 0.01 }], got 3"),
    "no tables": ([0.1], "settings.0: must be a table of options, got 0.1"),
    "none": ([], "settings: must hold at least one setting, got none"),
    "one twice": ([{"lr": 0.5}] * 2, "settings: must hold different settings, got Setting(lr=0.5)"),
    "other options": (
        [{"lr": 0.5}, PAIR[1]],
        "settings: must name the same options in every setting, got Setting(lr=0.05, momentum=0.9)",
    ),
    "no rate": ([{"momentum": 0.9}], "settings.0.lr: must be given, got {'momentum': 0.9}"),
    "a rate below zero": ([{"lr": 1.0}, {"lr": -1.0}], "settings.1.lr: input should be greater"),
    "a rate in words": ([{"lr": "0.1"}], "settings.0.lr: input should be a valid number"),
    "a flag that is a number": ([{"lr": 0.1, "nesterov": 1}], "settings.0.nesterov: input should"),
    "all is dropped": ([{"lr": 0.1, "dropout": 1.0}], "settings.0.dropout: input should be less"),
    "a typo": (
        [{"lr": 0.1, "momentun": 0.9}],
        "settings.0.momentun: unknown key; did you mean 'momentum'?",
    ),
    "nothing near": ([{"lr": 0.1, "rate": 0.9}], "settings.0.rate: unknown key; known keys: lr, "),
    "an option of AdamW": ([{"lr": 0.1, "betas": [0.9, 0.99]}], "settings.0.betas: unknown key"),
}


@pytest.mark.parametrize("method", ["sgd-sa", "random-rate"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_setting(method, case):
    settings, told = REFUSED[case]
    with pytest.raises(ConfigError) as refused:
        from_values({"method": method, method: {"settings": settings}})
    assert str(refused.value).startswith(f"config: {method}.{told}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (
            {"lr": [0.1], "momentum": 0.9},
            "sgd-sa: settings: must be all of H, got lr, momentum as well",
        ),
        ({"dropout": [0.1]}, "sgd-sa: settings: must be all of H, got dropout as well"),
        ({"settings": [{"lr": 0.1, "nesterov": True}]}, "sgd-sa: nesterov = true needs a momentum"),
        (
            {"settings": [{"lr": 0.1, "augment_strength": 0.5}]},
            "augment = 'none': must be crop-flip with sgd-sa.augment_strength",
        ),
        ({"settings": PRODUCT, "strategy": "tabu"}, "each value of label_smoothing in H needs"),
        (
            {"strategy": "tabu", "strategy_options": {"tenure": 2}},
            "smaller than the number of settings in H, here 2, got 2",
        ),
    ],
)
def test_what_does_not_fit_beside_them(block, told):
    with pytest.raises(ConfigError) as refused:
        from_values({"method": "sgd-sa", "sgd-sa": {"settings": PAIR, **block}})
    assert told in str(refused.value)


def test_scales_are_no_part_of_h():
    block = {"settings": PAIR, "scales": {"classifier": 0.5}}
    assert from_values({"sgd-sa": block}).sgd_sa.scales == {"classifier": 0.5}


@pytest.mark.parametrize("betas", [[0.9], 0.9, [[0.9, 0.999]], [0.9, 0.99, 0.999]])
def test_betas_of_a_setting_are_a_pair(betas):
    with pytest.raises(ConfigError) as refused:
        from_values({"adamw-sa": {"settings": [{"lr": 0.1, "betas": betas}]}})
    told = f"adamw-sa.settings.0.betas: must be a pair such as [0.9, 0.999], got {betas}"
    assert str(refused.value) == f"config: {told}"
