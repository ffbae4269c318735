"""The config: every key explained and checked, by name, before anything is loaded."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annealtune.errors import ConfigError
from annealtune.training.config import Options, RunConfig, from_values, read_toml
from annealtune.training.config.blocks import AnnealingOptions
from annealtune.training.config.run_config import FREE_KEYS

METHODS = (
    "self-tuned",
    "sgd-sa",
    "adamw-sa",
    "ssa",
    "scheduled-sgd",
    "sgd",
    "adamw",
    "random-rate",
)
BLOCKS = {
    field.alias or name: field.annotation
    for name, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Options)
}
KEYS = [name for name in RunConfig.model_fields if name.replace("_", "-") not in BLOCKS]


class TestEveryKey:
    def test_each_method_has_its_block(self):
        assert tuple(BLOCKS) == METHODS

    def test_has_a_description_of_one_line(self):
        fields = {name: RunConfig.model_fields[name] for name in KEYS}
        for block, options in BLOCKS.items():
            fields |= {f"{block}.{name}": field for name, field in options.model_fields.items()}
        assert len(fields) > 40
        for name, field in fields.items():
            assert field.description, name
            assert "\n" not in field.description, name
            assert len(field.description) < 120, name

    def test_free_keys_exist(self):
        assert set(KEYS) >= FREE_KEYS

    def test_nothing_can_be_changed(self):
        with pytest.raises(ValueError, match="frozen"):
            from_values({}).epochs = 3

    @pytest.mark.parametrize("method", METHODS)
    def test_the_block_of_the_method_is_chosen(self, method):
        config = from_values({"method": method})
        assert type(config.options) is BLOCKS[method]
        assert [key for key, value in config.to_dict().items() if isinstance(value, dict)] == [
            method
        ]


class TestAccepted:
    @pytest.mark.parametrize("every", ["epoch", "1", "500", "5m", 500])
    def test_checkpoints_by_epochs_steps_or_minutes(self, every):
        assert from_values({"checkpoint_every": every}).checkpoint_every == str(every)

    def test_what_was_noted_of_the_environment_is_ignored(self):
        assert from_values({"environment": {"whatever": 1, "torch": []}}) == from_values({})


# --- From values to TOML and back ---

positive = st.integers(1, 2**31 - 1)
seeds = st.integers(0, 2**63 - 1)
rates = st.floats(0, 1e30, exclude_min=True)
not_negative = st.floats(0, 1e30)
factors = st.floats(0, 1, exclude_min=True, exclude_max=True)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def merged(dictionaries):
    return {key: value for each in dictionaries for key, value in each.items()}


def lists(values):
    return st.lists(values, min_size=1, max_size=3, unique=True) | values


neighborhoods = st.fixed_dictionaries(
    {},
    optional={
        "lr": lists(not_negative),
        "momentum": lists(not_negative),
        "weight_decay": lists(not_negative),
        "nesterov": st.just([True, False]) | st.just(False),
    },
)
adamw_neighborhoods = st.fixed_dictionaries(
    {},
    optional={
        "lr": lists(not_negative),
        "weight_decay": lists(not_negative),
    },
)
acceptances = st.fixed_dictionaries({}, optional={"accept_on": st.sampled_from(["loss", "error"])})
strategies = st.sampled_from(
    [
        {},
        {"strategy": "tabu", "strategy_options": {"tenure": 0, "candidates": 2}},
        {"strategy": "genetic", "strategy_options": {"population": 3, "trials": 2}},
        {"strategy": "my.package:Strategy", "strategy_options": {"a": [1, {"b": "c"}]}},
    ]
)
temperatures = st.fixed_dictionaries(
    {"temperature": not_negative | st.just(math.inf)},
    optional={"preset": st.sampled_from(["paper-text", "paper-code"])},
)
blocks = {
    "sgd-sa": st.tuples(neighborhoods, acceptances, temperatures).map(merged)
    | st.tuples(neighborhoods, acceptances, strategies).map(merged),
    "adamw-sa": st.tuples(adamw_neighborhoods, acceptances, strategies).map(merged),
    "random-rate": neighborhoods,
    "ssa": st.tuples(
        temperatures,
        st.fixed_dictionaries(
            {"radius": rates},
            optional={"objective": st.just("error")},
        ),
    ).map(lambda pair: pair[0] | pair[1]),
    "scheduled-sgd": st.fixed_dictionaries(
        {"lr": rates, "factor": factors, "milestones": st.lists(st.floats(0, 1), max_size=4)}
    ),
    "sgd": st.fixed_dictionaries({"lr": rates}),
    "adamw": st.fixed_dictionaries({"lr": rates, "weight_decay": not_negative}),
}
valid = st.fixed_dictionaries(
    {"method": st.sampled_from(METHODS), **blocks},
    optional={
        "data": st.sampled_from(["digits", "cifar10", "image-folder", "my.package:data"]),
        "data_dir": text,
        "image_size": st.tuples(positive, positive),
        "train_size": positive,
        "model": st.sampled_from(["vgg16-w8", "resnet34", "mlp", "my.package:net"]),
        "pad": st.integers(0, 64),
        "epochs": positive,
        "batch_size": positive,
        "reshuffle": st.booleans(),
        "seed": seeds,
        "init_seed": seeds,
        "data_seed": seeds,
        "decision_seed": seeds,
        "validation_fraction": factors,
        "threads": st.integers(1, 1024),
        "checkpoint_every": positive.map(str) | positive.map("{}m".format) | positive,
        "device": st.sampled_from(["auto", "cpu", "cuda", "cuda:3", "mps"]),
    },
)


@given(values=valid)
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_printed_is_a_config_and_the_same_one(values, place):
    config = from_values(values)
    printed = config.to_toml({"torch": "2.13.0", "note": "ignored"})
    (place / "config.toml").write_text(printed, encoding="utf-8")
    again = from_values(read_toml(place / "config.toml"))
    assert again.to_dict() == config.to_dict()
    assert again.options == config.options
    assert again.seeds == config.seeds
    assert again.to_toml({"torch": "2.13.0", "note": "ignored"}) == printed


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
known_blocks = st.sampled_from(sorted(BLOCKS)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.dictionaries(st.sampled_from(sorted(BLOCKS[name].model_fields)), anything, max_size=3),
    )
)


@given(
    values=st.dictionaries(
        st.sampled_from(sorted(KEYS)) | st.text(max_size=5), anything, max_size=4
    ),
    block=known_blocks,
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_nonsense_is_refused_in_words(values, block):
    """Whatever the values: a config, or an error that names a key."""
    values = {**values, block[0]: block[1]}
    try:
        again = from_values(values).to_dict()
    except ConfigError as refused:
        words = str(refused)
    else:
        assert from_values(again).to_dict() == again
        return
    assert words.startswith("config: ")


def test_a_config_is_known_without_torch(cold_environment):
    text = (
        "import sys, annealtune.training\n"
        "from annealtune.training.config import from_values\n"
        "from annealtune.cli import runs\n"
        "print(from_values({'model': 'vgg16'}).to_toml())\n"
        "assert not {'torch', 'numpy', 'sklearn', 'scipy'} & set(sys.modules), 'heavy'\n"
        "assert callable(annealtune.training.run) and callable(annealtune.training.load)\n"
        "import annealtune.training.runs as entry\n"
        "assert annealtune.training.run is entry.run\n"
        "assert 'torch' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        env=cold_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'model = "vgg16"' in done.stdout


def test_every_key_of_a_tuned_method_is_documented():
    page = (Path(__file__).parents[3] / "docs" / "runs.md").read_text(encoding="utf-8")
    for block in ("sgd-sa", "adamw-sa"):
        keys = BLOCKS[block].model_fields.keys() - AnnealingOptions.model_fields.keys()
        assert [key for key in keys if f"`{key}`" not in page] == []
