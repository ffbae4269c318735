"""A step judged on the next minibatch, against a loop written by hand with torch alone."""

import math
import random
from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from annealtune.annealing import grid

# Rates at which the net keeps some moves and undoes others.
RATES = [8.0, 2.0, 0.3]
# Counts images, so its values are whole numbers; it looks at the model in evaluation mode.
WRONG_IMAGES = """
def count(model, minibatch):
    model.eval()
    return int((model(minibatch.inputs).argmax(1) != minibatch.labels).sum())
"""


@pytest.fixture
def wrong_images(place, monkeypatch):
    (place / "wrong_images.py").write_text(WRONG_IMAGES)
    monkeypatch.syspath_prepend(str(place))
    return "wrong_images:count"


class Reference:
    """Algorithm 2 with the accept test on the next minibatch; H may set three options more."""

    def __init__(self, model, settings, temperature, accept_on="loss"):
        self.model = model
        self.settings = settings
        self.temperature = temperature
        self.accept_on = accept_on
        self.decisions = random.Random(0)
        self.dropout = model.classifier[1]
        self.smoothing = settings[0].get("label_smoothing", 0.0)
        self.dropout.p = settings[0].get("dropout", self.dropout.p)
        self.verdicts = []

    def forward(self, inputs, labels):
        scores = self.model(inputs)
        loss = F.cross_entropy(scores, labels, label_smoothing=self.smoothing)
        return loss, (scores.argmax(1) != labels).double().mean().item()

    def backward(self, loss):
        for p in self.model.parameters():
            p.grad = None
        loss.backward()

    def value(self, loss, error):
        return error if self.accept_on == "error" else loss.item()

    def state(self):
        buffers = [b.clone() for b in self.model.buffers()]
        return torch.get_rng_state(), buffers

    @torch.no_grad()
    def put_back(self, state):
        torch.set_rng_state(state[0])
        for buffer, kept in zip(self.model.buffers(), state[1], strict=True):
            buffer.copy_(kept)

    def count(self, inputs, labels):
        with torch.no_grad():
            self.model.eval()
            wrong = (self.model(inputs).argmax(1) != labels).sum().item()
            self.model.train()
        return float(wrong)

    def step(self, inputs, labels):
        parameters = list(self.model.parameters())
        if parameters[0].grad is None:
            self.backward(self.forward(inputs, labels)[0])
            return
        h = self.settings[int(self.decisions.random() * len(self.settings))]
        options = self.smoothing, self.dropout.p
        self.smoothing = h.get("label_smoothing", self.smoothing)
        self.dropout.p = h.get("dropout", self.dropout.p)
        start = self.state()
        if self.accept_on == "count":
            value = self.count(inputs, labels)
        else:
            with torch.no_grad():
                value = self.value(*self.forward(inputs, labels))
        self.put_back(start)
        old = [p.detach().clone() for p in parameters]
        if "clip_norm" in h:
            torch.nn.utils.clip_grad_norm_(parameters, h["clip_norm"])
        with torch.no_grad():
            for p in parameters:
                p.add_(p.grad, alpha=-h["lr"])
        if self.accept_on == "count":
            loss, new_value = None, self.count(inputs, labels)
        else:
            loss, error = self.forward(inputs, labels)
            new_value = self.value(loss, error)
        worsening, u = new_value - value, self.decisions.random()
        accepted = worsening <= 0 or u < math.exp(-worsening / self.temperature)
        self.verdicts.append(accepted)
        if not accepted:
            with torch.no_grad():
                for p, kept in zip(parameters, old, strict=True):
                    p.copy_(kept)
            self.put_back(start)
            self.smoothing, self.dropout.p = options
        if loss is None or not accepted:
            loss, _ = self.forward(inputs, labels)
        self.backward(loss)


def trained(session, epochs=2):
    """Train some epochs and return all verdicts, None for a step without a move."""
    verdicts = []
    for _ in range(epochs):
        for _ in session.train():
            info = session.method._optimizer.last_step
            verdicts.append(None if info is None else info.accepted)
        session.epoch += 1
    return verdicts


def assert_same(session, model):
    for (name, found), expected in zip(
        session.model.state_dict().items(), model.state_dict().values(), strict=True
    ):
        assert torch.equal(found, expected), name
    for found, expected in zip(session.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)


@pytest.mark.parametrize(
    ("accept_on", "temperature", "options"),
    [
        ("loss", 0.05, {}),
        ("error", 0.01, {}),
        ("count", 0.5, {}),
        ("loss", 0.05, {"label_smoothing": [0.0, 0.2], "dropout": [0.1, 0.6]}),
        ("error", 0.01, {"label_smoothing": [0.1], "clip_norm": [0.05, 0.5, 100.0]}),
        ("count", 0.5, {"dropout": [0.0, 0.5], "clip_norm": [50.0, 0.5]}),
    ],
)
def test_against_a_loop_by_hand(session, by_hand, wrong_images, accept_on, temperature, options):
    """Twelve steps over two epochs, with dropout and BatchNorm: the same bits, gradients too."""
    block = {"lr": RATES, "temperature": temperature, "accept_batch": "next", **options}
    block["accept_on"] = wrong_images if accept_on == "count" else accept_on
    found = session(**{"sgd-sa": block})
    verdicts = trained(found)
    random_state = torch.get_rng_state()
    model, batches = by_hand()
    settings = list(grid(lr=RATES, **options))
    reference = Reference(model, settings, temperature, accept_on)
    for _ in range(2):
        for inputs, labels in batches:
            reference.step(inputs, labels)
    assert verdicts == [None, *reference.verdicts]
    assert verdicts.count(True) >= 2
    assert verdicts.count(False) >= 2
    assert_same(found, model)
    assert torch.equal(random_state, torch.get_rng_state())


@pytest.mark.parametrize("accept_on", ["loss", "error", "count"])
def test_what_a_step_costs(session, wrong_images, accept_on):
    """An accepted step two forwards and one backward, a rejected one a forward more."""
    block = {"lr": RATES, "temperature": 0.0, "accept_batch": "next"}
    block["accept_on"] = wrong_images if accept_on == "count" else accept_on
    run = session(**{"sgd-sa": block})
    counted = Counter()
    run.model.register_forward_hook(lambda *_: counted.update(["forwards"]))
    costs = {}
    for _ in run.train():
        info = run.method._optimizer.last_step
        costs.setdefault(info and info.accepted, set()).add(counted["forwards"])
        counted.clear()
    rejected = accepted = 3  # the function twice, and the forward that has a gradient
    if accept_on != "count":
        accepted = 2
    assert costs == {None: {1}, True: {accepted}, False: {rejected}}
    assert run.backwards == 6


def test_the_counts_of_a_run_are_the_truth(session, monkeypatch):
    run = session(**{"sgd-sa": {"lr": RATES, "temperature": 0.0, "accept_batch": "next"}})
    counted = Counter()
    run.model.register_forward_hook(lambda *_: counted.update(["forwards"]))
    real = torch.autograd.backward

    def backward(*args, **kwargs):
        counted["backwards"] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "backward", backward)
    verdicts = trained(run)
    assert counted == {"forwards": run.forwards, "backwards": run.backwards}
    assert run.forwards == 1 + 2 * verdicts.count(True) + 3 * verdicts.count(False)


def test_the_first_step_is_no_move(complete, lines_of):
    directory = complete(**{"sgd-sa": {"accept_batch": "next"}})
    moves = lines_of(directory / "moves.jsonl")
    assert [sum(line["tried"] for line in epoch["settings"]) for epoch in moves] == [5, 6, 6]
    records = lines_of(directory / "metrics.jsonl")
    assert [record["step"] for record in records] == [6, 12, 18]
    assert [record["backwards"] for record in records] == [6, 12, 18]


def test_broken_weights_are_never_kept(session, place, monkeypatch):
    """A function that sees nothing of it keeps every move, but not one to infinity."""
    (place / "blind.py").write_text("def zero(model, minibatch):\n    return 0\n")
    monkeypatch.syspath_prepend(str(place))
    block = {"lr": [3e38, 0.01], "accept_batch": "next", "accept_on": "blind:zero"}
    run = session(**{"sgd-sa": {**block, "weight_decay": [30.0]}})
    verdicts = trained(run)
    assert verdicts.count(False) >= 2
    assert all(bool(p.isfinite().all()) for p in run.model.parameters())


def test_works_around_adamw_and_with_bf16(complete, lines_of):
    for changes in ({"method": "adamw-sa"}, {"precision": "bf16"}):
        method = changes.get("method", "sgd-sa")
        directory = complete(**changes, **{method: {"accept_batch": "next"}})
        first, *_, last = lines_of(directory / "metrics.jsonl")
        assert last["train_loss"] < first["train_loss"]
