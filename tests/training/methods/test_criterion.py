"""What moves are judged by and on which images, against loops written by hand."""

import itertools
import math
import random
from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from annealtune.errors import ConfigError
from annealtune.training.data import Dataset
from annealtune.training.session import Session

RATES = [8.0, 2.0, 0.3]
JUDGES = """
import torch

def wrong(model, minibatch):
    assert minibatch._fields == ("inputs", "targets")
    return (model(minibatch.inputs).argmax(1) != minibatch.labels).sum()

def empty(model, minibatch):
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return 0

def noisy(model, minibatch):
    return torch.rand(1) + model(minibatch.inputs).var().item()
"""


@pytest.fixture
def judges(place, monkeypatch):
    (place / "judges.py").write_text(JUDGES)
    monkeypatch.syspath_prepend(str(place))


def error(scores, labels):
    return (scores.argmax(1) != labels).double().mean().item()


def wrong(scores, labels):
    return float((scores.argmax(1) != labels).sum())


def loss(scores, labels):
    return F.cross_entropy(scores, labels).item()


VALUES = {"loss": loss, "error": error, "judges:wrong": wrong}


def reference(model, batches, held_out, accept_on, temperature, steps):
    """Algorithm 2 with a black box in its accept test; returns the verdicts."""
    value_of, decisions, verdicts = VALUES[accept_on], random.Random(0), []
    judged = None if held_out is None else itertools.chain.from_iterable(itertools.repeat(held_out))
    parameters = list(model.parameters())
    minibatches = itertools.chain.from_iterable(itertools.repeat(batches))
    for inputs, labels in itertools.islice(minibatches, steps):
        images = (inputs, labels) if judged is None else next(judged)
        start = torch.get_rng_state()
        for p in parameters:
            p.grad = None
        F.cross_entropy(model(inputs), labels).backward()
        end, buffers = torch.get_rng_state(), [b.clone() for b in model.buffers()]

        def measured(images=images, start=start, end=end, buffers=buffers):
            torch.set_rng_state(start)
            with torch.no_grad():
                value = value_of(model(images[0]), images[1])
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


def trained(session, epochs=2):
    verdicts = []
    for _ in range(epochs):
        verdicts += [session.method._optimizer.last_step.accepted for _ in session.train()]
        session.epoch += 1
    return verdicts


@pytest.mark.parametrize("accept_on", ["loss", "error", "judges:wrong"])
@pytest.mark.parametrize("accept_batch", ["same", "held-out"])
@pytest.mark.usefixtures("judges")
def test_against_a_loop_by_hand(session, by_hand, accept_on, accept_batch):
    """Twelve steps with dropout and BatchNorm; on the same minibatch few moves are undone."""
    temperature = {"loss": 0.03, "error": 0.003, "judges:wrong": 0.1}[accept_on]
    share = 0.25 if accept_batch == "held-out" else 0.0
    block = {"lr": RATES, "accept_on": accept_on, "temperature": temperature}
    block["accept_batch"] = accept_batch
    found = session(**{"sgd-sa": {**block, **({"held_out_fraction": share} if share else {})}})
    steps = 2 * len(found.train_batches)
    verdicts = trained(found)
    model, batches, *held_out = by_hand(share)
    expected = reference(
        model, batches, held_out[0] if held_out else None, accept_on, temperature, steps
    )
    assert verdicts == expected
    if accept_batch == "held-out":
        assert {True, False} <= set(verdicts)
    weights = found.model.state_dict()
    for name, wanted in model.state_dict().items():
        assert torch.equal(weights[name], wanted), name


@pytest.mark.usefixtures("judges")
def test_a_noisy_function_leaves_no_trace_in_the_random_numbers(session):
    """Both of its values come from the same random state, which is put back."""
    run = session(**{"sgd-sa": {"lr": [0.0], "accept_on": "judges:noisy"}})
    worsenings = [run.method._optimizer.last_step.worsening for _ in run.train()]
    noisy = torch.get_rng_state()
    assert worsenings == [0.0] * 6
    run = session(**{"sgd-sa": {"lr": [0.0]}})
    list(run.train())
    assert torch.equal(noisy, torch.get_rng_state())


@pytest.mark.parametrize("accept_batch", ["same", "next", "held-out"])
@pytest.mark.usefixtures("judges")
def test_a_function_may_change_the_weights_that_it_looks_at(session, accept_batch):
    block = {"lr": [0.1], "accept_on": "judges:empty", "accept_batch": accept_batch}
    run = session(**{"sgd-sa": block})
    list(run.train())
    plain = session(**{"sgd-sa": {**block, "accept_on": "loss", "temperature": math.inf}})
    list(plain.train())
    weights = run.model.state_dict()
    assert all(torch.equal(weights[n], wanted) for n, wanted in plain.model.state_dict().items())


# --- The images that are held out ---


def numbered(count):
    """A data set whose images are their numbers, training images first."""
    codes = torch.arange(count + 20).view(-1, 1, 1, 1)
    images = torch.cat([codes % 256, codes // 256], dim=3).to(torch.uint8)
    images = images.repeat_interleave(4, dim=2).repeat_interleave(2, dim=3)
    labels = torch.arange(count + 20) % 10
    return Dataset(
        name="numbered",
        train_inputs=images[:count],
        train_targets=labels[:count],
        test_inputs=images[count:],
        test_targets=labels[count:],
        classes=tuple("0123456789"),
        mean=(0.5,),
        std=(0.5,),
    )


def numbers(batches):
    pixels = batches._inputs[:, 0, 0].long()
    return set((pixels[:, 0] + 256 * pixels[:, 2]).tolist())


@pytest.mark.parametrize("validate_on", ["validation", "test"])
def test_held_out_images_are_cut_off_the_training_part(tiny, validate_on):
    block = {"accept_batch": "held-out", "held_out_fraction": 0.2}
    changes = {"validate_on": validate_on, "train_size": 300, "device": "cpu"}
    run = Session(tiny(**changes, **{"sgd-sa": block}), numbered(400))
    plain = Session(tiny(**changes), numbered(400))
    training, held_out = numbers(run.train_batches), numbers(run.held_out)
    validation, test = numbers(run.validation_batches), numbers(run.test_batches)
    whole = 300 if validate_on == "test" else 270
    assert (len(training), len(held_out)) == (0.8 * whole, 0.2 * whole)
    assert not held_out & (training | validation | test)
    assert training | held_out == numbers(plain.train_batches)
    assert validation == numbers(plain.validation_batches)
    assert plain.held_out is None


def test_held_out_images_follow_the_split_seed_and_their_order_the_data_seed(tiny):
    def parts(**seeds):
        block = {"accept_batch": "held-out", "held_out_fraction": 0.2}
        changes = {"train_size": None, "batch_size": 10, "device": "cpu", **seeds}
        run = Session(tiny(**changes, **{"sgd-sa": block}), numbered(400))
        return numbers(run.held_out), [labels.tolist() for _, labels in run.held_out]

    first = parts(data_seed=1, split_seed=5)
    assert parts(data_seed=1, split_seed=5) == first
    again = parts(data_seed=2, split_seed=5)
    assert again[0] == first[0]
    assert again[1] != first[1]
    assert parts(data_seed=1, split_seed=6)[0] != first[0]


def test_they_are_passed_through_again_and_again(session):
    """36 images are one whole minibatch of 30 a pass: 5 passes in the 5 steps of an epoch."""
    run = session(**{"sgd-sa": {"accept_batch": "held-out", "held_out_fraction": 0.2}})
    seen = [minibatch.held_out for minibatch in run._minibatches()]
    assert [len(images.labels) for images in seen] == [30] * 5
    assert run.held_out.epoch in (4, 5)
    assert not torch.equal(seen[0].inputs, seen[1].inputs)


def test_smoothed_labels_do_not_reach_the_images_held_out(session):
    """At rate 0 the value is the plain loss, whatever the smoothing of the training loss."""
    values = []
    for smoothing in (0.0, 0.5):
        run = session(
            **{"sgd-sa": {"lr": [0.0], "accept_batch": "held-out", "label_smoothing": smoothing}}
        )
        values.append([run.method._optimizer.last_step.loss for _ in run.train()])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (0.001, r"sgd-sa\.held_out_fraction = 0\.001: .*leave one of the two sets empty"),
        (0.005, r"sgd-sa\.held_out_fraction: .* has one sample, too few for resnet18-w16"),
    ],
)
def test_too_few_of_them_are_refused(session, share, message):
    block = {"accept_batch": "held-out", "held_out_fraction": share}
    with pytest.raises(ConfigError, match=message):
        session(model="resnet18-w16", **{"sgd-sa": block})


# --- What a step costs, counted ---


@pytest.mark.parametrize(
    ("options", "forwards"),
    [
        ({"accept_on": "error"}, 2),
        ({"accept_on": "judges:wrong"}, 3),
        ({"accept_batch": "held-out"}, 3),
        ({"accept_batch": "held-out", "accept_on": "error"}, 3),
        ({"accept_batch": "held-out", "accept_on": "judges:wrong"}, 3),
        ({"preset": "paper-code", "accept_on": "error"}, 3),
        ({"preset": "paper-code", "accept_batch": "held-out"}, 3),
        ({"strategy": "tabu"}, 4),
        ({"strategy": "tabu", "strategy_options": {"candidates": 1}}, 2),
        ({"strategy": "tabu", "accept_batch": "held-out"}, 5),
        ({"clip_norm": [1.0]}, 2),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.usefixtures("judges")
def test_forwards_and_backwards_are_the_truth(session, monkeypatch, options, forwards, precision):
    run = session(precision=precision, **{"sgd-sa": {"lr": [0.1, 0.05, 0.01], **options}})
    counted = Counter()
    run.model.register_forward_hook(lambda *_: counted.update(["forwards"]))
    real = torch.autograd.backward

    def backward(*args, **kwargs):
        counted["backwards"] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "backward", backward)
    steps = 0
    for _ in run.train():
        steps += 1
        assert run.method._optimizer.last_step is not None, "skipped by the scaler"
    assert counted == {"forwards": run.forwards, "backwards": run.backwards}
    assert run.backwards == steps
    if precision == "fp16" and options == {"accept_on": "error"}:
        forwards = 3  # no closure, so the outputs of the first forward are not at hand
    assert run.forwards == forwards * steps


def test_a_run_judged_by_the_error_learns(complete, lines_of):
    directory = complete(epochs=5, **{"sgd-sa": {"accept_on": "error", "lr": [0.3, 0.1]}})
    first, *_, last = lines_of(directory / "metrics.jsonl")
    assert last["train_loss"] < first["train_loss"] < 3, "the loss is what is recorded"
