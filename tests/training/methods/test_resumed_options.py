"""Whatever a method is told, a run that is killed and resumed ends with the same bits."""

import signal

import pytest

from annealtune.annealing import STRATEGIES

RESOLVE = "annealtune.optim.embedded:EmbeddedTuner._decide"
LOOP = {
    "lr": [2.0, 0.3],
    "label_smoothing": [0.0, 0.1],
    "dropout": [0.1, 0.5],
    "clip_norm": [0.5, 5.0],
    "augment_strength": [0.0, 0.5, 1.0],
}
ONE_CANDIDATE = {"candidates": 1}
# Named by what could be forgotten in a checkpoint.
CASES = {
    "the gradient": {"lr": [5.0, 0.5], "temperature": 0.01, "accept_batch": "next"},
    "the gradient and the options of the loop": {**LOOP, "accept_batch": "next"},
    "the gradient, judged by the error": {
        "lr": [5.0, 0.5],
        "accept_batch": "next",
        "accept_on": "error",
        "strategy": "late-acceptance",
    },
    "the gradient, judged by a function": {
        "lr": [5.0, 0.5],
        "momentum": [0.0, 0.9],
        "accept_batch": "next",
        "accept_on": "counted:wrong",
        "strategy": "tabu",
        "strategy_options": ONE_CANDIDATE,
    },
    "the place among the images held out": {
        "lr": [5.0, 0.5],
        "accept_batch": "held-out",
        "held_out_fraction": 0.4,
    },
    "that place and the options of the loop": {
        **LOOP,
        "accept_batch": "held-out",
        "accept_on": "error",
        "strategy": "genetic",
    },
    "the options of the loop": {**LOOP, "temperature": 0.001},
    "the options of the loop and a strategy's memory": {
        **LOOP,
        "strategy": "variable-neighborhood",
        "strategy_options": {"levels": 2},
    },
    "the options of the loop and what is tabu": {
        **LOOP,
        "strategy": "tabu",
        "strategy_options": ONE_CANDIDATE,
    },
    "the scales": {"lr": [2.0, 0.3], "momentum": [0.9], "scales": {"classifier": 0.1}},
}
FUNCTION = """
def wrong(model, minibatch):
    return (model(minibatch.inputs).argmax(1) != minibatch.labels).sum()
"""


@pytest.fixture
def same_when_killed(place, program, at_call, outcome, tiny):
    """Checks that a run killed at the n-th call of a function ends as an undisturbed one."""

    def same_when_killed(target, count, every=2, **changes):
        (place / "counted.py").write_text(FUNCTION)
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
    options = CASES[case]
    augment = "crop-flip" if "augment_strength" in options else "none"
    same_when_killed(RESOLVE, 9, augment=augment, **{"sgd-sa": options})


@pytest.mark.parametrize(("every", "count"), [(1, 1), (5, 6), (6, 6)])
def test_a_gradient_that_waits_from_the_first_step_on_and_across_epochs(
    same_when_killed, every, count
):
    """Saved after the first step, in the first epoch and at its end."""
    options = {**LOOP, "accept_batch": "next"}
    same_when_killed(RESOLVE, count, every, augment="crop-flip", **{"sgd-sa": options})


def test_images_held_out_across_their_own_epochs(same_when_killed):
    """18 images in minibatches of 18: each step begins a new pass over them."""
    same_when_killed(RESOLVE, 9, 1, **{"sgd-sa": {"accept_batch": "held-out"}})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_around_adamw(same_when_killed, strategy):
    options = {"betas": [[0.9, 0.999], [0.7, 0.9]], "strategy": strategy}
    same_when_killed(RESOLVE, 9, method="adamw-sa", **{"adamw-sa": options})


def test_a_step_that_a_scaler_skips_keeps_what_was_picked(same_when_killed):
    same_when_killed(RESOLVE, 6, 1, augment="crop-flip", precision="fp16", **{"sgd-sa": LOOP})
