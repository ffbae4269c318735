"""The paper's experiments by name: their files are there, fit together and say what they claim."""

from pathlib import Path

import pytest

from annealtune.errors import ConfigError
from annealtune.studies.plan import make_plan, parse_seeds
from annealtune.studies.reproduction import (
    EXPERIMENTS,
    REPRODUCTIONS,
    SIZES,
    find_experiment,
)
from annealtune.training.config import assign, from_values, read_toml

ROOT = Path(__file__).parents[2]
FILES = sorted(EXPERIMENTS.glob("*.toml"))
PARTS = [
    pytest.param(part, size, id=f"{name}-{size}-{part.name(size)}")
    for name, each in REPRODUCTIONS.items()
    for part in each.parts
    for size in SIZES
]


def values_of(name):
    return read_toml(find_experiment(Path(name)))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_experiment_is_a_run_and_a_study(file):
    values = read_toml(file)
    from_values(values)
    make_plan(values, name=file.stem)


def test_the_documented_place_leads_to_the_shipped_files():
    assert sorted((ROOT / "experiments").glob("*.toml"))
    assert (ROOT / "experiments").resolve() == EXPERIMENTS


def planned(part, size, *assignments, seeds=None):
    values = values_of(part.file)
    for assignment in (*part.assignments(size), *assignments):
        assign(values, assignment)
    seeds = parse_seeds(part.seeds[size] if seeds is None else seeds)
    return make_plan(values, name="x", methods=part.methods, seeds=seeds, vary=part.vary)


@pytest.mark.parametrize(("part", "size"), PARTS)
def test_every_part_can_be_planned_and_costed(part, size):
    plan = planned(part, size)
    assert tuple(plan.configs) == part.methods
    assert 0 < part.hours(plan, size, 2) < 24 * 30
    assert size == "paper" or part.hours(plan, size, 1) == 2 * part.hours(plan, size, 2)


def test_figures_share_the_runs_of_the_table():
    parts = set(map(id, REPRODUCTIONS["table-1"].parts))
    for name in ("figure-2", "figure-3", "figure-4"):
        assert {id(part) for part in REPRODUCTIONS[name].parts} <= parts
    for size in SIZES:
        names = {part.name(size) for each in REPRODUCTIONS.values() for part in each.parts}
        assert len(names) == 5  # two nets, SSA, and the net of the seed remark twice


def test_the_regime_is_the_paper_s_but_for_the_widths():
    for part in REPRODUCTIONS["table-1"].parts:
        configs = {size: planned(part, size).configs for size in ("regime", "paper")}
        for method in part.methods:
            regime, paper = (configs[size][method].to_dict() for size in ("regime", "paper"))
            differing = {key for key in regime | paper if regime.get(key) != paper.get(key)}
            assert differing == {"model", "threads"}
            assert regime["model"].startswith(f"{paper['model']}-w")


def test_the_paper_s_two_readings_of_figure_1():
    [part] = REPRODUCTIONS["figure-1"].parts
    configs = planned(part, "regime").configs
    text, code = (configs[f"ssa-paper-{each}"].ssa for each in ("text", "code"))
    assert (text.preset, code.preset) == ("paper-text", "paper-code")
    assert (text.radius, code.radius) == (0.01, 0.01)
    assert {config.batch_size for config in configs.values()} == {512}
    assert configs["sgd"].sgd.lr == 0.001


def test_the_small_size_takes_minutes():
    for each in REPRODUCTIONS.values():
        plans = [planned(part, "small") for part in each.parts]
        assert each.hours(plans, "small", 1) < 0.25


def test_the_estimate_follows_what_is_set():
    part = REPRODUCTIONS["table-1"].parts[0]
    whole = part.hours(planned(part, "regime"), "regime", 1)
    assert part.hours(planned(part, "regime", "epochs=10"), "regime", 1) == pytest.approx(
        whole / 10
    )
    assert part.hours(planned(part, "regime", seeds="0"), "regime", 1) == pytest.approx(whole / 3)
    assert part.hours(planned(part, "regime", "train_size=5000"), "regime", 1) < whole / 2


@pytest.mark.parametrize(
    "name", ["paper-cifar10-vgg16", "paper-cifar10-resnet34", "paper-fashion-mnist-ssa"]
)
def test_the_paper_s_own_settings(name):
    values = values_of(name)
    assert (values["epochs"], values["batch_size"], values["validate_on"]) == (100, 512, "test")
    assert values["scheduled-sgd"] == {"lr": 0.1, "factor": 0.1, "milestones": [0.3, 0.7]}


def test_the_demo_says_itself_what_is_studied():
    for name in ("demo", "demo-siren"):
        planned = make_plan(values_of(name), name=name)
        tuned, *fixed = planned.configs
        assert tuned == "self-tuned"
        rates = {
            config.adamw.lr: config.adamw for m, config in planned.configs.items() if m != tuned
        }
        assert list(rates) == [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
        assert fixed == [f"adamw-{rate:g}" for rate in rates]
        assert {options.schedule for options in rates.values()} == {"held"}


def test_a_file_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_experiment(Path("demo")) == EXPERIMENTS / "demo.toml"
    (tmp_path / "demo").write_text("")
    assert find_experiment(Path("demo")) == Path("demo")


def test_a_name_that_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("nowhere", "demo.toml", "x/demo"):
        with pytest.raises(ConfigError, match="there is no such file"):
            find_experiment(Path(name))
