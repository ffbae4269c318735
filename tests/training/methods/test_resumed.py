"""Whatever a method is told, a run that is killed and resumed ends with the same bits."""

import signal

import pytest

STEP = "torch.optim:SGD.step"  # between the weights that are tried and the verdict
# Named by what could be forgotten in a checkpoint.
CASES = {
    "a strategy's memory": {"lr": [5.0, 0.5], "accept_on": "error", "strategy": "genetic"},
    "what is tabu": {"lr": [5.0, 0.5, 0.05], "momentum": [0.0, 0.9], "strategy": "tabu"},
}


@pytest.fixture
def same_when_killed(place, program, at_call, outcome, tiny):
    """Checks that a run killed at the n-th call of a function ends as an undisturbed one."""

    def same_when_killed(target, count, every=2, **changes):
        (place / "run.toml").write_text(tiny(**changes).to_toml())
        whole = program("train", "run.toml", "--out", "whole")
        assert whole.code == 0, whole.err
        flags = ["train", "run.toml", "--out", "killed", "--checkpoint-every", every]
        killed = program(*flags, setup=at_call(target, count))
        assert killed.code == -signal.SIGKILL, killed.err
        resumed = program(*flags, "--resume")
        assert resumed.code == 0, resumed.err
        assert "continuing at step" in resumed.err
        assert outcome(place / "killed") == outcome(place / "whole")

    return same_when_killed


@pytest.mark.parametrize("case", CASES)
def test_in_the_middle_of_an_epoch(same_when_killed, case):
    same_when_killed(STEP, 9, **{"sgd-sa": CASES[case]})


@pytest.mark.parametrize("strategy", ["tabu", "variable-neighborhood", "genetic"])
def test_every_strategy_around_adamw(same_when_killed, strategy):
    options = {"weight_decay": [0.0, 0.1], "strategy": strategy}
    same_when_killed("torch.optim:AdamW.step", 9, method="adamw-sa", **{"adamw-sa": options})


def test_half_precision(same_when_killed):
    same_when_killed(STEP, 6, 1, precision="fp16", **{"sgd-sa": {"lr": 0.5}})


def test_ssa(same_when_killed):
    same_when_killed("annealtune.optim:StochasticSA.step", 10, method="ssa", ssa={"radius": 0.3})
