"""Method adamw at a held rate: the steps, the decay and the average, against a loop by hand."""

import json

import pytest
import torch
from torch.nn import functional as F

from annealtune.errors import ConfigError, RunStoppedError
from annealtune.training.config import from_values
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
    _, validation = scored.scores(lambda: None)
    assert validation.loss == last["validation_loss"]


def test_a_run_that_was_left_goes_on_with_its_average(tiny, place, complete):
    config = tiny(**HELD, epochs=4)
    with pytest.raises(RunStoppedError):
        run(config, place / "left", stop=StopRequest(after_epoch=2))
    run(config, place / "left")
    whole = complete(**HELD, epochs=4)
    for name in ("best.safetensors", "best.json"):
        assert (place / "left" / name).read_bytes() == (whole / name).read_bytes()


def test_an_unknown_schedule_is_named():
    with pytest.raises(ConfigError, match=r"adamw\.schedule: .*cosine, held, got 'flat'"):
        from_values({"adamw": {"schedule": "flat"}})
