"""The options of the methods: H, temperature and strategy, and what does not fit together."""

import subprocess
import sys

import pytest

from annealtune.errors import ConfigError
from annealtune.training.config import from_values


def refusal(**block) -> str:
    method = block.pop("method", "sgd-sa")
    with pytest.raises(ConfigError) as refused:
        from_values({"method": method, method: block})
    text = str(refused.value)
    assert text.startswith(f"config: {method}")
    assert "\n" not in text
    return text


def test_a_single_value_is_a_list_of_one():
    config = from_values({"sgd-sa": {"lr": 0.5, "momentum": 0.9, "nesterov": True}})
    assert [dict(setting) for setting in config.sgd_sa.neighborhood()] == [
        {"lr": 0.5, "momentum": 0.9, "nesterov": True}
    ]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({"strategy": "tabuu"}, "sgd-sa.strategy = 'tabuu': unknown; did you mean 'tabu'?"),
        ({"strategy": "Variable_Neighborhood"}, "did you mean 'variable-neighborhood'?"),
        ({"strategy": 3}, "sgd-sa.strategy: "),
        ({"strategy": "tabu", "strategy_options": {"tenur": 3}}, "strategy_options: "),
        ({"strategy": "tabu", "strategy_options": {"tenure": 14}}, "here 14, got 14"),
        ({"strategy_options": 3}, "sgd-sa.strategy_options"),
        ({"strategy": "variable-neighborhood", "lr": [0.5, 0.1]}, "here 2"),
        ({"strategy": "tabu", "temperature": 1.0}, "temperature = 1.0: must be left out"),
        (
            {"strategy": "genetic", "preset": "paper-text"},
            "preset = 'paper-text' needs strategy = 'simulated-annealing'",
        ),
        ({"method": "ssa", "strategy": "tabu"}, "must only decide on moves"),
        ({"accept_on": "accuracy"}, "sgd-sa.accept_on: must be one of loss, error, got"),
        ({"lr": []}, "at least one setting"),
        ({"lr": [0.1, 0.1]}, "different settings"),
        ({"nesterov": [True]}, "nesterov = true needs a momentum above 0"),
        ({"method": "self-tuned", "momentum": 0.9}, "momentum = 0.9 needs optimizer = 'sgd'"),
    ],
)
def test_what_does_not_fit_together(block, told):
    assert told in refusal(**block)


def test_the_program_refuses_in_one_line(program, place):
    (place / "run.toml").write_text('method = "sgd-sa"\n[sgd-sa]\nstrategy = "tabuu"\n')
    refused = program("train", "run.toml", "--out", "refused")
    assert refused.code == 2
    assert refused.err.startswith("annealtune: run.toml: sgd-sa.strategy = 'tabuu': ")
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
