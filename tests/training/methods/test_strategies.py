"""The strategy of a run: built-in or the user's own; and the paper's method around AdamW."""

import importlib
import math
import tomllib

import pytest
import torch

from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.annealing import STRATEGIES, Automatic, Geometric, make_strategy, takes_temperature
from annealtune.training.config import from_values

RATES = [8.0, 4.0, 2.0, 0.5, 0.3]
OPTIONS = {
    "tabu": {"tenure": 2, "candidates": 2},
    "genetic": {"population": 3, "trials": 1},
    "variable-neighborhood": {"levels": 3},
    "late-acceptance": {"length": 4},
}


def assert_same(found, expected):
    """Compare moves; NaN, the temperature of a strategy that has none, equals NaN."""
    assert [repr(info) for info in found] == [repr(info) for info in expected]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_one_is_that_of_the_library(session, by_hand, strategy, trained, by_the_library):
    options = OPTIONS.get(strategy)
    block = {"lr": RATES, "strategy": strategy}
    found = trained(
        session(**{"sgd-sa": {**block, "strategy_options": options} if options else block})
    )
    model, batches = by_hand()
    made = make_strategy("test", strategy, options or {}, Automatic(length=3))
    tuner = SGDSA(model, grid(lr=RATES), strategy=made)
    assert_same(found, by_the_library(tuner, model, batches))


@pytest.mark.parametrize("strategy", [n for n, c in STRATEGIES.items() if takes_temperature(c)])
def test_the_temperature_reaches_those_that_take_one(session, strategy, trained):
    cooling = {"temperature": 0.5, "cooling_factor": 0.5}
    run = session(**{"sgd-sa": {"lr": RATES, "strategy": strategy, **cooling}})
    found = run.method._optimizer.strategy
    assert type(found) is STRATEGIES[strategy]
    assert isinstance(found.schedule, Geometric)
    assert [info.temperature for info in trained(run)] == [0.5] * 6 + [0.25] * 6


def test_without_one_it_is_automatic_over_the_epochs(session):
    run = session(epochs=7, **{"sgd-sa": {"lr": RATES, "strategy": "threshold-accepting"}})
    schedule = run.method._optimizer.strategy.schedule
    assert isinstance(schedule, Automatic)
    assert repr(schedule) == repr(Automatic(length=7))


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
import random

from annealtune import PlainStrategy, Verdict


class Patient(PlainStrategy):
    """Keeps a worsening move after so many rejections in a row."""

    def __init__(self, patience: int = 2) -> None:
        if patience < 1:
            raise ValueError(f"Patient(patience=...) must be positive, got {patience!r}")
        self.patience = patience
        self.rejected = 0

    def decide(self, value, new_value, rng: random.Random):
        accepted = new_value <= value or self.rejected >= self.patience
        return Verdict.of(value, new_value, accepted=accepted)

    def observe(self, setting, verdict):
        self.rejected = 0 if verdict.accepted else self.rejected + 1

    def state_dict(self):
        return {"rejected": self.rejected}

    def load_state_dict(self, state):
        self.rejected = state["rejected"]


class Picky(PlainStrategy):
    def check(self, neighborhood):
        raise ValueError(f"must have one setting, got {len(neighborhood)}")


class Broken(PlainStrategy):
    def __init__(self):
        raise KeyError("nothing works")


class Warm(PlainStrategy):
    def __init__(self, temperature):
        self.heat = temperature


class Several(PlainStrategy):
    candidates = 4

    def shortlist(self, neighborhood, rng):
        return tuple(neighborhood)[:4]

    def select(self, value, measured):
        return min(measured, key=measured.get)

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=new_value <= value)


class Nothing:
    pass


def function():
    return Patient()
'''


@pytest.fixture
def own(place, monkeypatch):
    (place / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(place))


class TestOnesOwn:
    @pytest.mark.usefixtures("own")
    def test_from_the_command_line(self, program, place, lines_of, tiny_flags):
        flags = ["train", *tiny_flags, "--strategy", "own:Patient", "--set", "sgd-sa.lr=[50.0]"]
        done = program(
            *flags, "--set", "sgd-sa.strategy_options={ patience = 1 }", "--out", "patient"
        )
        assert done.code == 0, done.err
        config = tomllib.loads((place / "patient/config.toml").read_text())["sgd-sa"]
        assert config["strategy"] == "own:Patient"
        assert config["strategy_options"] == {"patience": 1}
        records = lines_of(place / "patient/metrics.jsonl")
        # At a rate of 50 most moves worsen: one is rejected, the next one kept.
        assert sum(record["rejected_worsening"] for record in records) >= 4
        assert sum(record["accepted_worsening"] for record in records) >= 4
        assert program("evaluate", "patient").code == 0
        other = ["--set", "sgd-sa.strategy_options={ patience = 9 }", "--resume"]
        assert program(*flags, *other, "--out", "patient").code == 2

    @pytest.mark.usefixtures("own")
    def test_it_may_compare_candidates(self, session, by_hand, trained, by_the_library):
        run = session(**{"sgd-sa": {"lr": RATES, "strategy": "own:Several"}})
        found = trained(run)
        model, batches = by_hand()
        strategy = importlib.import_module("own").Several()
        tuner = SGDSA(model, grid(lr=RATES), strategy=strategy)
        assert_same(found, by_the_library(tuner, model, batches))
        assert run.forwards == len(found) * (1 + 4)
        assert {info.setting["lr"] for info in found} <= set(RATES[:4])
        assert all(info.accepted == (info.new_loss <= info.loss) for info in found)

    def test_is_not_imported_to_check_a_config(self):
        config = from_values({"sgd-sa": {"strategy": "nowhere.at_all:Strategy"}})
        assert config.sgd_sa.strategy == "nowhere.at_all:Strategy"

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"strategy": "own:Patience"}, "own has no 'Patience'; did you mean 'Patient'?"),
            ({"strategy": "owns:Patient"}, "importing owns failed: ModuleNotFoundError"),
            ({"strategy": "own:function"}, "must be a class, got <function function"),
            ({"strategy": "own:Nothing"}, "must make a Strategy, got <own.Nothing"),
            ({"strategy": "own:Broken"}, "KeyError: 'nothing works'"),
            ({"strategy": "own:Picky"}, "ValueError: must have one setting, got 5"),
            (
                {"strategy": "own:Patient", "strategy_options": {"patience": 0}},
                "Patient(patience=...) must be positive, got 0",
            ),
            (
                {"strategy": "own:Patient", "strategy_options": {"patiance": 3}},
                "must be among patience, got 'patiance'; did you mean 'patience'?",
            ),
            (
                {"strategy": "own:Patient", "temperature": 1.0},
                "temperature = 1.0: must be left out with strategy = 'own:Patient'",
            ),
            (
                {"strategy": "own:Several", "accept_batch": "next"},
                "compares 4 candidates a step, but accept_batch = 'next' tries one",
            ),
        ],
    )
    @pytest.mark.usefixtures("own")
    def test_one_that_cannot_be_used(self, program, place, tiny, options, told):
        (place / "run.toml").write_text(tiny(**{"sgd-sa": {"lr": RATES, **options}}).to_toml())
        refused = program("train", "run.toml", "--out", "refused")
        assert refused.code == 2
        assert refused.err.startswith(f"annealtune: sgd-sa.strategy = {options['strategy']!r}: ")
        assert told in refused.err
        assert len(refused.err.splitlines()) == 1
        assert not (place / "refused/config.toml").exists()

    @pytest.mark.usefixtures("own")
    def test_a_temperature_reaches_one_that_takes_it(self, session):
        block = {"strategy": "own:Warm"}
        heat = session(**{"sgd-sa": {**block, "temperature": 2.0}}).method._optimizer.strategy.heat
        assert heat == 2.0
        assert isinstance(session(**{"sgd-sa": block}).method._optimizer.strategy.heat, Automatic)


# --- adamw-sa ---


class TestAdamwSa:
    def test_is_the_tuner_around_adamw(self, session, by_hand, trained, by_the_library):
        block = {
            "lr": [0.1, 0.01],
            "weight_decay": [0.0, 0.1],
            "betas": [[0.9, 0.999], [0.5, 0.9]],
            "eps": [1e-8, 1e-4],
        }
        run = session(method="adamw-sa", decision_seed=4, **{"adamw-sa": block})
        found = trained(run)
        model, batches = by_hand()
        options = {**block, "betas": [tuple(pair) for pair in block["betas"]]}
        tuner = EmbeddedTuner(
            torch.optim.AdamW(model.parameters(), lr=0.1),
            model=model,
            neighborhood=grid(**options),
            epochs=3,
            seed=4,
        )
        assert_same(found, by_the_library(tuner, model, batches))
        weights = run.model.state_dict()
        assert all(torch.equal(weights[n], wanted) for n, wanted in model.state_dict().items())
        assert len({info.setting["betas"] for info in found}) == 2

    def test_its_rates_are_seven_from_1e_4_to_1e_2(self, session):
        tuner = session(method="adamw-sa", **{"adamw-sa": {"temperature": 1.0}}).method._optimizer
        rates = [setting["lr"] for setting in tuner.neighborhood]
        assert rates == pytest.approx([1e-4 * 10 ** (k / 3) for k in range(7)])
        (group,) = tuner.param_groups
        assert (group["betas"], group["weight_decay"], group["eps"]) == ((0.9, 0.999), 0.01, 1e-8)

    def test_learns(self, complete, lines_of):
        directory = complete(method="adamw-sa", epochs=20)
        first, *_, last = lines_of(directory / "metrics.jsonl")
        assert last["train_loss"] < 0.9 * first["train_loss"]
        assert math.isfinite(last["temperature"])
        assert (first["forwards"], first["backwards"]) == (12, 6)


# --- Short flags ---


class TestShortFlags:
    FLAGS = ("--strategy", "genetic", "--accept-on", "error", "--accept-batch", "held-out")

    @pytest.mark.parametrize("method", ["sgd-sa", "adamw-sa"])
    def test_are_keys_of_the_chosen_method(self, program, method):
        printed = program("config", "--method", method, *self.FLAGS)
        block = tomllib.loads(printed.out)[method]
        found = [block[key] for key in ("strategy", "accept_on", "accept_batch")]
        assert found == ["genetic", "error", "held-out"]

    @pytest.mark.parametrize("spelled", ["sgd-sa", "sgd_sa"])
    def test_win_over_the_file_and_keep_what_is_beside(self, program, place, spelled):
        (place / "run.toml").write_text(f"[{spelled}]\nlr = [0.5, 0.1]\nstrategy = 'tabu'\n")
        flags = ("--method", "sgd-sa", "--strategy", "hill-climbing")
        printed = program("config", "run.toml", *flags)
        block = tomllib.loads(printed.out)["sgd-sa"]
        assert block["strategy"] == "hill-climbing"
        assert block["lr"] == [0.5, 0.1]

    @pytest.mark.parametrize(
        ("method", "flag", "key"),
        [
            *((m, "--strategy", "strategy") for m in ("sgd", "random-rate")),
            *((m, "--accept-on", "accept_on") for m in ("sgd", "ssa", "random-rate")),
            *((m, "--accept-batch", "accept_b") for m in ("sgd", "ssa", "random-rate")),
        ],
    )
    def test_a_method_that_has_no_such_key(self, program, method, flag, key):
        refused = program("train", "--method", method, flag, "next")
        assert refused.code == 2
        assert refused.err.startswith(
            f"annealtune: {flag} next: method = {method!r} has no key {key}"
        )
        having = "sgd-sa, adamw-sa and ssa" if key == "strategy" else "sgd-sa and adamw-sa"
        assert refused.err.rstrip().endswith(f"; {having} have it")
        assert len(refused.err.splitlines()) == 1

    def test_train_a_run(self, program, place, tiny_flags):
        done = program("train", *tiny_flags, "--method", "adamw-sa", *self.FLAGS, "--out", "run")
        assert done.code == 0, done.err
        block = tomllib.loads((place / "run/config.toml").read_text())["adamw-sa"]
        assert block["strategy"] == "genetic"
