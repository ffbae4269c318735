"""Methods that tune nothing: plans of the rate, and AdamW held, decayed and averaged."""

import json
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune.errors import RunStoppedError
from annealtune.training import methods
from annealtune.training.runs import run
from annealtune.training.stopping import StopRequest

HELD = {"method": "adamw", "adamw": {"lr": 0.01, "schedule": "held"}, "model": "mlp"}
EVERY = 8  # steps between two weights that go into the average


def by_hand(session, steps):
    """Return the rates, and the average of the weights, of AdamW written out."""
    model, batches = session.model.train(), session.train_batches
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=0.01, weight_decay=0.01)
    rates, means, taken = [], None, 0
    while len(rates) < steps:
        for inputs, labels in batches:
            step = len(rates)
            if step % EVERY == 0:
                taken += 1
                present = [w.detach().clone() for w in weights]
                left = min(1.0, (steps - step) / (steps / 4))
                share = min(1.0, 10 / (taken + 9) / left)
                means = present if means is None else means
                torch._foreach_lerp_(means, present, share)
            warmed = min(1.0, (step + 1) / round(0.05 * steps))
            rates.append(0.01 * (warmed * min(1.0, (steps - step) / (steps / 4))))
            optimizer.param_groups[0]["lr"] = rates[-1]
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return rates, [w.detach().clone() for w in weights]  # the decay is over


def test_it_is_adamw_held_decayed_and_averaged(session, complete):
    rates, means = by_hand(session(**HELD, epochs=4), steps=24)

    directory = complete(**HELD, epochs=4)

    lines = (directory / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["rate"] for line in lines] == rates[5::6]
    last = json.loads(lines[-1])
    scored = session(**HELD, epochs=4)
    with torch.no_grad():
        for weight, mean in zip(scored.model.parameters(), means, strict=True):
            weight.copy_(mean)
    assert scored.score(scored.validation_batches).loss == last["validation_loss"]


def test_a_run_that_was_left_goes_on_with_its_average(tiny, place, complete):
    config = tiny(**HELD, epochs=4)
    with pytest.raises(RunStoppedError):
        run(config, place / "left", stop=StopRequest(after_epoch=2))
    run(config, place / "left")
    whole = complete(**HELD, epochs=4)
    for name in ("best.safetensors", "best.json"):
        assert (place / "left" / name).read_bytes() == (whole / name).read_bytes()


# --- Rates that follow a plan ---


class Nothing:
    """A minibatch whose loss does not depend on what matters here."""

    def __init__(self, model):
        self.model = model

    def loss(self):
        return sum(p.sum() for p in self.model.parameters()) * 0.0


def rates(tiny, method, epochs, steps_per_epoch=2, **options):
    config = tiny(method=method, epochs=epochs, **{method: options} if options else {})
    model = nn.Linear(2, 2)
    made = methods.build(config, model, steps_per_epoch, None)
    found = []
    for _ in range(epochs):
        for _ in range(steps_per_epoch):
            made.step(Nothing(model))
            found.append(made.readings()["rate"])
        made.end_epoch()
    return found


class TestPlans:
    def test_scheduled_sgd_at_30_and_70_of_100(self, tiny):
        found = Counter(round(rate, 12) for rate in rates(tiny, "scheduled-sgd", 100))
        assert found == {0.1: 60, 0.01: 80, 0.001: 60}
        found = rates(tiny, "scheduled-sgd", 100, steps_per_epoch=1)
        assert [round(found[epoch], 12) for epoch in (0, 29, 30, 69, 70, 99)] == [
            0.1,
            0.1,
            0.01,
            0.01,
            0.001,
            0.001,
        ]

    @pytest.mark.parametrize(("epochs", "expected"), [(10, (3, 7)), (1, (1, 1)), (3, (1, 3))])
    def test_milestones_of_short_runs(self, tiny, epochs, expected):
        """The first epoch that lies wholly behind the share."""
        found = rates(tiny, "scheduled-sgd", epochs, steps_per_epoch=1)
        hand = [
            0.1 if e < expected[0] else 0.01 if e < expected[1] else 0.001 for e in range(epochs)
        ]
        assert found == pytest.approx(hand)

    def test_milestones_of_ones_own(self, tiny):
        options = {"lr": 8.0, "factor": 0.5, "milestones": [0.25, 0.5, 0.75]}
        found = rates(tiny, "scheduled-sgd", 4, steps_per_epoch=1, **options)
        assert found == [8.0, 4.0, 2.0, 1.0]

    def test_sgd_is_constant(self, tiny):
        assert set(rates(tiny, "sgd", 5, lr=0.25)) == {0.25}

    def test_the_cosine_is_torchs(self, tiny):
        found = rates(tiny, "adamw", 10, steps_per_epoch=3, lr=0.3)
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
        expected = []
        for _ in range(30):
            expected.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        assert found == pytest.approx(expected, abs=1e-12)
        assert found[0] == 0.3
        assert 0 < found[-1] < 0.01

    @pytest.mark.parametrize(
        ("method", "options", "kind", "expected"),
        [
            ("sgd", {"lr": 0.2}, torch.optim.SGD, {"momentum": 0, "weight_decay": 0}),
            ("scheduled-sgd", {}, torch.optim.SGD, {"momentum": 0, "weight_decay": 0}),
            ("adamw", {"weight_decay": 0.2}, torch.optim.AdamW, {"weight_decay": 0.2}),
        ],
    )
    def test_options_reach_the_optimizer(self, tiny, method, options, kind, expected):
        made = methods.build(tiny(method=method, **{method: options}), nn.Linear(2, 2), 2, None)
        assert type(made._optimizer) is kind
        (group,) = made._optimizer.param_groups
        assert {name: group[name] for name in expected} == expected
