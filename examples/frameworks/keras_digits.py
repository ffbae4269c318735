"""Keras 3 on torch: a train_step of the model's own, whose steps a tuner makes."""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported

import keras
import torch
from sklearn.datasets import load_digits

from annealtune import SelfTuner

EPOCHS, SAMPLES, TRAINING = 12, 64, 1437


def with_buffers(model):
    """Keras keeps statistics in parameters without gradients; a tuner must know them as buffers."""
    known = torch.nn.Module()
    known.model = model
    for number, variable in enumerate(model.non_trainable_variables):
        known.register_buffer(f"variable{number}", variable.value.data)
    return known


class Tuned(keras.Sequential):
    def tune(self, total_steps):
        base = torch.optim.AdamW(v.value for v in self.trainable_variables)
        self.tuner = SelfTuner(base, model=with_buffers(self), total_steps=total_steps)
        self.compute = self.tuner.record(self.loss_and_outputs)

    def loss_and_outputs(self, x, y):
        outputs = self(x, training=True)
        return self.compute_loss(x, y, outputs, training=True), outputs

    def train_step(self, data):
        x, y = data
        loss, outputs = self.compute(x, y)
        loss.backward()
        self.tuner.step()
        self.tuner.zero_grad()
        self._loss_tracker.update_state(loss.detach(), sample_weight=len(x))
        return self.compute_metrics(x, y, outputs.detach())


keras.utils.set_random_seed(0)
pixels, labels = load_digits(return_X_y=True)
x, y = (pixels / 16).astype("float32"), labels
dense, normal = keras.layers.Dense, keras.layers.BatchNormalization
model = Tuned([keras.Input((64,)), dense(128, "relu"), normal(), dense(10)])
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=None, loss=entropy, metrics=["accuracy"])  # callbacks can write no rate
model.tune(total_steps=EPOCHS * -(-TRAINING // SAMPLES))
model.fit(x[:TRAINING], y[:TRAINING], batch_size=SAMPLES, epochs=EPOCHS, verbose=0)

with model.tuner.averaged():
    _, accuracy = model.evaluate(x[TRAINING:], y[TRAINING:], verbose=0)
print(model.tuner.races[-1])
print(f"{model.tuner.steps} steps, accuracy {accuracy:.1%}")
