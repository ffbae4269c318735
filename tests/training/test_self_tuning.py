"""Runs that find their rates themselves: what is recorded, what is saved, and that they resume."""

import math
import tomllib

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, SelfTuning
from annealtune.errors import ConfigError, RunStoppedError
from annealtune.training.annealed_options import AdamwSaOptions, SgdSaOptions
from annealtune.training.config import from_values, read_toml
from annealtune.training.entry import run
from annealtune.training.stopping import StopRequest

# 72 steps: the search takes the first thirty of them, at least.
EPOCHS = 12
ADAMW = {"method": "adamw-sa", "epochs": EPOCHS}
SGD = {"method": "sgd-sa", "epochs": EPOCHS, "sgd-sa": {"strategy": "self-tuning"}}
BOTH = pytest.mark.parametrize("changes", [ADAMW, SGD], ids=["adamw-sa", "sgd-sa"])


def tuner_of_the_library(changes, model):
    if changes is SGD:
        return SGDSA(model, total_steps=6 * EPOCHS)
    base = torch.optim.AdamW(model.parameters())
    return EmbeddedTuner(base, model=model, total_steps=6 * EPOCHS)


@BOTH
def test_it_is_the_default_of_the_library(session, by_hand, trained, by_the_library, changes):
    made = session(**changes)
    tuner = made.method._optimizer
    assert isinstance(tuner.strategy, SelfTuning)
    assert tuner.averages
    found = trained(made, epochs=EPOCHS)
    model, batches = by_hand()
    expected = by_the_library(tuner_of_the_library(changes, model), model, batches, epochs=EPOCHS)
    assert found == expected
    assert {move.probed for move in found} == {True, False}


@BOTH
def test_its_config_says_so_and_is_read_back_the_same(tiny, complete, changes):
    directory = complete(**{**changes, "epochs": 1})
    values = read_toml(directory / "config.toml")
    assert values[changes["method"]]["strategy"] == "self-tuning"
    assert "lr" not in values[changes["method"]]
    del values["environment"]
    read = from_values(values)
    assert read.options.tunes_itself
    assert read == tiny(**{**changes, "epochs": 1, "device": read.device})
    assert from_values(tomllib.loads(read.to_toml())) == read


@pytest.mark.parametrize("block", [{"lr": [0.01]}, {"temperature": 0.5}, {"strategy": "tabu"}])
def test_a_block_with_anything_in_it_is_obeyed(session, block):
    method = session(**{**ADAMW, "adamw-sa": block}).method
    assert not isinstance(method._optimizer.strategy, SelfTuning)
    assert not method._optimizer.averages


@BOTH
def test_the_best_weights_are_averages(complete, by_hand, lines_of, changes):
    directory = complete(**changes)
    model, batches = by_hand()
    tuner = tuner_of_the_library(changes, model)
    averages, last = [], []
    for epoch in range(EPOCHS):
        for inputs, labels in batches:
            tuner.step(lambda: F.cross_entropy(model(inputs), labels))  # noqa: B023
        with tuner.averaged(batches.sample(50, epoch=epoch)):
            averages.append({name: t.clone() for name, t in model.state_dict().items()})
        tuner.cool()
        last.append({name: t.clone() for name, t in model.state_dict().items()})
    records = lines_of(directory / "metrics.jsonl")
    rank = lambda record: (record["validation_accuracy"], -record["validation_loss"])
    best = records.index(max(records, key=rank))
    saved = load_file(directory / "best.safetensors")
    assert saved.keys() == averages[best].keys()
    for name, tensor in saved.items():
        assert torch.equal(tensor, averages[best][name]), name
    assert any(not torch.equal(tensor, last[best][name]) for name, tensor in saved.items())


@BOTH
def test_the_scores_are_those_of_the_averages(session, changes):
    made = session(**changes)
    for _ in made.train():
        pass
    raw = made.scores(lambda: None)
    with made.judged():
        averaged = made.scores(lambda: None)
    assert made.scores(lambda: None) == raw
    assert averaged != raw


@BOTH
def test_the_share_of_measured_steps_is_recorded(complete, lines_of, changes):
    records = lines_of(complete(**changes) / "metrics.jsonl")
    assert all("probe_share" not in record for record in records[:5])  # the search, all measured
    for record in records[-3:]:
        probed = record["forwards"] - record["step"]
        assert record["probe_share"] == pytest.approx(probed / record["step"])
        assert record["rolled_back"] == 0
        assert math.isfinite(record["temperature"])
    assert records[-1]["probe_share"] < records[-3]["probe_share"] < 1
    assert records[-1]["backwards"] == records[-1]["step"] == 72


@BOTH
@pytest.mark.parametrize("after", [1, 5, 9])
def test_stopped_after_an_epoch_and_resumed_it_is_the_same_run(
    tiny, place, undisturbed, outcome, changes, after
):
    config = tiny(**changes)
    with pytest.raises(RunStoppedError, match=f"{after} of {EPOCHS} epochs complete"):
        run(config, place / "stopped", stop=StopRequest(after_epoch=after))
    run(config, place / "stopped")
    assert outcome(place / "stopped") == undisturbed(**changes)


def test_a_step_that_broke_is_undone_and_the_run_goes_on(session):
    made = session(**ADAMW)
    tuner, losses = made.method._optimizer, []
    for _ in range(EPOCHS):
        for loss in made.train():
            losses.append(loss)
            if len(losses) > 50 and not tuner.probes.rolled_back and not tuner.last_step.probed:
                with torch.no_grad():
                    next(made.model.parameters()).fill_(math.nan)
        made.method.end_epoch()
        made.epoch += 1
    assert len(losses) == 72
    assert [math.isnan(loss) for loss in losses].count(True) == 1
    assert tuner.probes.rolled_back == 1
    assert made.method.readings()["rolled_back"] == 1
    assert math.isfinite(made.tally.metrics()["train_loss"])


# --- What cannot be ---

# A value that is not the default, for every key that a block has.
OTHERS = {
    "lr": [0.1],
    "momentum": [0.9],
    "dampening": [0.1],
    "weight_decay": [0.1],
    "nesterov": [True],
    "betas": [[0.9, 0.99]],
    "eps": [1e-6],
    "amsgrad": [True],
    "settings": [{"lr": 0.1}],
    "label_smoothing": [0.1],
    "dropout": [0.1],
    "clip_norm": [1.0],
    "augment_strength": [0.5],
    "scales": {"classifier": 0.1},
    "temperature": 0.5,
    "cooling_factor": 0.5,
    "cooling_per": "step",
    "floor": 0.1,
    "reheat_every": 3,
    "reheat_times": 2,
    "preset": "paper-text",
    "strategy_options": {"tenure": 2},
    "accept_on": "error",
    "accept_batch": "next",
    "held_out_fraction": 0.3,
}
CASES = [
    (method, key)
    for method, options in (("sgd-sa", SgdSaOptions), ("adamw-sa", AdamwSaOptions))
    for key in options.model_fields
    if key != "strategy"
]


@pytest.mark.parametrize(("method", "key"), CASES)
def test_any_other_key_beside_it_is_refused_by_its_name(method, key):
    block = {"strategy": "self-tuning", key: OTHERS[key]}
    with pytest.raises(ConfigError) as caught:
        from_values({"method": method, method: block})
    assert method in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize("key", ["lr", "weight_decay", "temperature", "accept_on", "dropout"])
def test_and_the_message_says_why(key):
    with pytest.raises(ConfigError, match=f"{key} = .*must be left out with .*'self-tuning'"):
        from_values({"sgd-sa": {"strategy": "self-tuning", key: OTHERS[key]}})


def test_ssa_has_no_rates_to_find():
    with pytest.raises(ConfigError, match=r"ssa\.strategy: must be one of .*got 'self-tuning'"):
        from_values({"method": "ssa", "ssa": {"strategy": "self-tuning"}})
