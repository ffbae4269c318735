"""The options of the methods: H, temperature and strategy, and what does not fit together."""

import math
import subprocess
import sys
import tomllib

import pytest
import torch

from annealtune import SGDSA, EmbeddedTuner, Neighborhood
from annealtune.annealing import Geometric, Reheating
from annealtune.errors import ConfigError
from annealtune.training.config import from_values

PAIR = [{"lr": 0.5, "momentum": 0.0}, {"lr": 0.05, "momentum": 0.9}]
WRITTEN = "[{ lr = 0.5, momentum = 0.0 }, { lr = 0.05, momentum = 0.9 }]"


def refusal(**block) -> str:
    method = block.pop("method", "sgd-sa")
    with pytest.raises(ConfigError) as refused:
        from_values({"method": method, method: block})
    text = str(refused.value)
    assert text.startswith(f"config: {method}")
    assert "\n" not in text
    return text


class TestH:
    def test_a_single_value_is_a_list_of_one(self):
        config = from_values({"sgd-sa": {"lr": 0.5, "momentum": 0.9, "nesterov": True}})
        assert [dict(setting) for setting in config.sgd_sa.neighborhood()] == [
            {"lr": 0.5, "momentum": 0.9, "nesterov": True}
        ]

    def test_a_table_is_a_list_in_equal_ratios(self):
        table = {"low": 1e-4, "high": 1.0, "count": 5}
        options = from_values({"sgd-sa": {"lr": table, "weight_decay": table}}).sgd_sa
        expected = pytest.approx((1e-4, 1e-3, 1e-2, 1e-1, 1.0))
        assert options.lr == options.weight_decay == expected

    def test_a_pair_of_betas_is_a_list_of_one(self):
        for betas in ([0.9, 0.99], [[0.9, 0.99]]):
            assert from_values({"adamw-sa": {"betas": betas}}).adamw_sa.betas == ((0.9, 0.99),)

    @pytest.mark.parametrize("method", ["sgd-sa", "adamw-sa", "random-rate"])
    def test_a_product_written_out_is_its_lists(self, session, method, trained):
        lists = {"lr": [0.2, 0.01], "weight_decay": [0.0, 0.1]}
        product = [
            {"weight_decay": decay, "lr": rate}  # in any order
            for rate in lists["lr"]
            for decay in lists["weight_decay"]
        ]
        run = session(method=method, **{method: lists})
        expected, weights = trained(run), run.model.state_dict()
        run = session(method=method, **{method: {"settings": product}})
        assert [repr(info) for info in trained(run)] == [repr(info) for info in expected]
        assert all(torch.equal(run.model.state_dict()[name], weights[name]) for name in weights)

    def test_settings_are_the_librarys(self, session, by_hand, trained, by_the_library):
        found = trained(session(**{"sgd-sa": {"settings": PAIR}}))
        model, batches = by_hand()
        tuner = SGDSA(model, Neighborhood(PAIR), epochs=3)
        assert found == by_the_library(tuner, model, batches)
        assert {tuple(info.setting.items()) for info in found} == {tuple(s.items()) for s in PAIR}

    def test_amsgrad_is_adamws(self, session, by_hand, trained, by_the_library):
        settings = [{"lr": 0.02, "amsgrad": True}, {"lr": 0.002, "amsgrad": False}]
        found = trained(session(method="adamw-sa", **{"adamw-sa": {"settings": settings}}))
        model, batches = by_hand()
        base = torch.optim.AdamW(model.parameters(), lr=0.02)
        tuner = EmbeddedTuner(base, model=model, neighborhood=Neighborhood(settings), epochs=3)
        assert found == by_the_library(tuner, model, batches)
        assert {info.setting["amsgrad"] for info in found} == {True, False}

    def test_a_single_table_is_a_list_of_one(self):
        (setting,) = from_values({"sgd-sa": {"settings": {"lr": 1}}}).sgd_sa.neighborhood()
        assert dict(setting) == {"lr": 1.0}

    def test_settings_are_printed_and_read_again(self, program, place):
        printed = program("config", "--method", "sgd-sa", "--set", f"sgd-sa.settings={WRITTEN}")
        assert printed.code == 0, printed.err
        block = tomllib.loads(printed.out)["sgd-sa"]
        assert block["settings"] == PAIR
        assert "lr" not in block
        (place / "run.toml").write_text(printed.out)
        assert program("config", "run.toml").out == printed.out


class TestRefusedSettings:
    @pytest.mark.parametrize("method", ["sgd-sa", "random-rate"])
    @pytest.mark.parametrize(
        ("settings", "key"),
        [
            (3, "settings"),
            ([0.1], "settings.0"),
            ([], "at least one setting"),
            ([{"lr": 0.5}] * 2, "different settings"),
            ([{"lr": 0.5}, PAIR[1]], "same options"),
            ([{"momentum": 0.9}], "settings.0.lr"),
            ([{"lr": 1.0}, {"lr": -1.0}], "settings.1.lr"),
            ([{"lr": "0.1"}], "settings.0.lr"),
            ([{"lr": 0.1, "nesterov": 1}], "settings.0.nesterov"),
            ([{"lr": 0.1, "momentun": 0.9}], "did you mean 'momentum'?"),
            ([{"lr": 0.1, "rate": 0.9}], "settings.0.rate: unknown key; known keys: lr, "),
            ([{"lr": 0.1, "betas": [0.9, 0.99]}], "settings.0.betas"),
        ],
    )
    def test_what_is_no_setting(self, method, settings, key):
        assert key in refusal(method=method, settings=settings)

    @pytest.mark.parametrize(
        ("block", "told"),
        [
            ({"lr": [0.1], "momentum": 0.9}, "settings: must be all of H, got lr, momentum"),
            ({"settings": [{"lr": 0.1, "nesterov": True}]}, "nesterov = true needs a momentum"),
            (
                {"strategy": "tabu", "strategy_options": {"tenure": 2}},
                "smaller than the number of settings in H, here 2, got 2",
            ),
        ],
    )
    def test_what_does_not_fit_beside_them(self, block, told):
        assert told in refusal(**{"settings": PAIR, **block})

    @pytest.mark.parametrize("betas", [[0.9], 0.9, [[0.9], [0.5, 0.9]], [0.9, 0.99, 0.999]])
    def test_betas_are_pairs(self, betas):
        assert "adamw-sa" in refusal(method="adamw-sa", betas=betas)

    @pytest.mark.parametrize("betas", [[0.9], 0.9, [0.9, 1.0]])
    def test_betas_of_a_setting_are_a_pair(self, betas):
        text = refusal(method="adamw-sa", settings=[{"lr": 0.1, "betas": betas}])
        assert "adamw-sa.settings.0.betas" in text


class TestTemperature:
    def test_the_schedule(self):
        options = {
            "temperature": 2.0,
            "cooling_factor": 0.5,
            "cooling_per": "step",
            "floor": 0.1,
            "reheat_every": 3,
            "reheat_times": 2,
        }
        schedule = from_values({"sgd-sa": options}).sgd_sa.schedule()
        assert isinstance(schedule, Reheating)
        assert (schedule.every, schedule.times, schedule.per) == (3, 2, "step")
        assert isinstance(schedule.schedule, Geometric)
        assert schedule.temperature == 2.0
        del options["reheat_every"], options["reheat_times"]
        schedule = from_values({"ssa": options}).ssa.schedule()
        for _ in range(9):
            schedule.tick("step")
        assert schedule.temperature == 0.1
        assert from_values({"ssa": {"temperature": math.inf}}).ssa.schedule() == math.inf
        assert from_values({}).ssa.schedule() is None


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({"strategy": "tabuu"}, "sgd-sa.strategy: must be one of simulated-annealing"),
        ({"strategy": "Variable_Neighborhood"}, "did you mean 'variable-neighborhood'?"),
        ({"strategy": 3}, "sgd-sa.strategy: "),
        (
            {"strategy": "tabu", "strategy_options": {"tenur": 3}},
            "strategy_options: the options of Tabu must be among",
        ),
        ({"strategy_options": {"tenure": 3}}, "'tenure'"),
        (
            {"strategy": "genetic", "strategy_options": {"temperature": 3.0}},
            "the options of Genetic must be among",
        ),
        ({"strategy": "tabu", "strategy_options": {"tenure": 14}}, "here 14, got 14"),
        ({"strategy": "tabu", "strategy_options": {"tenure": -1}}, "tenure"),
        ({"strategy": "tabu", "strategy_options": {"tenure": "two"}}, "tenure"),
        ({"strategy_options": 3}, "sgd-sa.strategy_options"),
        ({"strategy": "variable-neighborhood", "lr": [0.5, 0.1]}, "here 2"),
        (
            {"strategy": "tabu", "temperature": 1.0, "cooling_factor": 0.5},
            "temperature = 1.0: must be left out with strategy = 'tabu'",
        ),
        (
            {"strategy": "genetic", "preset": "paper-text"},
            "preset = 'paper-text' needs strategy = 'simulated-annealing'",
        ),
        ({"method": "ssa", "strategy": "tabu"}, "must only decide on moves"),
        ({"accept_on": "accuracy"}, "sgd-sa.accept_on: must be one of loss, error or"),
        ({"accept_batch": "previous"}, "must be one of same, held-out, got 'previous'"),
        ({"held_out_fraction": 0.3}, "held_out_fraction = 0.3 needs accept_batch = 'held-out'"),
        ({"lr": {"low": 0.1, "count": 3}}, "sgd-sa.lr: must be a value, a list of values or"),
        ({"lr": {"low": 1.0, "high": 0.1, "count": 3}}, "0 < low < high < inf"),
        ({"lr": {"low": "a", "high": 1.0, "count": 3}}, "must be a number, got 'a'"),
        ({"lr": []}, "at least one setting"),
        ({"lr": [0.1, 0.1]}, "different settings"),
        ({"nesterov": [True]}, "nesterov = true needs a momentum above 0"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "dampening of 0"),
        ({"method": "sgd-momentum", "nesterov": True, "momentum": 0.0}, "momentum above 0"),
        ({"method": "self-tuned", "momentum": 0.9}, "momentum = 0.9 needs optimizer = 'sgd'"),
        ({"cooling_factor": 0.5}, "needs a temperature to start from"),
        ({"temperature": 0.0, "cooling_factor": 0.5}, "cannot be cooled"),
        ({"temperature": math.inf, "cooling_factor": 0.5}, "cannot be cooled"),
        ({"method": "ssa", "floor": 0.1}, "need a cooling_factor"),
        ({"method": "ssa", "cooling_per": "step"}, "need a cooling_factor"),
        ({"method": "ssa", "reheat_every": 3}, "need each other"),
    ],
)
def test_what_does_not_fit_together(block, told):
    assert told in refusal(**block)


def test_the_program_refuses_in_one_line(program, place):
    (place / "run.toml").write_text('method = "sgd-sa"\n[sgd-sa]\nstrategy = "tabuu"\n')
    refused = program("train", "run.toml", "--out", "refused")
    assert refused.code == 2
    assert refused.err.startswith("annealtune: run.toml: sgd-sa.strategy: ")
    assert len(refused.err.splitlines()) == 1
    assert not (place / "refused").exists()


def test_a_strategy_is_checked_without_torch(cold_environment):
    text = (
        "import sys\n"
        "from annealtune.training.config import from_values\n"
        "from annealtune.errors import ConfigError\n"
        "from_values({'sgd-sa': {'strategy': 'tabu', 'strategy_options': {'tenure': 3}}})\n"
        "try:\n"
        "    from_values({'sgd-sa': {'strategy': 'tabu', 'strategy_options': {'tenure': 30}}})\n"
        "except ConfigError as error:\n"
        "    assert 'got 30' in str(error)\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-W", "error", "-c", text]
    subprocess.run(command, env=cold_environment, check=True)
