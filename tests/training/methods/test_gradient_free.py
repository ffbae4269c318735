"""The strategy of ssa: those that only decide on moves."""

import pytest
import torch

from annealtune import StochasticSA
from annealtune.annealing import STRATEGIES, Automatic, make_strategy
from annealtune.errors import ConfigError
from annealtune.training.config import from_values

PICKING = ["tabu", "variable-neighborhood", "genetic"]
DECIDING = [name for name in STRATEGIES if name not in PICKING]
OPTIONS = {"late-acceptance": {"length": 4}, "great-deluge": {}}
DISPLACE = "annealtune.optim.stochastic_sa:_Displacement.displace"
OWN = """
from annealtune import PlainStrategy, Verdict


class Greedy(PlainStrategy):
    def __init__(self, margin=0.0):
        self.margin = margin

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=new_value < value - self.margin)


class Picking(Greedy):
    picks_settings = True


class Several(Greedy):
    candidates = 2

    def shortlist(self, neighborhood, rng):
        return tuple(neighborhood)[:2]

    def select(self, value, measured):
        return min(measured, key=measured.get)
"""


def block(strategy, radius=0.05):
    options = OPTIONS.get(strategy)
    return {"radius": radius, "strategy": strategy} | (
        {"strategy_options": options} if options else {}
    )


@pytest.mark.parametrize("strategy", DECIDING)
def test_every_one_is_that_of_the_library(session, by_hand, strategy, trained):
    run = session(method="ssa", ssa=block(strategy))
    found = trained(run)
    model, batches = by_hand()
    made = make_strategy("test", strategy, OPTIONS.get(strategy, {}), Automatic(length=3))
    optimizer = StochasticSA(model, radius=0.05, strategy=made)
    moves = []
    for _ in range(2):
        for inputs, labels in batches:
            optimizer.step(
                lambda: torch.nn.functional.cross_entropy(model(inputs), labels)  # noqa: B023
            )
            moves.append(optimizer.last_step)
        optimizer.cool()
    assert [repr(info) for info in found] == [repr(info) for info in moves]
    assert type(run.method._optimizer.strategy) is STRATEGIES[strategy]


def test_the_temperature_reaches_one_that_takes_it(session, trained):
    warm = {"temperature": 0.5, "cooling_factor": 0.5, "strategy": "threshold-accepting"}
    moves = trained(session(method="ssa", ssa=warm))
    assert [info.temperature for info in moves] == [0.5] * 6 + [0.25] * 6


@pytest.mark.parametrize("strategy", ["late-acceptance", "great-deluge"])
def test_its_memory_is_saved(place, program, at_call, outcome, tiny, strategy):
    (place / "run.toml").write_text(tiny(method="ssa", ssa=block(strategy, 0.3)).to_toml())
    assert program("train", "run.toml", "--out", "whole").code == 0
    flags = ["train", "run.toml", "--out", "killed", "--checkpoint-every", "2"]
    assert program(*flags, setup=at_call(DISPLACE, 20)).code < 0
    resumed = program(*flags, "--resume")
    assert resumed.code == 0, resumed.err
    assert "continuing at step" in resumed.err
    assert outcome(place / "killed") == outcome(place / "whole")


def test_inspect_tells_it(program, tiny_flags):
    flags = [*tiny_flags, "--method", "ssa", "--strategy", "hill-climbing"]
    done = program("train", *flags, "--out", "run")
    assert done.code == 0, done.err
    assert "strategy       hill-climbing" in program("inspect", "run").out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(
            (
                {"strategy": name},
                f"ssa: strategy = {name!r}: must only decide on moves, as simulated-annealing, ",
            )
            for name in PICKING
        ),
        ({"strategy": "tabuu"}, "ssa.strategy: must be one of simulated-annealing"),
        (
            {"strategy": "late-acceptance", "strategy_options": {"lengt": 3}},
            "ssa.strategy_options: the options of LateAcceptance must be among length, got 'lengt'",
        ),
        (
            {"strategy": "late-acceptance", "strategy_options": {"length": 0}},
            "ssa.strategy_options: LateAcceptance(length=...) must be at least 1, got 0",
        ),
        (
            {"strategy": "hill-climbing", "temperature": 1.0},
            "ssa: temperature = 1.0: must be left out with strategy = 'hill-climbing'",
        ),
        (
            {"strategy": "random-walk", "preset": "paper-text"},
            "ssa: preset = 'paper-text' needs strategy = 'simulated-annealing'",
        ),
    ],
)
def test_one_that_does_not_fit(options, told):
    with pytest.raises(ConfigError) as refused:
        from_values({"method": "ssa", "ssa": options})
    assert str(refused.value).startswith(f"config: {told}")


class TestOnesOwn:
    @pytest.fixture(autouse=True)
    def _own(self, place, monkeypatch):
        (place / "my_ssa.py").write_text(OWN)
        monkeypatch.syspath_prepend(str(place))

    def test_decides(self, session, trained):
        options = {"strategy": "my_ssa:Greedy", "strategy_options": {"margin": 0.001}}
        moves = trained(session(method="ssa", ssa=options))
        assert all(info.accepted == (info.new_loss < info.loss - 0.001) for info in moves)
        assert len({info.accepted for info in moves}) == 2

    @pytest.mark.parametrize("name", ["Picking", "Several"])
    def test_picks_nothing(self, session, name):
        with pytest.raises(ConfigError) as refused:
            session(method="ssa", ssa={"strategy": f"my_ssa:{name}"})
        assert str(refused.value).startswith(f"ssa.strategy = 'my_ssa:{name}': ")
        assert "must only decide on moves" in str(refused.value)
        assert "has no H" in str(refused.value)
