"""Runs of one Keras model, by fit and by plain loops; prints what they did as JSON."""

import json
import math
import os
import types
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

from annealtune import EmbeddedTuner, SelfTuner, grid

STEPS, EPOCHS, SAMPLES = 240, 4, 16
ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
EXAMPLE = Path(__file__).parents[3] / "examples" / "frameworks" / "keras_digits.py"

# What the example defines, without what it runs.
source = EXAMPLE.read_text(encoding="utf-8").partition("\nkeras.utils.set_random_seed")[0]
defined = types.ModuleType("keras_digits")
exec(compile(source, str(EXAMPLE), "exec"), vars(defined))
Tuned, with_buffers = defined.Tuned, defined.with_buffers


def data():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(STEPS // EPOCHS * SAMPLES, 6, generator=generator)
    noise = torch.randn(len(x), 3, generator=generator)
    return x, (x @ torch.ones(6, 3).tril() + noise).argmax(1)


def minibatches():
    x, y = data()
    for _ in range(EPOCHS):
        yield from zip(x.split(SAMPLES), y.split(SAMPLES), strict=True)


def make(*, dropout=True):
    keras.utils.set_random_seed(3)
    layers = keras.layers
    inside = [layers.BatchNormalization(), layers.ReLU(), *[layers.Dropout(0.2)] * dropout]
    return Tuned([keras.Input((6,)), layers.Dense(16), *inside, layers.Dense(3)])


def trainable(model):
    return [v.value for v in model.trainable_variables]


def tuner_of(kind, model, **options):
    known = with_buffers(model)
    if kind == "self-tuned":
        base = torch.optim.AdamW(trainable(model))
        return SelfTuner(base, model=known, total_steps=STEPS)
    base = torch.optim.SGD(trainable(model), lr=0.1, momentum=0.5)
    options = {"neighborhood": grid(lr=[30.0, 10.0, 1.0, 0.1]), "total_steps": STEPS} | options
    return EmbeddedTuner(base, model=known, seed=5, **options)


class Calls(keras.callbacks.Callback):
    """Counts minibatches, and gives the dropout numbers of its own."""

    def __init__(self):
        super().__init__()
        self.ends = 0
        self.state = torch.Generator().manual_seed(6).get_state()

    def on_train_batch_begin(self, batch, logs=None):
        torch.set_rng_state(self.state)

    def on_train_batch_end(self, batch, logs=None):
        self.ends += 1
        self.state = torch.get_rng_state()


def by_fit(kind):
    model, calls = make(), Calls()
    model.tuner = tuner_of(kind, model)
    model.compute = model.tuner.record(model.loss_and_outputs)
    model.compile(optimizer=None, loss=ENTROPY)
    x, y = (part.numpy() for part in data())
    options = {"batch_size": SAMPLES, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, callbacks=[calls], **options).history
    assert calls.ends == STEPS
    return model, model.tuner, history["loss"]


def by_loop(model, opt, batches=None):
    def loss(x, y):
        return ENTROPY(y, model(x, training=True))

    compute_loss = opt.record(loss) if hasattr(opt, "record") else loss
    torch.manual_seed(6)
    losses = []
    for x, y in minibatches() if batches is None else batches:
        found = compute_loss(x, y)
        losses.append(found.item())
        found.backward()
        opt.step()
        opt.zero_grad()
    return losses


def same(model, other):
    pairs = zip(model.variables, other.variables, strict=True)
    return all(torch.equal(a.value, b.value) for a, b in pairs)


def fit_and_loop(kind):
    """The same decisions, weights and statistics."""
    model, tuner, history = by_fit(kind)
    other = make()
    plain = tuner_of(kind, other)
    losses = torch.tensor(by_loop(other, plain)).reshape(EPOCHS, -1).mean(1).tolist()
    total = tuner.moves.total if kind == "embedded" else None
    return {
        "decisions": str(tuner.summary()) == str(plain.summary()),
        "races": getattr(tuner, "races", None) == getattr(plain, "races", None),
        "weights": same(model, other),
        "losses": max(abs(a - b) for a, b in zip(history, losses, strict=True)) < 1e-5,
        "rejects": total is None or 0.2 * total.tried < total.accepted < 0.9 * total.tried,
    }


def the_bases_own_run():
    """One setting that is always kept: bit for bit the bare optimizer, statistics included."""
    model, other = make(), make()
    one = {"neighborhood": grid(lr=[0.1]), "temperature": math.inf}
    losses = by_loop(model, tuner_of("embedded", model, **one))
    bare = torch.optim.SGD(trainable(other), lr=0.1, momentum=0.5)
    return {"losses": losses == by_loop(other, bare), "weights": same(model, other)}


def the_run_after_the_race():
    """The race restarts the run: from there on it is the bare optimizer's from the beginning."""
    model, other = make(dropout=False), make(dropout=False)
    tuner, batches = tuner_of("self-tuned", model), list(minibatches())[:120]
    losses = by_loop(model, tuner, batches)
    [race] = tuner.races
    bare = torch.optim.AdamW(trainable(other), lr=tuner.lr)
    again = by_loop(other, bare, batches[race.minibatches :])
    return {
        "restarted": race.restarted,
        "losses": losses[race.minibatches :] == again,
        "weights": same(model, other),
    }


def a_rate_by_callback():
    """With optimizer=None Keras itself refuses to write a rate."""
    model = make()
    model.compile(optimizer=None, loss=ENTROPY)
    model.tune(total_steps=STEPS)
    x, y = (part.numpy() for part in data())
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate)
    try:
        model.fit(x, y, callbacks=[callback], verbose=0)
    except ValueError as error:
        return {"refused": "learning_rate" in str(error), "untouched": model.tuner.steps == 0}
    return {"refused": False}


def a_tuner_for_compile():
    """compile takes Keras's optimizers only, and says so."""
    model = make()
    try:
        model.compile(optimizer=tuner_of("self-tuned", model), loss=ENTROPY)
    except ValueError as error:
        return {"refused": "SelfTuner" in str(error)}
    return {"refused": False}


print(
    json.dumps(
        {
            "self-tuned": fit_and_loop("self-tuned"),
            "embedded": fit_and_loop("embedded"),
            "one setting": the_bases_own_run(),
            "after the race": the_run_after_the_race(),
            "rate by callback": a_rate_by_callback(),
            "compile": a_tuner_for_compile(),
        }
    )
)
