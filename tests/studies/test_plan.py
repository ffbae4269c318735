"""A plan is checked whole before anything starts, and says in words what is wrong with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from annealtune.errors import ConfigError
from annealtune.studies.plan import BUILT_IN, make_plan, parse_seeds
from annealtune.training.config import from_values

SOURCE = Path(__file__).parents[2] / "src"
PRESET = {"preset": "paper-code", "temperature": 512.0, "lr": [0.5, 0.1]}


def plan(values=None, **options):
    return make_plan(values or {}, name="study", **options)


# --- Seeds ---


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0-9", tuple(range(10))),
        ("0,3,5-7", (0, 3, 5, 6, 7)),
        ("4", (4,)),
        (" 2 , 1 ", (2, 1)),
        ("3 - 4", (3, 4)),
        ([0, 7], (0, 7)),
        (["0-1", 5], (0, 1, 5)),
        (3, (3,)),
    ],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "1,two", "-1", "1.5", "9-0", "1,0-3", "0-99999999999", [True], []]
)
def test_seeds_that_are_none(text):
    with pytest.raises(ConfigError, match="seeds"):
        parse_seeds(text)


# --- Methods ---


def test_methods_x_seeds_seed_by_seed():
    runs = plan(methods=["sgd", "adamw"], seeds=[3, 1]).tasks(Path())
    assert [(run.method, run.seed, run.config.method, run.config.seed) for run in runs] == [
        ("sgd", 3, "sgd", 3),
        ("adamw", 3, "adamw", 3),
        ("sgd", 1, "sgd", 1),
        ("adamw", 1, "adamw", 1),
    ]


@pytest.mark.parametrize("label", BUILT_IN)
def test_every_built_in_name_is_a_run(label):
    (run,) = plan({"epochs": 7}, methods=[label], seeds=[5]).tasks(Path())
    assert run.config.method == BUILT_IN[label]["method"]
    assert run.config.epochs == 7
    assert run.config.seed == 5


def test_a_preset_keeps_the_neighborhood_of_the_block():
    values = {"sgd-sa": {"lr": [0.5, 0.1], "momentum": [0.0, 0.9]}}
    configs = plan(values, methods=["sgd-sa", "sgd-sa-paper-text", "sgd-sa-paper-code"]).configs
    assert [config.sgd_sa.preset for config in configs.values()] == [
        None,
        "paper-text",
        "paper-code",
    ]
    assert {config.sgd_sa.neighborhood() for config in configs.values()} == {
        configs["sgd-sa"].sgd_sa.neighborhood()
    }


def test_the_temperature_of_a_block_is_that_of_its_preset_alone():
    methods = ["sgd-sa", "sgd-sa-paper-code", "sgd-sa-paper-text"]
    configs = plan({"sgd-sa": PRESET}, methods=methods).configs
    assert configs["sgd-sa"] == configs["sgd-sa-paper-code"]
    assert configs["sgd-sa-paper-code"].sgd_sa.temperature == 512
    assert configs["sgd-sa-paper-text"].sgd_sa.temperature is None
    assert configs["sgd-sa-paper-text"].sgd_sa.lr == (0.5, 0.1)


def test_a_table_of_the_file_goes_before_the_block():
    values = {
        "sgd-sa": {"lr": [0.5], "temperature": 1.0},
        "methods": {
            "hot": {"method": "sgd-sa", "temperature": 9.0},
            "wide": {"method": "sgd-sa", "lr": [0.9, 0.1]},
            "text": {"method": "sgd-sa-paper-text", "momentum": [0.9]},
        },
    }
    configs = plan(values).configs
    assert list(configs) == ["hot", "wide", "text"]
    assert (configs["hot"].sgd_sa.temperature, configs["hot"].sgd_sa.lr) == (9.0, (0.5,))
    assert (configs["wide"].sgd_sa.temperature, configs["wide"].sgd_sa.lr) == (1.0, (0.9, 0.1))
    assert (configs["text"].sgd_sa.temperature, configs["text"].sgd_sa.preset) == (
        None,
        "paper-text",
    )


def test_a_preset_leaves_another_strategy_aside():
    values = {"sgd-sa": {"lr": [0.5, 0.1], "strategy": "tabu", "strategy_options": {"tenure": 1}}}
    configs = plan(values, methods=["sgd-sa", "sgd-sa-paper-text"]).configs
    assert configs["sgd-sa"].sgd_sa.strategy == "tabu"
    paper = configs["sgd-sa-paper-text"].sgd_sa
    assert (paper.strategy, paper.strategy_options) == ("simulated-annealing", None)
    assert paper.lr == (0.5, 0.1)


def test_what_the_file_says_is_studied():
    table = {"methods": ["sgd", "adamw"], "seeds": "2-3", "vary": "init_seed"}
    told = plan({"study": table, "method": "ssa"})
    assert (tuple(told.configs), told.seeds, told.vary) == (("sgd", "adamw"), (2, 3), "init_seed")
    asked = plan({"study": table}, methods=["ssa"], seeds=[0], vary="seed")
    assert (tuple(asked.configs), asked.seeds, asked.vary) == (("ssa",), (0,), "seed")
    plain = plan({"method": "ssa"})
    assert (tuple(plain.configs), plain.seeds, plain.vary) == (("ssa",), tuple(range(10)), "seed")


def test_one_run_ignores_what_the_file_says_of_a_study():
    values = {"model": "mlp", "study": {"seeds": "0-2"}, "methods": {"a": {"method": "sgd"}}}
    assert from_values(values) == from_values({"model": "mlp"})


@pytest.mark.parametrize("vary", ["init_seed", "data_seed", "decision_seed"])
def test_one_of_the_seeds_alone(vary):
    runs = plan({"seed": 7}, methods=["sgd"], seeds=[1, 2], vary=vary).tasks(Path())
    for run in runs:
        others = {name: seed for name, seed in run.config.seeds.items() if name != vary}
        assert run.config.seeds[vary] == run.seed
        assert set(others.values()) == {7}


# --- What is refused ---


@pytest.mark.parametrize(
    ("values", "options", "named"),
    [
        ({}, {"methods": ["sgdsa"]}, "sgdsa"),
        ({}, {"methods": ["sgd", "sgd"]}, "methods"),
        ({}, {"vary": "epochs"}, "vary"),
        ({"study": {"seed": 3}}, {}, "study = 'seed'"),
        ({"study": {"methods": "sgd"}}, {}, r"study\.methods"),
        ({"methods": ["sgd"]}, {}, r"study\.methods"),
        ({"methods": {"a": {"lr": 1}}}, {}, r"methods\.a"),
        ({"methods": {"a": {"method": "sdg"}}}, {}, r"methods\.a\.method"),
        ({"methods": {"sgd": {"method": "sgd"}}}, {}, r"methods\.sgd"),
        ({"methods": {"a": {"method": "sgd", "lr": -1.0}}}, {}, r"sgd\.lr"),
        ({"methods": {"A": {"method": "sgd"}, "a": {"method": "sgd"}}}, {}, "methods"),
    ],
)
def test_says_what_is_wrong(values, options, named):
    with pytest.raises(ConfigError, match=named):
        plan(values, **options)


@pytest.mark.parametrize("label", ["a/b", ".hidden", ""])
def test_a_name_that_is_no_directory_name_is_refused(label):
    with pytest.raises(ConfigError, match="methods"):
        plan({"methods": {label: {"method": "sgd"}}})


def test_planning_needs_no_torch():
    code = """
import pathlib, sys
from annealtune.cli import studies
from annealtune.studies import plan, records
plan.make_plan({}, name="x").tasks(pathlib.Path())
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, check=True)


def test_a_table_may_have_a_length_of_its_own_for_comparisons_at_equal_cost():
    values = {
        "epochs": 12,
        "methods": {"dear": {"method": "sgd-sa", "epochs": 8, "lr": [0.1]}},
    }
    planned = plan(values, methods=["dear", "sgd-sa", "scheduled-sgd"], seeds=[0])
    assert [config.epochs for config in planned.configs.values()] == [8, 12, 12]
    assert planned.configs["dear"].sgd_sa.lr == (0.1,)
