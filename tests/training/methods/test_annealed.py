"""Methods whose moves are accepted or undone: against the library and loops written by hand."""

import itertools
import math
import random
import tomllib

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.annealing import (
    PAPER_RATES,
    STRATEGIES,
    Automatic,
    SimulatedAnnealing,
    make_strategy,
    takes_temperature,
)
from annealtune.errors import ConfigError
from annealtune.training.config import from_values

EPOCHS = 3


def assert_same(found, expected):
    """Compare moves; NaN, the temperature of a strategy that has none, equals NaN."""
    assert [repr(info) for info in found] == [repr(info) for info in expected]


# --- Without any option: Algorithm 2 over the default H ---


def adamw(model):
    rates = [1e-4, 10**-3.6666666666666667, 10**-3.3333333333333333, 1e-3]
    rates += [10**-2.6666666666666667, 10**-2.3333333333333333, 1e-2]
    neighborhood = grid(lr=[float(f"{rate:.12g}") for rate in rates])
    base = torch.optim.AdamW(model.parameters())
    return EmbeddedTuner(base, model=model, neighborhood=neighborhood, epochs=EPOCHS)


def sgd(model):
    return SGDSA(model, grid(lr=PAPER_RATES), epochs=EPOCHS)


@pytest.mark.parametrize(("method", "make"), [("adamw-sa", adamw), ("sgd-sa", sgd)])
def test_it_is_the_librarys_tuner(session, trained, by_hand, by_the_library, method, make):
    made = session(method=method, epochs=EPOCHS)
    tuner = made.method._optimizer
    assert isinstance(tuner.strategy, SimulatedAnnealing)
    assert not tuner.averages
    found = trained(made, epochs=EPOCHS)
    model, batches = by_hand()  # seeds torch's generator, as a session does
    expected = by_the_library(make(model), model, batches, epochs=EPOCHS)
    assert found == expected
    assert len({move.setting for move in expected}) > 3


def test_an_h_of_several_options_of_adamw(session, by_hand, trained, by_the_library):
    block = {"lr": [0.1, 0.01], "weight_decay": [0.0, 0.1]}
    run = session(method="adamw-sa", decision_seed=4, **{"adamw-sa": block})
    found = trained(run)
    model, batches = by_hand()
    base = torch.optim.AdamW(model.parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, model=model, neighborhood=grid(**block), epochs=3, seed=4)
    assert_same(found, by_the_library(tuner, model, batches))
    weights = run.model.state_dict()
    assert all(torch.equal(weights[n], wanted) for n, wanted in model.state_dict().items())
    assert len({info.setting["weight_decay"] for info in found}) == 2


# --- Strategies ---

SEVERAL = [8.0, 4.0, 2.0, 0.5, 0.3]
OPTIONS = {
    "tabu": {"tenure": 2, "candidates": 2},
    "genetic": {"population": 3, "trials": 1},
    "variable-neighborhood": {"levels": 3},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_one_is_that_of_the_library(session, by_hand, strategy, trained, by_the_library):
    options = OPTIONS.get(strategy)
    block = {"lr": SEVERAL, "strategy": strategy}
    found = trained(
        session(**{"sgd-sa": {**block, "strategy_options": options} if options else block})
    )
    model, batches = by_hand()
    made = make_strategy(STRATEGIES[strategy], options or {}, Automatic(length=3))
    tuner = SGDSA(model, grid(lr=SEVERAL), strategy=made)
    assert_same(found, by_the_library(tuner, model, batches))


@pytest.mark.parametrize("strategy", [n for n, c in STRATEGIES.items() if takes_temperature(c)])
def test_the_temperature_reaches_those_that_take_one(session, strategy, trained):
    run = session(**{"sgd-sa": {"lr": SEVERAL, "strategy": strategy, "temperature": 0.5}})
    assert type(run.method._optimizer.strategy) is STRATEGIES[strategy]
    assert {info.temperature for info in trained(run)} == {0.5}


def test_simulated_annealing_by_name_is_the_default(undisturbed):
    named = undisturbed(**{"sgd-sa": {"strategy": "simulated-annealing"}})
    assert named == undisturbed()


def test_a_strategy_without_temperature_records_none(complete, lines_of):
    directory = complete(epochs=1, **{"sgd-sa": {"strategy": "tabu"}})
    (record,) = lines_of(directory / "metrics.jsonl")
    assert record["temperature"] is None
    assert record["acceptance_rate"] == 1.0


# --- A strategy of the user's own ---

OWN = '''
from annealtune.annealing import Strategy, Verdict


class Patient(Strategy):
    """Keeps a worsening move after so many rejections in a row."""

    def __init__(self, patience: int = 2) -> None:
        if patience < 1:
            raise ValueError(f"Patient(patience=...) must be positive, got {patience!r}")
        self.patience = patience
        self.rejected = 0

    def decide(self, value, new_value, rng):
        accepted = new_value <= value or self.rejected >= self.patience
        return Verdict.of(value, new_value, accepted=accepted)

    def observe(self, setting, verdict):
        self.rejected = 0 if verdict.accepted else self.rejected + 1

    def state_dict(self):
        return {"rejected": self.rejected}

    def load_state_dict(self, state):
        self.rejected = state["rejected"]


class Picking(Patient):
    picks_settings = True


class Warm(Patient):
    def __init__(self, temperature):
        self.heat = temperature


class Nothing:
    pass


def function():
    return Patient()
'''


@pytest.fixture
def own(place, monkeypatch):
    (place / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(place))


@pytest.mark.usefixtures("own")
class TestOnesOwn:
    def test_from_the_command_line(self, program, place, lines_of, tiny_flags):
        flags = ["train", *tiny_flags, "--set", "sgd-sa.lr=[50.0]"]
        patience = "sgd-sa.strategy_options={ patience = 1 }"
        own = ["--set", "sgd-sa.strategy=own:Patient", "--set", patience]
        done = program(*flags, *own, "--out", "patient")
        assert done.code == 0, done.err
        config = tomllib.loads((place / "patient/config.toml").read_text())["sgd-sa"]
        assert config["strategy"] == "own:Patient"
        assert config["strategy_options"] == {"patience": 1}
        records = lines_of(place / "patient/metrics.jsonl")
        # At a rate of 50 most moves worsen: one is rejected, the next one kept.
        assert sum(record["rejected_worsening"] for record in records) >= 4
        assert sum(record["accepted_worsening"] for record in records) >= 4
        assert program("evaluate", "patient").code == 0

    def test_is_not_imported_to_check_a_config(self):
        config = from_values({"sgd-sa": {"strategy": "nowhere.at_all:Strategy"}})
        assert config.sgd_sa.strategy == "nowhere.at_all:Strategy"

    @pytest.mark.parametrize(
        ("method", "options", "told"),
        [
            ("sgd-sa", {"strategy": "own:Patience"}, "did you mean 'Patient'?"),
            ("sgd-sa", {"strategy": "owns:Patient"}, "importing owns failed"),
            ("sgd-sa", {"strategy": "own:function"}, "must be a class"),
            ("sgd-sa", {"strategy": "own:Nothing"}, "Nothing"),
            (
                "sgd-sa",
                {"strategy": "own:Patient", "strategy_options": {"patience": 0}},
                "Patient(patience=...) must be positive, got 0",
            ),
            ("sgd-sa", {"strategy": "own:Patient", "temperature": 1.0}, "temperature = 1.0"),
            ("ssa", {"strategy": "own:Picking"}, "must only decide on moves"),
        ],
    )
    def test_one_that_cannot_be_used(self, session, method, options, told):
        with pytest.raises(ConfigError) as refused:
            session(method=method, **{method: options})
        assert str(refused.value).startswith(f"{method}.strategy = {options['strategy']!r}: ")
        assert told in str(refused.value)

    def test_a_temperature_reaches_one_that_takes_it(self, session):
        block = {"strategy": "own:Warm"}
        heat = session(**{"sgd-sa": {**block, "temperature": 2.0}}).method._optimizer.strategy.heat
        assert heat == 2.0
        assert isinstance(session(**{"sgd-sa": block}).method._optimizer.strategy.heat, Automatic)

    def test_ssa_takes_one_that_decides(self, session, trained):
        moves = trained(session(method="ssa", ssa={"strategy": "own:Patient"}))
        assert len({info.accepted for info in moves}) == 2


# --- What moves are judged by ---

RATES = [8.0, 2.0, 0.3]


def error(scores, labels):
    return (scores.argmax(1) != labels).double().mean().item()


def loss(scores, labels):
    return F.cross_entropy(scores, labels).item()


VALUES = {"loss": loss, "error": error}


def reference(model, batches, accept_on, temperature, steps):
    """Algorithm 2 with a black box in its accept test; returns the verdicts."""
    value_of, decisions, verdicts = VALUES[accept_on], random.Random(0), []
    parameters = list(model.parameters())
    minibatches = itertools.chain.from_iterable(itertools.repeat(batches))
    for inputs, labels in itertools.islice(minibatches, steps):
        start = torch.get_rng_state()
        for p in parameters:
            p.grad = None
        F.cross_entropy(model(inputs), labels).backward()
        end, buffers = torch.get_rng_state(), [b.clone() for b in model.buffers()]

        def measured(inputs=inputs, labels=labels, start=start, end=end, buffers=buffers):
            torch.set_rng_state(start)
            with torch.no_grad():
                value = value_of(model(inputs), labels)
                for buffer, kept in zip(model.buffers(), buffers, strict=True):
                    buffer.copy_(kept)
            torch.set_rng_state(end)
            return value

        value = measured()
        rate = RATES[int(decisions.random() * len(RATES))]
        old = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p in parameters:
                p.add_(p.grad, alpha=-rate)
        worsening, u = measured() - value, decisions.random()
        chance = math.exp(-worsening / temperature) if worsening > 0 else 1.0
        verdicts.append(u < chance or worsening <= 0)
        if not verdicts[-1]:
            with torch.no_grad():
                for p, kept in zip(parameters, old, strict=True):
                    p.copy_(kept)
    return verdicts


@pytest.mark.parametrize("accept_on", ["loss", "error"])
def test_against_a_loop_by_hand(session, by_hand, trained, accept_on):
    """Twelve steps with dropout and BatchNorm; on the same minibatch few moves are undone."""
    temperature = {"loss": 0.03, "error": 0.003}[accept_on]
    block = {"lr": RATES, "accept_on": accept_on, "temperature": temperature}
    found = session(**{"sgd-sa": block})
    steps = 2 * len(found.train_batches)
    verdicts = [info.accepted for info in trained(found)]
    model, batches = by_hand()
    assert verdicts == reference(model, batches, accept_on, temperature, steps)
    weights = found.model.state_dict()
    for name, wanted in model.state_dict().items():
        assert torch.equal(weights[name], wanted), name


# --- What a step costs, counted ---


@pytest.mark.parametrize(
    ("options", "forwards"),
    [
        ({"accept_on": "error"}, 2),
        ({"preset": "paper-code", "accept_on": "error"}, 3),
        ({"strategy": "tabu"}, 4),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_forwards_and_backwards_are_the_truth(session, counted, options, forwards, precision):
    run = session(precision=precision, **{"sgd-sa": {"lr": [0.1, 0.05, 0.01], **options}})
    found = counted(run)
    steps = 0
    for _ in run.train():
        steps += 1
        assert run.method._optimizer.last_step is not None, "skipped by the scaler"
    assert found == {"forwards": run.forwards, "backwards": run.backwards}
    assert run.backwards == steps
    if precision == "fp16" and options == {"accept_on": "error"}:
        forwards = 3  # no closure, so the outputs of the first forward are not at hand
    assert run.forwards == forwards * steps
