"""skorch makes the decisions of a plain loop, and its callbacks hear of a minibatch once."""

from __future__ import annotations

import io
import pickle
from collections import Counter

import pytest
import torch
from sklearn.base import clone
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler
from torch import nn

from annealtune import EmbeddedTuner, SelfTuner
from annealtune.integrations.skorch import TunedMixin
from annealtune.temperatures import Geometric


class Diary(Callback):
    """Counts, and lets the minibatches draw from a stream of their own."""

    def initialize(self):
        self.calls = Counter()
        self.losses = []
        return self

    def on_grad_computed(self, net, **_):
        self.calls["grad_computed"] += 1

    def on_batch_end(self, net, batch=None, training=False, loss=None, **_):
        if training:
            self.losses.append(loss.item())
            self.state = torch.get_rng_state()

    def on_batch_begin(self, net, batch=None, training=False, **_):
        if training:
            torch.set_rng_state(self.state)

    def on_train_begin(self, net, **_):
        self.state = torch.Generator().manual_seed(6).get_state()


@pytest.fixture
def fitted(task, kind, counted):
    class Net(TunedMixin, NeuralNet):
        def initialize_module(self):
            self.module_ = task.net()
            self.count_ = counted(self.module_)
            return self

        def make_tuner(self, base):
            return task.tuner(kind, self.module_)

        def get_loss(self, y_pred, y_true, *args, **kwargs):
            return nn.functional.cross_entropy(y_pred.float(), y_true)

    def fit(*callbacks):
        net = Net(
            nn.Module,
            criterion=nn.CrossEntropyLoss,
            max_epochs=task.epochs,
            batch_size=task.samples,
            train_split=None,
            verbose=0,
            callbacks=[*callbacks, ("diary", Diary())],
        )
        net.fit(*task.data().tensors)
        return net

    return fit


def test_the_run_of_a_plain_loop(task, kind, fitted):
    net = fitted()
    [diary] = [callback for name, callback in net.callbacks_ if name == "diary"]
    found = task.outcome(net.module_, net.optimizer_, net.count_, diary.losses)
    plain = task.plain(kind)
    found.assert_equals(plain)
    assert diary.calls == {"grad_computed": task.steps}
    assert net.history[-1, "batches", -1, "train_loss"] == plain.losses[-1]


def test_clipping_applies_to_every_arm(task, kind, fitted):
    net = fitted(("clip", GradientNormClipping(0.1)))
    [diary] = [callback for name, callback in net.callbacks_ if name == "diary"]
    found = task.outcome(net.module_, net.optimizer_, net.count_, diary.losses)
    found.assert_equals(task.plain(kind, clip=0.1))


class Tuned(TunedMixin, NeuralNetClassifier):
    def make_tuner(self, base):
        return SelfTuner(base, model=self.module_, total_steps=240)


class Cooled(TunedMixin, NeuralNetClassifier):
    def make_tuner(self, base):
        return EmbeddedTuner(base, self.module_, temperature=Geometric(1.0, 0.5))


class Small(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


def classifier(kind=Tuned, **options):
    torch.manual_seed(0)
    options = {"optimizer": torch.optim.AdamW, "batch_size": 16, "verbose": 0} | options
    return kind(Small, criterion=nn.CrossEntropyLoss, max_epochs=4, **options)


def test_predictions_are_the_averages(task):
    x, y = task.data().tensors
    net = classifier(train_split=None).fit(x, y)
    assert isinstance(net.optimizer_.base, torch.optim.AdamW)
    found = net.predict_proba(x)
    net.optimizer_.train()
    trained = [p.detach().clone() for p in net.module_.parameters()]
    with net.optimizer_.averaged(), torch.no_grad():
        average = net.module_(x).softmax(1).numpy()
    assert (found == average).all()
    copied = pickle.loads(pickle.dumps(net))
    assert (copied.predict_proba(x) == average).all()
    copied.optimizer_.train()
    pairs = zip(copied.module_.parameters(), trained, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert not hasattr(clone(net), "optimizer_")


@pytest.mark.parametrize("options", [{}, {"train_split": None}])
def test_the_temperature_falls_once_an_epoch(task, options):
    class Thermometer(Callback):
        def on_epoch_end(self, net, **_):  # what a checkpoint is to go on with
            seen.append(net.optimizer_.temperature)

    seen = []
    x, y = task.data().tensors
    net = classifier(Cooled, callbacks=[Thermometer()], **options).fit(x, y)
    net.partial_fit(x, y)  # goes on from there
    assert seen == [0.5**epoch for epoch in range(1, 9)]


class Scored(Tuned):
    """Notes the weights of every validation, and gives each epoch a loss of its own."""

    scores = (2.0, 1.0, 3.0, 2.5)

    def initialize_module(self):
        self.seen_ = []
        return super().initialize_module()

    def validation_step(self, batch, **fit_params):
        step = super().validation_step(batch, **fit_params)
        self.seen_.append(weights_of(self))
        return step | {"loss": torch.tensor(self.scores[len(self.history) - 1])}


def test_after_a_fit_the_net_has_its_best_weights(task):
    x, y = task.data().tensors
    net = classifier(Scored).fit(x, y)
    assert [look.value for look in net.optimizer_.looks] == list(Scored.scores)
    best = net.seen_[len(net.seen_) // 4]  # the first minibatch of the second epoch
    assert all(torch.equal(value, best[name]) for name, value in weights_of(net).items())
    assert (net.predict_proba(x) == outputs(net, best, x)).all()
    copied = pickle.loads(pickle.dumps(net))
    assert (copied.predict_proba(x) == outputs(net, best, x)).all()
    for one in (net, copied):
        one.optimizer_.train()  # the training goes on from the last weights
        assert any(not torch.equal(value, best[name]) for name, value in weights_of(one).items())


def outputs(net, weights, x):
    """Return what a net with these weights predicts, without skorch."""
    module = Small()
    module.load_state_dict(weights)
    with torch.no_grad():
        return module(x).softmax(1).numpy()


def weights_of(net):
    return {name: value.clone() for name, value in net.module_.state_dict().items()}


def other_weights():
    torch.manual_seed(5)
    return Small().state_dict()


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_weights_that_are_loaded_are_predicted_with(task, validated, copied):
    x, y = task.data().tensors
    net = classifier(**({} if validated else {"train_split": None})).fit(x, y)
    if copied:
        net = pickle.loads(pickle.dumps(net))
    file = io.BytesIO()
    torch.save(other_weights(), file)
    file.seek(0)
    net.load_params(f_params=file)
    expected = outputs(net, other_weights(), x)
    assert (net.predict_proba(x) == expected).all()
    again = pickle.loads(pickle.dumps(net))
    assert (again.predict_proba(x) == expected).all()


def test_params_and_optimizer_bring_back_the_average(task, tmp_path):
    x, y = task.data().tensors
    net = classifier().fit(x, y)
    files = {"f_params": tmp_path / "params.pt", "f_optimizer": tmp_path / "optimizer.pt"}
    net.save_params(**files)
    expected = net.predict_proba(x)
    net.optimizer_.train()
    trained = weights_of(net)
    other = classifier(torch_load_kwargs={"weights_only": False}).initialize()
    other.load_params(**files)
    assert (other.predict_proba(x) == expected).all()
    other.optimizer_.train()
    assert all(torch.equal(value, trained[name]) for name, value in weights_of(other).items())


def test_a_scheduler_is_refused(task, kind, fitted):
    with pytest.raises(ValueError, match="scheduler"):
        fitted(("schedule", LRScheduler("StepLR", step_size=1)))
